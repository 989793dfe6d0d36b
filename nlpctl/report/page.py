"""A page: a heading, a few figures, sections of tables, plots and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nlpctl
from nlpctl.errors import UserError
from nlpctl.outputs import is_stream, refuse_output
from nlpctl.report.html import STYLE, Html, element, joined

WIDE = 8  # columns; a table of more may be wider than the text, as far as the window goes


class Number(str):
    """A formatted number for a table, shown as it is."""

    __slots__ = ()


@dataclass(frozen=True)
class Section:
    """A part of a page; every part is Html or a text, which becomes a paragraph."""

    title: str
    parts: Sequence[str]


_FOOTER = b"<footer>nlpctl "


def refuse_other_page(path: Path, hint: str) -> None:
    """UserError if `path` exists and is not a page that nlpctl wrote: only these are replaced without being told."""
    refuse_output(path, overwrite=True)
    if path.exists() and not is_stream(path) and _FOOTER not in path.read_bytes()[-200:]:
        raise UserError("this file was not written by nlpctl, and is not replaced", where=str(path), hint=hint)


def page(title: str, lead: str, sections: Sequence[Section], refresh: int | None = None) -> str:
    """The text of one HTML file that needs nothing else. Sections without parts are left out.

    `refresh`: seconds after which a browser loads the page again.
    """
    shown = [section for section in sections if section.parts]
    links = [element("a", section.title, href=f"#s{number}") for number, section in enumerate(shown, 1)]
    body = joined(
        element("header", element("h1", title), paragraph(lead), element("nav", *links) if len(links) > 1 else ""),
        *[_section(section, number) for number, section in enumerate(shown, 1)],
        element("footer", f"nlpctl {nlpctl.__version__}"),
    )
    head = joined(
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        "" if refresh is None else element("meta", http_equiv="refresh", content=refresh),
        element("title", title),
        Html(f"<style>{STYLE}</style>"),
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _section(section: Section, number: int) -> Html:
    parts = [part if isinstance(part, Html) else paragraph(part) for part in section.parts]
    return Html("\n") + element("section", element("h2", section.title), *parts, id=f"s{number}")


def paragraph(text: str) -> Html:
    """A paragraph; "" gives nothing."""
    return element("p", text) if text else Html("")


def figures(values: Mapping[str, Any]) -> Html:
    """The most important numbers, side by side: what -> value."""
    tiles = [element("div", element("b", shown(value)), element("span", name)) for name, value in values.items()]
    return element("div", *tiles, class_="figures")


def warnings(messages: Sequence[str]) -> Html:
    """A list of warnings; nothing if there are none."""
    if not messages:
        return Html("")
    return element("ul", *[element("li", message) for message in messages], class_="warnings")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> Html:
    """A table; columns of numbers (or nothing) stand to the right. Cells may be Html."""
    right = [
        any(_is_number(row[i]) for row in rows) and all(_is_number(row[i]) or row[i] is None for row in rows)
        for i in range(len(columns))
    ]
    classes = ["number" if is_right else None for is_right in right]
    head = element("tr", *[element("th", name, class_=kind) for name, kind in zip(columns, classes, strict=True)])
    body = [
        element(
            "tr",
            *[element("td", shown(cell), class_=kind or _short(cell)) for cell, kind in zip(row, classes, strict=True)],
        )
        for row in rows
    ]
    told = element("caption", caption) if caption else ""
    frame = "scroll wide" if len(columns) > WIDE else "scroll"
    return element("div", element("table", told, element("thead", head), element("tbody", *body)), class_=frame)


def code(text: str) -> Html:
    """Text with its line ends and blanks, such as a recipe."""
    return element("pre", text)


def folded(summary: str, *parts: Html) -> Html:
    """Parts that are shown on a click."""
    return element("details", element("summary", summary), *parts)


def place(where: str) -> Html:
    """file:line, or a name of a parameter: in letters of one width, on one line."""
    return element("span", where, class_="place")


def side_by_side(*parts: Html) -> Html:
    """Plots or tables next to each other, as far as there is room."""
    return element("div", *[element("div", part) for part in parts], class_="row")


def shown(value: Any) -> Any:
    """A cell's value as people read it: 12,345 and 0.1235; anything else as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 1000 else f"{value:,.0f}"
    return value


def percent(share: float) -> str:
    """A share as 12.3 %; one that is not nothing never shows as 0."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %")


def _short(cell: Any) -> str | None:
    """The class of a cell that is not worth a line break."""
    return "short" if isinstance(cell, str) and len(cell) <= 20 and not isinstance(cell, Html) else None


def _is_number(value: Any) -> bool:
    """Numbers, and texts that stand for one."""
    if isinstance(value, str):
        return isinstance(value, Number) or (value.endswith(" %") and not isinstance(value, Html))
    return isinstance(value, int | float) and not isinstance(value, bool)
