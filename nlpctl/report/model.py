"""What a report is made of: sections of tables, figures and texts, as values.

    Report("Sweep s", lead, [Section("Best", [KeyFigures({...}), Table(columns, rows), Figure(bars(...))])])

page.py draws it as one HTML file, markdown.py as Markdown, text.py its tables on a terminal or in a pipe. What a
command gives as JSON is its result by names, and no table: nlpctl.console.json_ready prepares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nlpctl.report.html import Html
from nlpctl.report.language import say

MB = 1 << 20  # bytes, in all tables


class Number(str):
    """A formatted number as a cell. Its column stands to the right."""

    __slots__ = ()


class Place(str):
    """file:line, or the name of a parameter, as a cell. It is never broken into two lines."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns. A cell is None, a value, or text; a renderer formats numbers.

    A text that is in the form of a renderer already (`html.Html`, `markdown.Markdown`) is for that renderer alone.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    def numeric(self) -> list[bool]:
        """For each column whether it holds numbers, so that it stands to the right: at least one, and no text."""
        cells = [[row[i] for row in self.rows if row[i] is not None] for i in range(len(self.columns))]
        return [bool(column) and all(map(_is_number, column)) for column in cells]


@dataclass(frozen=True)
class KeyFigures:
    """The most important numbers, side by side: what -> value."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A plot of plots.py, under its title."""

    svg: Html
    title: str = ""


@dataclass(frozen=True)
class BulletList:
    """Remarks, each of one line, such as warnings. An empty list draws nothing."""

    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Text with its line ends and blanks, such as a recipe."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class SideBySide:
    """Parts next to each other, as far as there is room."""

    parts: Sequence[Part]


@dataclass(frozen=True)
class Folded:
    """Parts that a page shows on a click."""

    summary: str
    parts: Sequence[Part]


# A text is a paragraph; Html is anything else, such as a form or a marked text. A page holds all of
# these, Markdown texts, tables, lists and code, and standard output tables alone.
Part = str | Html | Table | KeyFigures | Figure | BulletList | Code | SideBySide | Folded


@dataclass(frozen=True)
class Section:
    """A part of a report. Without parts it is left out, its title too."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Report:
    """A whole report; `lead` is the sentence under its title."""

    title: str
    lead: str
    sections: Sequence[Section]


def format_value(value: Any) -> Any:
    """A cell as people read it in a page or in Markdown: 12,345 and 0.1235; a text, or None, as it is."""
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 1000 else f"{value:,.0f}"
    return value


def format_moment(stored: str | None) -> str | None:
    """A time in ISO format, such as those of a manifest in UTC, as the clock of this machine: 2026-11-27 15:04."""
    return stored and f"{datetime.fromisoformat(stored).astimezone():%Y-%m-%d %H:%M}"


def format_times(times: float) -> str:
    """A multiple: 0.06, 2.41, 13.6."""
    return f"{times:.1f}" if times >= 10 else f"{times:.2f}"


def format_ms(value: float) -> str:
    """Milliseconds in three significant digits: 0.0412, 9.31, 128."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share as 12.3 %; one that is not nothing never shows as 0."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %")


def _is_number(value: Any) -> bool:
    """Numbers, and texts that stand for one."""
    if isinstance(value, str):
        return isinstance(value, Number) or (value.endswith(" %") and not isinstance(value, Html | Place))
    return isinstance(value, int | float) and not isinstance(value, bool)
