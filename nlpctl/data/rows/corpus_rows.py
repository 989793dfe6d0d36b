"""Rows of plain text without labels: training text of a language model, and texts with [MASK] tokens to fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nlpctl.data.rows.first_look import Match, Preview
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import TABLES, TaskRows
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

    endings = {**TABLES, ".txt": "text"}
    in_windows = True

    @classmethod
    def recognised(cls, look: Preview, given: Mapping[str, str]) -> Match | None:
        text = look.role("text", given, ("text",))
        labelled = any(column.name.strip().casefold() in ("label", "labels", "标签") for column in look.columns)
        if text is None or (labelled and "text" not in given):
            return None
        return Match({"text": text}, "there are texts, and no labels", sure=1)

    @property
    def plain_column(self) -> str:
        return self.data.columns.text

    def required(self, labelled: bool) -> tuple[str, ...]:
        return (self.data.columns.text,)

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> CorpusExample:
        return CorpusExample(checked_text(values[self.data.columns.text], "text"), fill=labels is None)

    def passages(self, example: CorpusExample) -> dict[str, str]:
        return {self.data.columns.text: example.text}

    def answered(self, example: CorpusExample) -> dict[str, Any]:
        return self.passages(example)
