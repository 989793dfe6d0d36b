"""A report as one HTML file that needs nothing else: no scripts, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nlpctl
from nlpctl.errors import UserError
from nlpctl.outputs import is_stream, refuse_output
from nlpctl.report.html import STYLE, Html, element, joined
from nlpctl.report.language import HTML_CODES, language
from nlpctl.report.model import (
    BulletList,
    Code,
    Figure,
    Folded,
    KeyFigures,
    Part,
    Place,
    Report,
    SideBySide,
    Table,
    format_value,
)

WIDE = 8  # columns; a table of more may be wider than the text, as far as the window goes
SHORT = 20  # characters; a cell of no more is not worth a line break

_FOOTER = b"<footer>nlpctl "


def refuse_other_page(path: Path, hint: str) -> None:
    """UserError if `path` exists and is not a page that nlpctl wrote: only these are replaced without being told."""
    refuse_output(path, overwrite=True)
    if path.exists() and not is_stream(path) and _FOOTER not in path.read_bytes()[-200:]:
        raise UserError("this file was not written by nlpctl, and is not replaced", where=str(path), hint=hint)


def names_page(path: Path) -> bool:
    """Whether a page may be written to `path`: by its name, or since it is a device."""
    return path.suffix.lower() in (".html", ".htm") or is_stream(path)


def html_page(report: Report, refresh: int | None = None) -> str:
    """The text of the file. Sections without parts are left out.

    `refresh`: seconds after which a browser loads the page again.
    """
    sections = [section for section in report.sections if section.parts]
    links = [element("a", section.title, href=f"#s{number}") for number, section in enumerate(sections, 1)]
    nav = element("nav", *links) if len(links) > 1 else ""
    lead = element("p", report.lead) if report.lead else ""
    body = [element("header", element("h1", report.title), lead, nav)]
    for number, section in enumerate(sections, 1):
        content = [element("h2", section.title), *map(draw, section.parts)]
        body.append(Html("\n") + element("section", *content, id=f"s{number}"))
    body.append(element("footer", f"nlpctl {nlpctl.__version__}"))
    head = joined(
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        "" if refresh is None else element("meta", http_equiv="refresh", content=refresh),
        element("title", report.title),
        Html(f"<style>{STYLE}</style>"),
    )
    code = HTML_CODES[language()]
    return f'<!DOCTYPE html>\n<html lang="{code}"><head>{head}</head>\n<body>{joined(*body)}</body></html>\n'


def draw(part: Part) -> Html:
    """A part of a report as HTML."""
    match part:
        case Html():
            return part
        case str():
            return element("p", part) if part else Html("")
        case Table():
            return _table(part)
        case KeyFigures(values):
            tiles = [
                element("div", element("b", format_value(value)), element("span", name))
                for name, value in values.items()
            ]
            return element("div", *tiles, class_="figures")
        case Figure(svg, title):
            return element("h3", title) + svg if title else svg
        case BulletList(items):
            return element("ul", *[element("li", item) for item in items], class_="warnings") if items else Html("")
        case Code(text):
            return element("pre", text)
        case SideBySide(parts):
            return element("div", *[element("div", draw(each)) for each in parts], class_="row")
        case Folded(summary, parts):
            return element("details", element("summary", summary), *map(draw, parts))


def _table(table: Table) -> Html:
    classes = ["number" if numeric else None for numeric in table.numeric()]
    names = zip(table.columns, classes, strict=True)
    head = element("tr", *[element("th", name, class_=kind) for name, kind in names])
    body = [
        element("tr", *[_cell(value, kind) for value, kind in zip(row, classes, strict=True)]) for row in table.rows
    ]
    caption = element("caption", table.title) if table.title else ""
    drawn = element("table", caption, element("thead", head), element("tbody", *body))
    return element("div", drawn, class_="scroll wide" if len(table.columns) > WIDE else "scroll")


def _cell(value: Any, kind: str | None) -> Html:
    if isinstance(value, Place):
        value = element("span", value, class_="place")
    if kind is None and isinstance(value, str) and len(value) <= SHORT and not isinstance(value, Html):
        kind = "short"
    return element("td", format_value(value), class_=kind)
