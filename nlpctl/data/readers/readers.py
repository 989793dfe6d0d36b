"""Reads local files into rows. Every row, good or bad, knows its file and line.

config/input_formats.py names the reader of each format. Memory is constant, but for formats that are read whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.config.tasks import load
from nlpctl.data.readers.annotated import AnnotatedTask
from nlpctl.data.readers.annotation_rows import table_format
from nlpctl.data.readers.lines import MAX_DOCUMENT, numbered_lines
from nlpctl.data.readers.packed import open_unpacked, suffix_of
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.errors import UserError


def file_format(path: Path, declared: str, endings: Mapping[str, str]) -> str:
    """The format `declared`, or by the file's ending if that is "auto". `endings`: the task's map of ending -> format.

    UserError: the ending is unknown.
    """
    if declared != "auto":
        return declared
    suffix = suffix_of(path)
    if suffix not in endings:
        raise UserError(
            f"cannot tell the format of {path.name!r} by its ending; known endings: {', '.join(endings)}",
            where=str(path),
            hint=f"rename the file, or set data.format to one of {', '.join(sorted(set(endings.values())))}",
        )
    return endings[suffix]


def read_rows(
    path: Path, kind: str, header: bool, required: Sequence[str], task: AnnotatedTask | None = None
) -> Iterator[Row | BadRow]:
    """Rows of one file of the format `kind`, in file order. UserError: the file as a whole cannot be used.

    `header`, `required`, `task`: as in a ReadRequest.
    """
    try:
        with open_unpacked(path) as stream:
            yield from parse_rows(stream, str(path), kind, header, required, task)
    except OSError as error:
        message = f"cannot read the file: {error.strerror or error}"
        raise UserError(message, where=str(path), hint="check the path and its rights") from None


def parse_rows(
    stream: BinaryIO, source: str, kind: str, header: bool, required: Sequence[str], task: AnnotatedTask | None = None
) -> Iterator[Row | BadRow]:
    """Like `read_rows`, from an open binary stream such as standard input; `source` is its name in messages."""
    content: Any = stream if INPUT_FORMATS[kind].binary else file_lines(stream, source, kind)
    empty = True
    for row in reader_rows(content, source, ReadRequest(kind, header, required, task)):
        empty = False
        yield row
    if empty:
        raise no_rows(source, after_header(kind, header))


def file_lines(stream: Any, source: str, kind: str, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """`numbered_lines` with the limit of the format `kind`, with carriage returns where a cell may hold them; `stream`
    begins at line `first`."""
    format = INPUT_FORMATS[kind]
    if format.whole:
        table = format.annotator is not None and table_format(Path(source)) is not None
        hint = "cut the document into several, or write jsonl"
        return numbered_lines(stream, source, MAX_DOCUMENT, hint, keep_returns=table)
    return numbered_lines(stream, source, first=first, keep_returns=format.in_quotes)


def reader_rows(
    content: BinaryIO | Iterable[tuple[int, bytes]], source: str, request: ReadRequest
) -> Iterator[Row | BadRow]:
    """Rows of the numbered lines of a file, or of the stream of a binary format; there may be none."""
    rows: Iterator[Row | BadRow] = load(INPUT_FORMATS[request.format].reader)(content, source, request)
    return rows


def after_header(kind: str, header: bool) -> str:
    """Where a file without rows has none, for `no_rows`."""
    return " after the header line" if header and INPUT_FORMATS[kind].columns == "header" else ""


def no_rows(source: str, after: str = "") -> UserError:
    """The error for an input without a single row."""
    with contextlib.suppress(OSError, ValueError):  # not the name of a file
        if not Path(source).stat().st_size:
            after = ": it is empty"
    return UserError(f"the file holds no rows{after}", where=source, hint="give a file with data in it")
