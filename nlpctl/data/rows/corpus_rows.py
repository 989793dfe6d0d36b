"""Rows of plain text without labels: training text of a language model, and texts with [MASK] tokens to fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nlpctl.config.input_formats import ENDINGS, PLAIN
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.rows.text_rows import checked_text


@dataclass(frozen=True, slots=True)
class CorpusExample:
    """One text. `fill`: predict the tokens at its masks; otherwise words are masked and predicted, for training."""

    text: str
    fill: bool

    @property
    def byte_length(self) -> int:
        """UTF-8 bytes, see TextExample."""
        return len(self.text.encode())


class CorpusRows(TaskRows):
    """Rows of masked language model training: the text column, or a .txt file with a text per line."""

    endings = {**ENDINGS, ".txt": PLAIN}
    in_windows = True

    @property
    def plain_column(self) -> str:
        return self.data.columns.text

    def required(self, labelled: bool) -> tuple[str, ...]:
        return (self.data.columns.text,)

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> CorpusExample:
        return CorpusExample(checked_text(values[self.data.columns.text], "text"), fill=labels is None)

    def passages(self, example: CorpusExample) -> dict[str, str]:
        return {self.data.columns.text: example.text}

    def input_columns(self, example: CorpusExample) -> dict[str, Any]:
        return self.passages(example)
