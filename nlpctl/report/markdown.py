"""Markdown in which whatever users named stays text: labels, files, columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nlpctl.report.page import shown

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def plain(text: str) -> str:
    """`text` on one line, with no sign that Markdown or HTML reads."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """`text` as code in a line."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', '&#124;')}`"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; cells are Markdown already, numbers are shown as pages show them."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return "" if value is None else str(shown(value))


def fenced(language: str, text: str) -> str:
    """A block of code, in a fence that is longer than any in `text`."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
