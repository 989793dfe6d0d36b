"""Rows of files in which people annotated texts: Label Studio's, doccano's, CLUENER's, and spans as objects."""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from nlpctl import console
from nlpctl.data.readers import cluener, doccano, label_studio, spans
from nlpctl.data.readers.annotated import Annotated, NotAnnotated
from nlpctl.data.readers.json_rows import (
    element_at,
    json_bytes,
    json_errors_as_user_errors,
    json_rows,
    jsonl_rows,
    object_row,
    whole_document,
)
from nlpctl.data.readers.lines import MAX_DOCUMENT, numbered_lines
from nlpctl.data.readers.packed import open_unpacked, suffix_of
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import NAME_COLUMNS, BadRow, Row, missing_key, place
from nlpctl.data.readers.tables import QUOTED_TSV, table_records, table_rows
from nlpctl.errors import UserError
from nlpctl.layout import JSON_LINES
from nlpctl.names import counted

LABEL_STUDIO, DOCCANO, CLUENER, SPANS = "label_studio", "doccano", "cluener", "spans"
_RECORDS: Mapping[str, Callable[[Mapping[str, Any]], Annotated]] = {
    LABEL_STUDIO: label_studio.annotated,
    DOCCANO: doccano.annotated,
    CLUENER: cluener.annotated,
    SPANS: spans.annotated,
}
_BEGINNING = 1 << 20  # bytes of a file that tell what wrote it
_BLANKS = re.compile(r"\s*")
_LOOKED_AT = 500  # records; the first may have no label
_PLACES = 10  # of what is left out are told


def annotation_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """The rows of a file. What nobody gave a label is left out where labels are required.

    Without a task: the texts alone. UserError: nothing is annotated.
    """
    required, task = request.required, request.task
    texts = [name for name in required if task is not None and name in task.required(labelled=False)]
    answers = {*required} - {*texts} if texts else set()  # spans become columns of their own
    read_record = _RECORDS[request.format]
    kept, left_out, unanswered, answered, unread = 0, [], None, False, 0
    for row in record_rows(lines, source):
        if isinstance(row, Row):
            try:
                record = read_record(row.values)
                unread += record.left_out
                row = row._replace(values=record.values if task is None else task.from_annotation(record))
                if record.plain and record.labelled and not answered:
                    answered = not answers.isdisjoint((*record.values, *(name for name, _ in record.choices)))
                    unanswered = unanswered or (row.line, record)
                reason = missing_key(row.values, required)
                if reason is not None and not (record.choices or record.marks or missing_key(row.values, texts)):
                    raise NotAnnotated
                row = row if reason is None else BadRow(row.source, row.line, reason)
            except NotAnnotated:
                left_out.append(row.line)
                continue
            except ValueError as error:
                row = BadRow(row.source, row.line, str(error))
        kept += 1
        yield row
    if answers and unanswered is not None and not answered:  # in JSON_MIN the question that the recipe asks for is none
        line, record = unanswered
        asked = dict.fromkeys((*record.values, *(name for name, _ in record.choices)))
        raise UserError(missing_key(asked, sorted(answers)) or "", place(source, line), NAME_COLUMNS)
    if left_out and not kept:
        hint = "annotate it, and export it again; rows without labels are for predict and data next"
        raise UserError(f"none of {len(left_out):,} texts is annotated", where=source, hint=hint)
    if left_out:
        _tell(source, len(left_out), tuple(left_out[:_PLACES]))
    if unread:
        _tell_unread(source, unread)


@functools.cache
def _tell(source: str, left_out: int, first: Sequence[int | str]) -> None:
    """Once, however often the file is read."""
    places = ", ".join(place(source, line) if number == 0 else str(line) for number, line in enumerate(first))
    more = "" if left_out == len(first) else f" and {left_out - len(first):,} more"
    console.note(f"{counted(left_out, 'texts')} without annotation left out: {places}{more}")


@functools.cache
def _tell_unread(source: str, count: int) -> None:
    """Once, as above."""
    console.note(f"{source}: relations, comments and answers of other kinds are not read ({count:,})")


def record_rows(lines: Iterable[tuple[int, bytes]], source: str) -> Iterator[Row | BadRow]:
    """The objects of a file as they stand there: of an array, of lines, or one after the other.

    Those of an array are called by their place, [0] and so on, since exports stand on one line. A table, which Label
    Studio writes too, holds JSON in its cells.
    """
    lines = iter(lines)
    first = next((line for line in lines if line[1].strip()), None)
    if first is None:
        return
    shape = _record_shape(first[1], source)
    lines = chain([first], lines)
    if (kind := table_format(Path(source))) is not None:
        for row in table_rows(table_records(lines, kind, True, ()), source, True, ()):
            yield _parse_cells(row) if isinstance(row, Row) else row
        return
    lines = ((number, raw.rstrip(b"\r")) for number, raw in lines)
    if shape == "array":
        for number, row in enumerate(json_rows(lines, source, ReadRequest("json"))):
            yield row._replace(line=f"[{number}]")
    elif shape == "lines":
        yield from jsonl_rows(lines, source, ReadRequest("jsonl"))
    else:
        yield from _objects(whole_document(lines, source), source, first[0])


RecordShape = Literal["table", "array", "lines", "objects"]


def _record_shape(first: bytes, source: str) -> RecordShape:
    """How the objects of a file stand there, by its first line that is not blank."""
    if table_format(Path(source)) is not None:
        return "table"
    if first.lstrip().startswith(b"["):
        return "array"
    return "lines" if _is_whole(first) else "objects"


def file_records(source: str) -> tuple[RecordShape, list[Row | BadRow]]:
    """How the objects of a file stand there, and all of them, as `record_rows`."""
    with open_unpacked(source) as stream:
        lines = list(numbered_lines(stream, source, MAX_DOCUMENT))
    first = next((raw for _, raw in lines if raw.strip()), b"")
    return _record_shape(first, source), list(record_rows(lines, source))


def table_format(path: Path) -> str | None:
    """How Label Studio writes a table of this ending; None for an ending of JSON."""
    return {".csv": "csv", ".tsv": QUOTED_TSV}.get(suffix_of(path))


def _parse_cells(row: Row) -> Row:
    """The row with the values of the cells that hold choices or spans in JSON. An empty cell is no answer."""
    values = {name: cell for name, cell in row.values.items() if cell}
    for name, cell in values.items():
        if cell.startswith(("{", "[{")):
            with contextlib.suppress(ValueError, RecursionError):
                values[name] = json.loads(cell)
    return row._replace(values=values)


def annotated_content(rows: Sequence[Row], suffix: str) -> bytes:
    """A file with the objects that `rows` were made of, as their files have them; .jsonl: an object per line."""
    objects_by_place: dict[tuple[str, Any], Any] = {}
    for source in {row.source for row in rows}:
        _, records = file_records(source)
        objects_by_place |= {(source, row.line): row.values for row in records if isinstance(row, Row)}
    objects = [json_bytes(objects_by_place[row.source, row.line]) for row in rows]
    if suffix in JSON_LINES:
        return b"".join(line + b"\n" for line in objects)
    return b"[\n" + b",\n".join(objects) + b"\n]\n"


def _is_whole(line: bytes) -> bool:
    """Whether a line is a JSON value."""
    try:
        json.loads(line)
        return True
    except (ValueError, RecursionError):
        return False


def _objects(document: str, source: str, line: int) -> Iterator[Row | BadRow]:
    """Objects over several lines; `line` is that of the first. One that begins on the line of another is called by its
    number there, too: 3[1]. A place is that of one row."""
    position = last = beside = 0
    with json_errors_as_user_errors(source):
        while (begin := _after_blanks(document, position)) < len(document):
            line += document.count("\n", position, begin)
            value, position = element_at(document, begin)
            last, beside = line, beside + 1 if line == last else 0
            yield object_row(source, f"{line}[{beside}]" if beside else line, value, ())
            line += document.count("\n", begin, position)


def _after_blanks(document: str, position: int) -> int:
    match = _BLANKS.match(document, position)
    return position if match is None else match.end()


def recognised_format(path: Path, annotation: str | None) -> str | None:
    """The annotated format that a file is in, by its beginning; None for any other.

    `annotation`, that of the TaskRows, tells more: a list of labels can only be doccano's where a text has one label, a
    list of spans only Label Studio's where these are read. The other two have spans alone.
    """
    for value in _first_values(path):
        if label_studio.is_record(value) or (annotation == "spans" and label_studio.has_spans(value)):
            return LABEL_STUDIO
        if doccano.is_record(value) or (annotation == "label" and doccano.has_label_list(value)):
            return DOCCANO
        if annotation == "spans" and cluener.is_record(value):
            return CLUENER
        if annotation == "spans" and spans.is_record(value):
            return SPANS
    return None


def _first_values(path: Path) -> Iterator[Any]:
    """The JSON values at the beginning of a .json, .jsonl or .ndjson file, the rows of a table; none of any other."""
    kind = table_format(path)
    if (kind is None and suffix_of(path) not in (".json", *JSON_LINES)) or not path.is_file():
        return iter(())
    try:
        with open_unpacked(path) as stream:
            beginning = stream.read(_BEGINNING)
    except (OSError, UserError):
        return iter(())  # reading tells
    if kind is None:
        return islice(_beginning(beginning.decode("utf-8-sig", "replace")), _LOOKED_AT)
    return _first_rows(beginning, path, kind)


def _first_rows(beginning: bytes, path: Path, kind: str) -> Iterator[Any]:
    lines = enumerate(beginning.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1)
    with contextlib.suppress(UserError):  # reading tells
        rows = table_rows(table_records(lines, kind, True, ()), str(path), True, ())
        for row in islice(rows, _LOOKED_AT):
            if isinstance(row, Row):
                yield _parse_cells(row).values


def _beginning(text: str) -> Iterator[Any]:
    """The values at the beginning of a JSON array, or of lines."""
    decoder, text = json.JSONDecoder(), text.lstrip()
    position = int(text.startswith("["))
    while True:
        while text[position : position + 1] in tuple(" \t\r\n,"):
            position += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):  # the end, or a value that is cut off
            return
        yield value
