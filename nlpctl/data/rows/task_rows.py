"""The base class for the rows of a task: required columns, conversion to examples, collection of labels.

One module per kind of example (text_rows.py, tagged_rows.py, ...). None imports Paddle, so that bad files are reported
before anything heavy is loaded. config/tasks.py names the class of each task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from nlpctl.config.input_formats import ENDINGS
from nlpctl.config.schema import DataSection
from nlpctl.config.tasks import load_class, task_info
from nlpctl.data.readers.annotated import Annotated
from nlpctl.data.readers.row import RowSource
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.word_spans import is_ideograph, load_jieba
from nlpctl.report.language import Later

Doubt = tuple[Later, str]  # what is probably wrong with a row: the kind, and details or ""


class Example(Protocol):
    """One row, checked: a frozen dataclass with slots, so that a million of them fit in memory."""

    @property
    def byte_length(self) -> int:
        """Grows with the number of tokens, without tokenising; batches are sorted by it."""
        ...


class TaskRows(ABC):
    """Converts the rows of one task to examples, and tells what stands in them.

    A subclass says which columns a row must have (`required`), reads one (`read`), and gives back its texts
    (`passages`) and what an answer repeats of it (`input_columns`). With labels it also collects these
    (`collect_labels`). The rest has defaults.
    """

    endings: Mapping[str, str] = ENDINGS  # file ending -> format, where data.format is auto
    labelled: bool = True  # `labelled` of the task's TaskInfo; set by task_rows()
    in_windows: bool = False  # True: what is longer than data.max_seq_length is read in windows, not cut
    one_sequence: bool = True  # False: the texts of a row are read apart from each other, not as one sequence
    symmetric: bool = False  # True: the label of (A, B) is that of (B, A)
    annotation: Literal["label", "labels", "spans"] | None = None  # what an annotator gives a text; None: not read
    encoder: TextEncoder | None = None  # of the model that is to answer: a row that it cannot read is a bad one

    def __init__(self, data: DataSection):
        self.data = data

    # -- columns --------------------------------------------------------------------------------------------------

    @property
    def plain_column(self) -> str | None:
        """What a line of plain text is for predict; None if a row needs more."""
        return None

    @property
    def split_together(self) -> str | None:
        """The column of which rows with the same value stay in one part where a file is cut into parts."""
        return None

    @property
    def label_column(self) -> str:
        """The column of labels, or of lists of tags. A named data set may hold ids in it."""
        return self.data.columns.label

    @abstractmethod
    def required(self, labelled: bool) -> tuple[str, ...]:
        """The columns or keys that a row must have."""

    def text_columns(self) -> tuple[str, ...]:
        """The columns of a row without its label, as one would write it: where none is required, that of a text."""
        return self.required(labelled=False) or (() if self.plain_column is None else (self.plain_column,))

    # -- from a row to an example, and what stands in it -------------------------------------------------------------

    @abstractmethod
    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> Any:
        """The example in a row; `labels` None: its label is not wanted. ValueError("kind: details") says why not."""

    @abstractmethod
    def passages(self, example: Any) -> dict[str, str]:
        """The texts of an example as they are written: column to text."""

    def texts(self, example: Any) -> Iterator[str]:
        """The texts of an example, for a vocabulary."""
        yield from self.passages(example).values()

    # -- for `data inspect` and scores of parts of a split -----------------------------------------------------------

    def label_names(self, example: Any, labels: LabelSet) -> tuple[str, ...]:
        """The labels of a labelled example, or the types of its entities, for statistics of a data set."""
        return ()

    def target(self, example: Any) -> Hashable:
        """The target of a labelled example. Equal texts with different targets contradict each other."""
        return None

    def doubts(self, example: Any, labels: LabelSet) -> Iterator[Doubt]:
        """Probable mistakes in a valid labelled example."""
        yield from ()

    # -- for `predict`, for files of annotators, and for `data next` -------------------------------------------------

    @abstractmethod
    def input_columns(self, example: Any) -> dict[str, Any]:
        """The input columns that predict repeats before the answer: column -> JSON-ready value."""

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]:
        """The columns of a text that was annotated elsewhere. ValueError("kind: details"): it does not fit the task."""
        raise ValueError("annotations: this task reads none")

    def columns_to_fill(self, example: Any) -> dict[str, Any]:
        """The columns that a person fills in to label an example, None where the label belongs."""
        return {self.label_column: None}

    # -- for `compress --strategy distill` of a `distillable` task ---------------------------------------------------
    # The defaults are for an example with a `text`, a `text_pair` and a `label`.

    def key(self, example: Any) -> Hashable:
        """What tells an example from others, whatever their labels are."""
        return example.text, example.text_pair

    def unlabelled(self, example: Any) -> Any:
        """The same example without labels."""
        return replace(example, label=None)

    def with_answer(self, example: Any, answer: Mapping[str, Any], labels: LabelSet) -> Any:
        """The same example with the labels that an answer gives (`labelled_answers` of the task)."""
        return replace(example, label=labels.id(answer["label"]))

    def words(self, example: Any) -> list[tuple[str, ...]]:
        """The texts of an example, each cut into words; those of jieba include white space."""
        texts = self.passages(example).values()
        return [tuple(load_jieba().lcut(text)) if _unspaced(text) else tuple(text.split()) for text in texts]

    def with_words(self, example: Any, texts: Sequence[Sequence[str]]) -> Any | None:
        """The same example without labels, and with other words in place of its own; None if a text would be blank."""
        joined = [("" if _unspaced("".join(words)) else " ").join(words) for words in texts]
        if not all(text.strip() for text in joined):
            return None
        return replace(self.unlabelled(example), **dict(zip(("text", "text_pair"), joined, strict=False)))

    # -- for training ------------------------------------------------------------------------------------------------

    def collect_labels(self, source: RowSource) -> LabelSet:
        """The label set of the training rows. Bad rows are skipped; they are reported when the examples are read."""
        return LabelSet(())

    def prepare_labels(self, labels: LabelSet) -> LabelSet:
        """The label set in the form and order that the task needs. UserError if it cannot be used."""
        return labels

    def check_training(self, examples: Sequence[Any], labels: LabelSet, where: str) -> None:
        """UserError if nothing can be learned from `examples`."""
        return None


def _unspaced(text: str) -> bool:
    return any(map(is_ideograph, text))


def task_rows(task: str, data: DataSection) -> TaskRows:
    """The TaskRows of the task `task`, which must exist; the checks of the recipe ensure that."""
    info = task_info(task)
    rows = load_class(info.rows)(data)
    rows.labelled = info.labelled
    return rows
