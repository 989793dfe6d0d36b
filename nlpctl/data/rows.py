"""Local files to rows: tsv, csv, jsonl, json. Every row knows its file and line, also the bad ones.

All formats but json are read in constant memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from nlpctl.config.schema import DataSection
from nlpctl.data.json_rows import json_rows, jsonl_rows
from nlpctl.data.lines import numbered_lines
from nlpctl.data.row import BadRow, Row
from nlpctl.data.tables import csv_records, table_rows, tsv_records
from nlpctl.errors import UserError

__all__ = ["BadRow", "FORMATS", "Row", "file_format", "parse_rows", "read_rows", "wanted_columns"]

FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "json"}


def wanted_columns(data: DataSection, want_labels: bool) -> tuple[str, ...]:
    """The columns that a row must have: text, the pair where there is one, the label where it is wanted."""
    columns = [data.columns.text]
    if data.columns.text_pair is not None:
        columns.append(data.columns.text_pair)
    if want_labels:
        columns.append(data.columns.label)
    return tuple(columns)


def file_format(path: Path, declared: str) -> str:
    """`declared`, or by the file's ending where that is "auto"."""
    if declared != "auto":
        return declared
    if path.suffix.lower() not in FORMATS:
        raise UserError(
            f"cannot tell the format of {path.name!r} by its ending; known endings: {', '.join(FORMATS)}",
            where=str(path),
            hint="rename the file, or set data.format to tsv, csv, jsonl or json",
        )
    return FORMATS[path.suffix.lower()]


def read_rows(path: Path, data: DataSection, required: Sequence[str]) -> Iterator[Row | BadRow]:
    """Rows of one file in file order. UserError: the file as a whole cannot be used."""
    kind = file_format(path, data.format)
    try:
        with open(path, "rb") as stream:
            yield from parse_rows(stream, str(path), kind, data.header, required)
    except OSError as error:
        message = f"cannot read the file: {error.strerror or error}"
        raise UserError(message, where=str(path), hint="check the path and its rights") from None


def parse_rows(
    stream: BinaryIO, source: str, kind: str, header: bool, required: Sequence[str]
) -> Iterator[Row | BadRow]:
    """Like `read_rows`, from an open binary stream such as standard input; `source` is its name in messages."""
    lines = numbered_lines(stream, source)
    if kind == "jsonl":
        rows = jsonl_rows(lines, source, required)
    elif kind == "json":
        rows = json_rows(lines, source, required)
    else:
        records = csv_records(lines) if kind == "csv" else tsv_records(lines)
        rows = table_rows(records, source, header, required)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        after = " after the header line" if header and kind in ("tsv", "csv") else ""
        raise no_rows(source, after)


def no_rows(source: str, after: str = "") -> UserError:
    """The error for an input without a single row."""
    return UserError(f"the file holds no rows{after}", where=source, hint="give a file with data in it")
