"""Reads local files into rows. Every row, good or bad, knows its file and line.

All formats but those of DOCUMENTS are read in constant memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from nlpctl.data.readers.annotation_rows import (
    ANNOTATED,
    AnnotatedTask,
    OnlyAnnotated,
    annotation_rows,
    table_format,
)
from nlpctl.data.readers.conll import conll_rows, joined_rows
from nlpctl.data.readers.json_rows import json_rows, jsonl_rows, squad_rows
from nlpctl.data.readers.lines import MAX_DOCUMENT, decode, is_blank, numbered_lines
from nlpctl.data.readers.packed import open_unpacked, suffix_of
from nlpctl.data.readers.row import BadRow, BlankLine, Row
from nlpctl.data.readers.segmented import SEGMENTED, segmented_rows
from nlpctl.data.readers.tables import QUOTED, QUOTED_TSV, table_records, table_rows
from nlpctl.data.readers.xlsx_rows import XLSX, xlsx_rows
from nlpctl.errors import UserError

OBJECTS = ("jsonl", "json")  # formats whose rows are objects, not lines of a table
DELIMITED = ("tsv", "csv", QUOTED_TSV, "joined", XLSX)  # formats with one set of columns for all rows
DOCUMENTS = ("json", "squad", XLSX, *ANNOTATED)  # formats of which a file is one text, read as a whole


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

    `task`: makes columns of the records of ANNOTATED formats; None: they have their texts alone.
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
    empty = True
    rows: Iterator[Row | BadRow]
    if kind == XLSX:
        rows = xlsx_rows(stream, source, header, required)
    else:
        rows = parse_lines(file_lines(stream, source, kind), source, kind, header, required, task)
    for row in rows:
        empty = False
        yield row
    if empty:
        raise no_rows(source, after_header(kind, header))


def file_lines(stream: BinaryIO, source: str, kind: str, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """`numbered_lines` with the limit of the format `kind`, with carriage returns where a cell may hold them; `stream`
    begins at line `first`."""
    if kind in DOCUMENTS:
        table = kind in ANNOTATED and table_format(Path(source)) is not None
        hint = "cut the document into several, or write jsonl"
        return numbered_lines(stream, source, MAX_DOCUMENT, hint, keep_returns=table)
    return numbered_lines(stream, source, first=first, keep_returns=kind in QUOTED)


def parse_lines(
    lines: Iterator[tuple[int, bytes]],
    source: str,
    kind: str,
    header: bool,
    required: Sequence[str],
    task: AnnotatedTask | None = None,
) -> Iterator[Row | BadRow]:
    """Rows of the numbered lines of a file; there may be none."""
    if kind == "jsonl":
        return jsonl_rows(lines, source, required)
    if kind == "json":
        return json_rows(lines, source, required)
    if kind == "squad":
        return squad_rows(lines, source, required)
    if kind in ANNOTATED:
        return annotation_rows(lines, source, kind, required, task)
    if kind == "text":
        # Blank lines part the documents of a corpus.
        return (row for row in plain_rows(lines, source, required[0]) if not isinstance(row, BlankLine))
    if kind == "conll":
        return conll_rows(lines, source, required)
    if kind == SEGMENTED:
        return segmented_rows(lines, source, required)
    if kind == "joined":
        return joined_rows(lines, source, header, required)
    # Rows that data.map is to change need no column, but those of the recipe tell what separates the cells.
    columns = required or (() if task is None else task.required(labelled=isinstance(task, OnlyAnnotated)))
    return table_rows(table_records(lines, kind, header, columns), source, header, required)


def after_header(kind: str, header: bool) -> str:
    """Where a file without rows has none, for `no_rows`."""
    return " after the header line" if header and kind in DELIMITED else ""


def no_rows(source: str, after: str = "") -> UserError:
    """The error for an input without a single row."""
    with contextlib.suppress(OSError, ValueError):  # not the name of a file
        if not Path(source).stat().st_size:
            after = ": it is empty"
    return UserError(f"the file holds no rows{after}", where=source, hint="give a file with data in it")


def plain_rows(lines: Iterable[tuple[int, bytes]], source: str, column: str) -> Iterator[Row | BadRow]:
    """A text per line, under the name `column`."""
    for number, raw in lines:
        text, reason = decode(raw)
        if reason is None and is_blank(text):
            yield BlankLine(source, number, "blank text")
        else:
            yield Row(source, number, {column: text}) if reason is None else BadRow(source, number, reason)
