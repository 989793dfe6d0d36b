"""A report as Markdown. Whatever users named (labels, files, columns) stays text in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nlpctl.report.html import Html
from nlpctl.report.model import BulletList, Code, Figure, KeyFigures, Part, Report, SideBySide, Table, format_value

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


class Markdown(str):
    """Text that is Markdown already; in a cell, any other text has its bars escaped."""

    __slots__ = ()


def plain(text: str) -> Markdown:
    """`text` on one line, with no sign that Markdown or HTML reads."""
    return Markdown(_SPECIAL.sub(r"\\\1", " ".join(text.split())))


def code(text: str) -> Markdown:
    """`text` as code in a line."""
    return Markdown(f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', '&#124;')}`")


def markdown_page(report: Report, *, aligned: bool = False, tight: bool = False) -> str:
    """The text of a Markdown file. Paragraphs are Markdown already; sections without parts are left out.

    `aligned`, `tight`: of its tables, as for `markdown_table`.
    """
    blocks = [f"# {report.title}", report.lead]
    for section in report.sections:
        parts = [block for part in section.parts if (block := _block(part, aligned, tight))]
        blocks += [f"## {section.title}" if section.title and parts else "", *parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _block(part: Part, aligned: bool, tight: bool) -> str:
    match part:
        case str() if not isinstance(part, Html):
            return part
        case Table():
            return markdown_table(part, aligned=aligned, tight=tight)
        case BulletList(items):
            return "\n".join(f"- {item}" for item in items)
        case Code(text, language):
            longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
            fence = "`" * max(3, longest + 1)  # or the text could end its block
            return f"{fence}{language}\n{text.rstrip()}\n{fence}"
        case KeyFigures() | Figure():  # drawings: what they show stands in the tables of the same report
            return ""
        case SideBySide(parts):
            return "\n\n".join(filter(None, (_block(each, aligned, tight) for each in parts)))
    raise TypeError(f"{type(part).__name__} has no form in Markdown")


def markdown_table(table: Table, *, aligned: bool = False, tight: bool = False) -> str:
    """The lines of a table. `aligned`: columns of numbers stand to the right; `tight`: no blanks in the rule."""
    lines = [_line(map(_cell, line)) for line in (table.columns, *table.rows)]
    rule = _line("---:" if aligned and numeric else "---" for numeric in table.numeric())
    return "\n".join([lines[0], rule.replace(" ", "") if tight else rule, *lines[1:]])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    text = format_value(value)
    if text is None or isinstance(text, Markdown):
        return text or ""
    return text.replace("|", "\\|")
