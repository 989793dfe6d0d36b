"""Reads plain text: a text per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nlpctl.data.readers.lines import decode, is_blank
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, BlankLine, Row


def plain_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """A row per line, its text under the first of the required columns. A blank line, which parts the documents of a
    corpus, is none, but for a request of blank lines: `predict` answers it with null."""
    column = request.required[0]
    for number, raw in lines:
        text, reason = decode(raw)
        if reason is not None:
            yield BadRow(source, number, reason)
        elif not is_blank(text):
            yield Row(source, number, {column: text})
        elif request.blank_lines:
            yield BlankLine(source, number, "blank text")
