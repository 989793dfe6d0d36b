"""Reads tables of text: lines -> records -> rows. Memory is constant.

csv           cells between commas, or semicolons as Excel writes them in many countries; may stand in quotes
quoted_tsv    cells between tabs that may stand in quotes, as pandas and Excel write them
tsv, joined   cells between tabs; a quotation mark is one of the text
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from nlpctl.data.readers.lines import MAX_LINE, decode, lone_returns
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import NAME_COLUMNS, BadRow, Row
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, listed

QUOTED_TSV = "quoted_tsv"
COMMA, SEMICOLON = ",", ";"
_LOOKED_AT = 20  # lines
_SEPARATOR_LINE = re.compile(r'"?sep=(?P<separator>[^"\r\n])"?\s*', re.IGNORECASE)  # Excel's; it shows no such line
# A cell of a table with tabs whose cells may stand in quotes, and the end of one that does.
_CELL = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")*)"|[^\t\n"]*)\r?(?:[\t\n]|$)')
_ENDS_CELL = re.compile(r'"[\t\r\n]')

csv.field_size_limit(max(MAX_LINE, csv.field_size_limit()))  # 128 KiB by default


class Record(NamedTuple):
    """The cells of a row. `line`: its first line; `reason`: why they cannot be used."""

    line: int
    cells: list[str]
    reason: str | None
    last: int = 0  # its last line that is not blank, of broken csv


def read_table(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """Rows of tsv, csv or quoted_tsv. The columns that are expected tell what separates the cells of csv."""
    records = table_records(lines, request.format, request.header, request.expected)
    return table_rows(records, source, request.header, request.required)


def table_records(
    lines: Iterable[tuple[int, bytes]], kind: str, header: bool, required: Sequence[str]
) -> Iterator[Record]:
    """The records of a table of the format `kind`. `required`: columns that tell what separates the cells of csv."""
    if kind == QUOTED_TSV:
        return csv_records(lines, "\t")
    if kind == "csv":
        lines, separator = separated(lines, header, required)
        return csv_records(lines, separator)
    return tsv_records(lines)


def separated(
    lines: Iterable[tuple[int, bytes]], header: bool, required: Sequence[str] = ()
) -> tuple[Iterator[tuple[int, bytes]], str]:
    """The lines of csv, and what separates the cells: what a first line sep=; says, which is taken away; a semicolon
    where commas give one column, not the `required` ones, and semicolons several; else a comma. Where `required` does
    not tell, a semicolon before a blank is one of a sentence. Without a header both may stand in the first line: then
    a semicolon if semicolons alone give as many cells on the next lines."""
    lines = iter(lines)
    blank: list[tuple[int, bytes]] = []
    for number, raw in lines:
        text = raw.decode("utf-8", "replace")
        if not text.strip():
            blank.append((number, raw))
            continue
        if (said := _SEPARATOR_LINE.fullmatch(text)) is not None:
            return lines, said["separator"]
        begun = [(number, raw)]
        if not header and COMMA in text and SEMICOLON in text:
            begun += islice(lines, _LOOKED_AT)
        texts = [each.decode("utf-8", "replace") for _, each in begun]
        return chain(blank, begun, lines), _separator_of(texts, header, required)
    return iter(blank), COMMA


def in_quotes(beginning: str) -> bool:
    """Whether a table with tabs, of which this is the beginning, was written with cells in quotes: only such cells hold
    quotation marks, doubled ones, and one at least needs them."""
    position, needed = 0, False
    while position < len(beginning):
        cell = _CELL.match(beginning, position)
        if cell is None:  # an unquoted mark, or a cell that is cut off here
            return needed and _ENDS_CELL.search(beginning, position + 1) is None
        quoted = cell["quoted"]
        needed = needed or (quoted is not None and any(sign in quoted for sign in ('""', "\t", "\n")))
        position = cell.end()
    return needed


def stands_in_quotes(cell: object) -> bool:
    """Whether a cell looks as if it was written in quotes."""
    if not isinstance(cell, str) or len(cell) < 2 or not cell[0] == cell[-1] == '"':
        return False
    return '"' not in cell[1:-1].replace('""', "")


def says_separator(line: bytes) -> bool:
    """Whether this line says what separates the cells of csv."""
    return _SEPARATOR_LINE.fullmatch(line.decode("utf-8", "replace")) is not None


def _separator_of(texts: Sequence[str], header: bool, required: Sequence[str]) -> str:
    columns, widths = {}, {}
    for separator in (COMMA, SEMICOLON):
        try:
            cells, *more = [cells for cells in csv.reader(texts, delimiter=separator) if cells]
        except csv.Error:  # too long
            return COMMA
        if len(texts) > _LOOKED_AT:
            del more[-1:]  # it may go on
        widths[separator] = {len(cells), *map(len, more)}
        columns[separator] = cells if header else list(map(str, range(len(cells))))
    if len(columns[SEMICOLON]) == 1:
        return COMMA
    if len(columns[COMMA]) > 1:
        return SEMICOLON if len(widths[SEMICOLON]) == 1 < len(widths[COMMA]) else COMMA
    known = {name for name in required if header or name.isdigit()}  # without a header the columns are "0", "1", ...
    sentence = known <= set(columns[COMMA]) if known else any(cell[:1].isspace() for cell in cells)
    return COMMA if sentence else SEMICOLON


def tsv_records(lines: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    """tsv has no quoting: a tab always ends a cell."""
    for number, raw in lines:
        if raw:
            text, reason = decode(raw)
            yield Record(number, text.split("\t"), reason)


def csv_records(lines: Iterable[tuple[int, bytes]], separator: str = COMMA) -> Iterator[Record]:
    """Records of RFC 4180. `line` is the first line of a record, since a quoted cell may span several lines.

    `lines` have their carriage returns: a line end inside of a quoted cell belongs to its text.
    """
    number = start = filled = 0
    trouble: str | None = None

    def feed() -> Iterator[str]:
        nonlocal number, start, filled, trouble
        for number, raw in lines:
            start = start or number
            filled = number if raw.strip() else filled
            text, reason = decode(raw)
            # The csv module pulls several lines for one record, so a bad line is noted and blamed on its record.
            if reason is not None and trouble is None:
                trouble = reason if number == start else f"{reason.removesuffix('the line')}line {number}"
            # The module needs line ends to keep those inside quoted cells.
            yield text + "\n"

    reader = csv.reader(feed(), strict=True, delimiter=separator)
    while True:
        start, trouble = 0, None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # strict=True raises here; the reader stays usable and goes on with the next line.
            reason = None if filled > start else trouble
            yield Record(start, [], reason or f"broken csv: {_csv_reason(error)}", filled)
            continue
        # A blank line is an empty record for the module, and no row for us.
        if cells:
            yield Record(start, cells, trouble)


def _csv_reason(error: csv.Error) -> str:
    """The csv module's words, with the likely cause."""
    if str(error).startswith("new-line character"):  # its hint is for those who open files in Python
        return "a carriage return outside quotation marks"
    return f"{error}; is a quotation mark left open, or not doubled inside quotes?"


def table_rows(records: Iterable[Record], source: str, header: bool, required: Sequence[str]) -> Iterator[Row | BadRow]:
    """Rows with named cells: by the header if `header`, else "0", "1", ... The first record sets their number."""
    names: list[str] | None = None
    first_line = 0
    for record in records:
        if names is None and header:
            names, first_line = _header_names(record, source, required), record.line
            continue
        if record.reason is not None:
            _refuse_lost_lines(record, source)
            yield BadRow(source, record.line, record.reason)
            continue
        if names is None:
            names, first_line = [str(i) for i in range(len(record.cells))], record.line
            _check_columns(names, f"{source}:{record.line}", required, header)
        if len(record.cells) != len(names):
            detail = f"expected {len(names)} as on line {first_line}, got {len(record.cells)}"
            detail += lone_returns("".join(record.cells))
            yield BadRow(source, record.line, f"wrong column count: {detail}")
            continue
        yield Row(source, record.line, dict(zip(names, record.cells, strict=True)))


def _refuse_lost_lines(record: Record, source: str) -> None:
    """UserError for broken csv of several lines: without the quotation mark most of them would be good rows."""
    if record.last > record.line:
        message = f"{record.reason} It takes the lines {record.line:,} to {record.last:,}, so it is never skipped"
        hint = 'close the quotation mark, or write it twice inside a cell that is in quotation marks: "12 "" screen"'
        raise UserError(message, where=f"{source}:{record.line}", hint=hint)


def _header_names(record: Record, source: str, required: Sequence[str]) -> list[str]:
    where = f"{source}:{record.line}"
    if record.reason is not None:
        raise UserError(f"the header line cannot be read: {record.reason}", where=where, hint="save the file as UTF-8")
    _check_columns(record.cells, where, required, header=True)
    return record.cells


def _check_columns(names: Sequence[str], where: str, required: Sequence[str], header: bool) -> None:
    for name in required:
        if name not in names:
            hint = NAME_COLUMNS
            if len(names) == 1 and name in names[0].split(","):
                hint = "the columns are separated by commas: name the file .csv, or add @[data.format=csv]"
            elif len(names) == 1 and name in names[0].split("\t"):
                hint = "the columns are separated by tabs: name the file .tsv, or add @[data.format=tsv]"
            elif f'"{name}"' in names:
                hint = "the cells stand in quotation marks: add @[data.format=quoted_tsv]"
            elif header:
                hint += '; if the file has no header line, add @[data.header=false] and use "0", "1", ...'
            elif not name.isdigit():
                hint = 'with data.header: false the columns are named "0", "1", ...; or add @[data.header=true]'
            guess = did_you_mean(name, names)
            raise UserError(f"no column {name!r}{guess}; the columns are {listed(names)}", where=where, hint=hint)
    # Of two columns of a name one would be lost, also where it is only carried over to the answers.
    twice = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if twice:
        raise UserError(f"column {twice[0]!r} occurs twice in the header", where=where, hint="rename one of them")
