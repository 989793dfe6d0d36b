"""Rows of semantic indexing: pairs of matching texts for training, single texts for embedding."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.config.schema import ColumnsSection
from nlpctl.data.readers.lines import is_blank
from nlpctl.data.rows.labels import LabelSet, label_name
from nlpctl.data.rows.matching_rows import is_match, require_pair_column
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.rows.text_rows import checked_text
from nlpctl.errors import UserError


@dataclass(frozen=True, slots=True)
class RetrievalExample:
    """A query, a second text that matches it or not (`matches`), and an optional hard negative.

    `text_pair` is None if only vectors are wanted; `text` is then any text, a query or a document.
    """

    text: str
    text_pair: str | None
    negative: str | None
    matches: bool

    @property
    def second(self) -> str:
        """`text_pair` of a labelled row, which has one."""
        assert self.text_pair is not None, "the example is a labelled one"
        return self.text_pair

    @property
    def byte_length(self) -> int:
        """UTF-8 bytes of the longer text: the texts of a row are padded apart from each other."""
        return max(len(self.text.encode()), 0 if self.text_pair is None else len(self.text_pair.encode()))


class RetrievalRows(TaskRows):
    """Rows of semantic indexing.

    Every row is a matching pair, unless its label column (data.columns.label) says 0. The column is optional under its
    default name and required under any other. A row with label 0 is no query: its second text is a further negative for
    the queries of its batch, and a further document of the corpus when scores are computed.
    """

    one_sequence = False

    @property
    def plain_column(self) -> str:
        return self.data.columns.text

    def required(self, labelled: bool) -> tuple[str, ...]:
        columns = self.data.columns
        if not labelled:
            return (columns.text,)
        require_pair_column(columns.text_pair, "semantic_indexing")
        negative = () if columns.negative is None else (columns.negative,)
        # A label column that the recipe names must be there: misspelt, its pairs that do not match would be trained.
        label = () if columns.label == ColumnsSection().label else (columns.label,)
        return (columns.text, columns.text_pair, *negative, *label)

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> RetrievalExample:
        columns = self.data.columns
        text = checked_text(values[columns.text], "text")
        if labels is None:
            return RetrievalExample(text, None, None, True)
        pair = checked_text(values[str(columns.text_pair)], "second text")
        negative = None if columns.negative is None else _optional_text(values[columns.negative], "negative text")
        # The label column is optional: most retrieval data consist of matching pairs only.
        matches = columns.label not in values or is_match(label_name(values[columns.label]))
        return RetrievalExample(text, pair, negative, matches)

    def check_training(self, examples: Sequence[Any], labels: LabelSet, where: str) -> None:
        """UserError if no pair matches, or there is but one text to be found."""
        if not any(example.matches for example in examples):
            hint = f"rows whose {self.data.columns.label!r} is 0 train nothing by themselves; check data.columns.label"
            raise UserError(f"none of the {len(examples)} training pairs matches", where=where, hint=hint)
        if len({example.text_pair for example in examples}) == 1:
            hint = "check data.columns.text_pair: there must be wrong answers to tell from the right one"
            raise UserError(f"all {len(examples)} training rows have the same second text", where=where, hint=hint)

    def passages(self, example: RetrievalExample) -> dict[str, str]:
        columns = self.data.columns
        named = (
            (columns.text, example.text),
            (columns.text_pair, example.text_pair),
            (columns.negative, example.negative),
        )
        return {str(column): text for column, text in named if text is not None}

    def label_names(self, example: RetrievalExample, labels: LabelSet) -> tuple[str, ...]:
        return ("match" if example.matches else "no match",)

    def target(self, example: RetrievalExample) -> Hashable:
        return example.matches

    def input_columns(self, example: RetrievalExample) -> dict[str, Any]:
        return {self.data.columns.text: example.text}


def _optional_text(value: Any, what: str) -> str | None:
    """A text, or None if the row has none."""
    if value is None or (isinstance(value, str) and is_blank(value)):
        return None
    return checked_text(value, what)
