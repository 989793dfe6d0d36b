"""Rows of classification: a text or a pair of texts, with one label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nlpctl.data.readers.annotated import Annotated, with_text
from nlpctl.data.readers.lines import is_blank, refuse_surrogates
from nlpctl.data.readers.row import BadRow, RowSource
from nlpctl.data.rows.examples import BadRowLog
from nlpctl.data.rows.labels import LabelSet, known_label, label_name
from nlpctl.data.rows.task_rows import Doubt, TaskRows
from nlpctl.errors import Problem, UserError
from nlpctl.names import and_more
from nlpctl.report.language import later


def byte_length_of(text: str, text_pair: str | None) -> int:
    """UTF-8 bytes of both texts.

    A Chinese character is 3 bytes and one token, an English word some 4 to 6 bytes and one token or a little more, so
    text of both kinds sorts fairly together.
    """
    return len(text.encode()) + (len(text_pair.encode()) if text_pair is not None else 0)


@dataclass(frozen=True, slots=True)
class TextExample:
    """A sentence or a pair of sentences; `label` is the id, None where labels are not wanted."""

    text: str
    text_pair: str | None
    label: int | None

    @property
    def byte_length(self) -> int:
        """Proportional to tokens, without tokenising."""
        return byte_length_of(self.text, self.text_pair)


class TextOrPair(Protocol):
    """An example of a text or of a pair of texts, whatever its labels are."""

    @property
    def text(self) -> str: ...
    @property
    def text_pair(self) -> str | None: ...


class LabelledTextRows(TaskRows):
    """Rows of a text or of a pair of texts, with labels in one column."""

    @property
    def plain_column(self) -> str | None:
        return self.data.columns.text if self.data.columns.text_pair is None else None

    def required(self, labelled: bool) -> tuple[str, ...]:
        columns = self.data.columns
        pair = () if columns.text_pair is None else (columns.text_pair,)
        return (columns.text, *pair, *((columns.label,) if labelled else ()))

    def collect_labels(self, source: RowSource) -> LabelSet:
        return collect_names(source, lambda values: self._label_names(values[self.data.columns.label]))

    @abstractmethod
    def _label_names(self, value: Any) -> list[str]:
        """The names in the label column of a row. ValueError says what is wrong."""

    def passages(self, example: TextOrPair) -> dict[str, str]:
        pair = {} if example.text_pair is None else {str(self.data.columns.text_pair): example.text_pair}
        return {self.data.columns.text: example.text, **pair}

    def doubts(self, example: TextOrPair, labels: LabelSet) -> Iterator[Doubt]:
        if example.text == example.text_pair:
            yield later("both texts are the same"), ""

    def input_columns(self, example: TextOrPair) -> dict[str, Any]:
        return self.passages(example)


class TextRows(LabelledTextRows):
    """Rows of sequence classification."""

    annotation = "label"

    def _label_names(self, value: Any) -> list[str]:
        return [label_name(value)]

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> TextExample:
        columns = self.data.columns
        text = checked_text(values[columns.text], "text")
        pair = None if columns.text_pair is None else checked_text(values[columns.text_pair], "second text")
        label = None if labels is None else known_label(values[columns.label], labels)
        return TextExample(text, pair, label)

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]:
        values = with_text(record, self.data.columns.text, self.data.columns.label)
        labels = record.labels(self.data.columns.label)
        if len(labels) > 1:
            raise ValueError(f"several labels: {and_more(labels)}; a text has one")
        return values | ({self.data.columns.label: labels[0]} if labels else {})

    def check_training(self, examples: Sequence[Any], labels: LabelSet, where: str) -> None:
        """UserError if all examples have one label."""
        first = examples[0].label
        if all(example.label == first for example in examples):
            hint = "check data.columns.label and the training file"
            message = f"all {len(examples)} training rows have the label {labels.name(first)!r}"
            raise UserError(message, where=where, hint=hint)

    def label_names(self, example: TextExample, labels: LabelSet) -> tuple[str, ...]:
        assert example.label is not None, "the example is a labelled one"
        return (labels.name(example.label),)

    def target(self, example: TextExample) -> Hashable:
        return example.label


def checked_text(value: Any, what: str) -> str:
    """`value` if it is a non-blank text. ValueError, which calls it `what`, otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is not a string: got {type(value).__name__}")
    if is_blank(value):
        raise ValueError(f"blank {what}")
    refuse_surrogates(value, what)
    return value


def collect_names(source: RowSource, names_of: Callable[[Mapping[str, Any]], Iterable[str]]) -> LabelSet:
    """The label set of the names in the values of each row.

    UserError if there are too few or far too many; it also lists the bad rows, whose labels are missing.
    """
    log = BadRowLog("skip")

    def names() -> Iterator[str]:
        for row in source:
            try:
                if isinstance(row, BadRow):
                    log.add(row)
                else:
                    yield from names_of(row.values)
            except ValueError as error:
                log.add(BadRow(row.source, row.line, str(error)))

    try:
        return LabelSet.collect(names(), source.description)
    except UserError as error:
        raise UserError(problems=[*(Problem(row.reason, row.where) for row in log.first), *error.problems]) from None
