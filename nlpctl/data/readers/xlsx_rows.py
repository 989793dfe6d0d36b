"""Reads Excel files (.xlsx) into rows: the first sheet that is not empty, as a table of texts.

A cell is what csv would hold: a number as Excel's file has it, a date by ISO 8601, TRUE or FALSE, "" where it is empty.
The row number is the one that Excel shows.
"""

from __future__ import annotations

import datetime
import functools
import io
import os
import warnings
import zipfile
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

from nlpctl import console
from nlpctl.console import display
from nlpctl.data.readers.lines import MAX_DOCUMENT
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.readers.tables import Record, table_rows
from nlpctl.errors import UserError
from nlpctl.files import MOST_PACKED
from nlpctl.formats.bounds import PACKINGS
from nlpctl.names import listed

_MOST_ROWS = 1 << 20  # of a sheet, by Excel; a file may claim any number
_MOST_GROWTH = 24  # XML of tables becomes some ten times as large
_FREE_CELLS = 4_000_000  # that a file may have besides; in XML a cell takes 10 bytes at least, but an empty one none


def xlsx_rows(stream: BinaryIO, source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """UserError: the file is damaged or too large, or a column is missing."""
    raw = stream.read(MAX_DOCUMENT + 1)
    if not raw:
        return
    try:
        unpacked = _refuse_growth(raw)
        yield from table_rows(_records(raw, source, _FREE_CELLS + unpacked), source, request.header, request.required)
    except UserError:
        raise
    except Exception as error:  # openpyxl lets through whatever its parts raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        hint = "open and save it again in Excel, or save the sheet as csv"
        raise UserError(f"this Excel file cannot be read: {reason}", source, hint) from None


def _refuse_growth(raw: bytes) -> int:
    """The bytes of all parts. ValueError: they are much more than the size of the file says. zipfile hands out no more
    than an archive claims."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        entries = archive.infolist()
    claimed = sum(entry.file_size for entry in entries)
    if claimed > min(MOST_PACKED + _MOST_GROWTH * len(raw), MAX_DOCUMENT):
        raise ValueError(f"its parts claim {claimed:,} bytes, and the file has {len(raw):,}")
    if any(entry.compress_type not in PACKINGS for entry in entries):
        raise ValueError("it is packed in another way than deflate")
    return claimed


def _records(raw: bytes, source: str, most_cells: int) -> Iterator[Record]:
    """The rows of the first sheet that has any. UserError: they have more than `most_cells`, with the empty ones."""
    from openpyxl import load_workbook  # late: it takes a while, and imports NumPy

    # Of what it leaves out, such as lists to choose from: nothing that is read here.
    warnings.filterwarnings("ignore", category=UserWarning, module="openpyxl")
    book = load_workbook(io.BytesIO(raw), read_only=True, data_only=True, keep_links=False)
    try:
        for number, sheet in enumerate(book.worksheets):
            sheet.reset_dimensions()  # which a file may state wrongly
            rows = _rows(sheet, source, most_cells)
            first = next(rows, None)
            if first is not None:
                others = [other.title for other in book.worksheets[number + 1 :]]
                if others:
                    file = display(source) if os.path.isfile(source) else source  # one note, however it is named
                    _tell(file, sheet.title, tuple(others))
                yield from chain([first], rows)
                return
    finally:
        book.close()


def _rows(sheet: Any, source: str, most_cells: int) -> Iterator[Record]:
    """The rows that are not empty; all as wide as the first, or wider if they have more cells that are not empty."""
    width = seen = 0
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > _MOST_ROWS:
            raise UserError(f"the sheet has more than {_MOST_ROWS:,} rows", source, "cut it into several files")
        seen += len(values)
        if seen > most_cells:  # a cell at the end of a row makes it 16,384 wide
            message = "its rows are far wider than what stands in them"
            raise UserError(message, f"{source}:{number}", "delete the columns behind the table, and save it again")
        end = len(values)
        while end and values[end - 1] is None:
            end -= 1
        cells = [_text(value) for value in values[:end]]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            width = width or len(cells)
            seen += width
            yield Record(number, cells + [""] * (width - len(cells)), None)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _unescaped(value) if "_x" in value else value
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _unescaped(value: str) -> str:
    from openpyxl.utils.escape import unescape  # late, as above

    return unescape(value)  # _x000D_ is a carriage return


@functools.cache
def _tell(source: str, sheet: str, others: tuple[str, ...]) -> None:
    """Once, however often the file is read."""
    console.note(f"{source}: of its sheets {sheet!r} is read; not read: {listed(others)}")
