"""Rows given by a Python program: texts, or dicts with the columns of the task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.data.labels import label_names
from nlpctl.data.open_split import with_names
from nlpctl.data.row import BadRow, Row, missing_key
from nlpctl.data.task_rows import TaskRows


@dataclass(frozen=True)
class GivenRows:
    """The rows of `values`, as a RowSource. Messages call row 3 `name`[3].

    `labelled`: the label columns are required, and numbers in them get the names of data.numbered_labels. A plain text
    is a row only if they are not, and if the task takes a single text.
    """

    task_rows: TaskRows
    values: Iterable[Any]
    name: str
    labelled: bool
    files: tuple[Path, ...] = ()
    label_names: None = None

    @property
    def description(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Row | BadRow]:
        required = self.task_rows.required(self.labelled)
        numbered = label_names(self.task_rows.data) if self.labelled else None
        names = None if numbered is None else numbered.names
        plain = None if self.labelled else self.task_rows.plain_column
        for index, value in enumerate(self.values):
            place = f"[{index}]"
            if isinstance(value, str) and plain is not None:
                yield Row(self.name, place, {plain: value})
            elif isinstance(value, Mapping):
                reason = missing_key(value, required)
                row = Row(self.name, place, value) if reason is None else BadRow(self.name, place, reason)
                yield with_names(row, self.task_rows.label_column, names)
            else:
                keys = " and ".join(repr(name) for name in required)
                wanted = "a text or a dict" if plain is not None else f"a dict with {keys}" if keys else "a dict"
                yield BadRow(self.name, place, f"not a row: expected {wanted}, got {type(value).__name__}")
