"""The output of readers: a Row or a BadRow, each with its file and line; and the protocol of row sources."""

from __future__ import annotations

import numbers
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from nlpctl.errors import Problem
from nlpctl.names import counted, listed_with_guess

MISSING = "missing key"  # how the reason of a row without a key begins
# Told as a flag, since not every command has a recipe to write it in.
NAME_COLUMNS = "set data.columns to names from this list, as in @[data.columns.text=COLUMN]"


def place(source: str, line: int | str) -> str:
    """file:line, or texts[3]."""
    return f"{source}{line}" if str(line).startswith("[") else f"{source}:{line}"


class Row(NamedTuple):
    """One record: `values` maps column or key to what the file holds there.

    `line` is a line number, the path inside a nested document (data[3].paragraphs[0].qas[2]), or [3], the place in a
    list that a program gave.
    """

    source: str
    line: int | str
    values: Mapping[str, Any]

    def line_of(self, word: int) -> int | str:
        """The line of one of its words, counted from 0."""
        return self.line


class Sentence(Row):
    """A row with a line for each of its words; `line` is that of the first."""

    __slots__ = ()

    def line_of(self, word: int) -> int | str:
        return self.line + word if isinstance(self.line, int) else self.line


class BadWord(ValueError):
    """What is wrong with one word of a row, counted from 0."""

    def __init__(self, reason: str, word: int):
        super().__init__(reason)
        self.word = word


class BadRow(NamedTuple):
    """A record that cannot be used. `reason` reads "kind: details"; kinds are counted, details shown."""

    source: str
    line: int | str
    reason: str

    @property
    def kind(self) -> str:
        return self.reason.split(":", 1)[0]

    @property
    def where(self) -> str:
        return place(self.source, self.line)


def problems_of(rows: Iterable[BadRow]) -> list[Problem]:
    """A problem for each bad row; a key that several rows lack is one, at the first of them."""
    alike: dict[tuple[str, str], list[BadRow]] = {}
    for row in rows:
        alike.setdefault((row.reason, "" if row.kind.startswith(MISSING) else row.where), []).append(row)
    more = {key: f" (and {counted(len(found) - 1, 'more rows')} like it)" for key, found in alike.items()}
    return [
        Problem(found[0].reason + (more[key] if len(found) > 1 else ""), found[0].where) for key, found in alike.items()
    ]


class BlankLine(BadRow):
    """A line of plain text without text: it belongs to no row, and `predict` answers it with null."""

    __slots__ = ()


def is_bad(row: Any) -> bool:
    """Whether a row or example cannot be used, and is no blank line."""
    return isinstance(row, BadRow) and not isinstance(row, BlankLine)


class RowSource(Protocol):
    """Rows of one split; may be iterated again and again, in the same order."""

    @property
    def description(self) -> str:
        """For messages and the manifest."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """Local files that are read, in order."""
        ...

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The data set's own label names, in the order of its ids."""
        ...

    def __iter__(self) -> Iterator[Row | BadRow]: ...


def missing_key(values: Mapping[str, Any], required: Sequence[str]) -> str | None:
    """The reason why `values` lacks a required key, or None."""
    for name in required:
        if name not in values:
            return f"{MISSING} {name!r}: the keys are {listed_with_guess(values, name)}"
    return None


def group_name(value: Any) -> str | None:
    """What a cell says of the group of a row, however it is written: 7 and 7.0, José in one form of Unicode and the
    other, with blanks around it. None: it is empty, and the row is of no group that others are of."""
    if value is None or value != value:
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational) and float(value).is_integer():
        value = int(float(value))
    return unicodedata.normalize("NFC", str(value)).strip() or None
