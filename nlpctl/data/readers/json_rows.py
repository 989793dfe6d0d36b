"""Reads jsonl (in constant memory) and json (held in memory) into rows."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import PurePath
from reprlib import repr as shortened
from typing import Any
from uuid import UUID

from nlpctl.data.readers.lines import decode, lone_returns
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row, missing_key
from nlpctl.errors import UserError
from nlpctl.names import listed


class RepeatedKey(ValueError):
    """An object has a key twice."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of `pairs`, for `object_pairs_hook`. RepeatedKey: json.loads alone would take the last value."""
    values = dict(pairs)
    if len(values) < len(pairs):
        first: dict[str, Any] = {}
        for name, value in pairs:
            if name in first:
                both = f"{shortened(first[name])} and {shortened(value)}"
                raise RepeatedKey(f"repeated key: {name!r} stands twice ({both}), and only one of its values can count")
            first[name] = value
    return values


_STRICT, _LAST = json.JSONDecoder(object_pairs_hook=unique_keys), json.JSONDecoder()


def jsonl_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    first = True
    for number, raw in lines:
        text, reason = decode(raw)
        if not text.strip():
            continue
        value: Any = None
        if reason is None:
            try:
                value = _STRICT.decode(text)
            except RepeatedKey as error:
                reason = str(error)
            except (ValueError, RecursionError) as error:
                reason = f"not JSON: {json_reason(error)}{lone_returns(text)}"
        if first:
            _refuse_document(text, value, f"{source}:{number}")
            first = False
        yield object_row(source, number, value, request.required) if reason is None else BadRow(source, number, reason)


def _refuse_document(text: str, value: Any, where: str) -> None:
    """UserError if the first line of jsonl, which is `value` if it is JSON, begins a document of many rows or lines."""
    begun = text.strip()
    if begun == "{":
        hint = "write each object on one line, as `jq -c . FILE` does"
        raise UserError("this object goes on over several lines, but jsonl has one on each line", where, hint)
    rows = isinstance(value, list) and value != [] and all(isinstance(each, dict) for each in value)
    if rows or begun == "[" or (value is None and begun.startswith("[{")):
        hint = "name the file .json, or set the format: data.format: json, for predict @[format=json]"
        raise UserError("this is an array, but jsonl has an object on each line", where, hint)


def object_row(source: str, line: int | str, value: Any, required: Sequence[str]) -> Row | BadRow:
    """`value`: as of `element_at`."""
    if isinstance(value, RepeatedKey):
        return BadRow(source, line, str(value))
    if not isinstance(value, dict):
        return BadRow(source, line, f"not a JSON object: got {json_type(value)}")
    reason = missing_key(value, required)
    return Row(source, line, value) if reason is None else BadRow(source, line, reason)


def json_type(value: Any) -> str:
    # bool before int: True is an instance of int.
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return {list: "a list", str: "a string", int: "a number", float: "a number", dict: "an object"}[type(value)]


def json_reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{_fault(error)} at character {error.pos + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _fault(error: json.JSONDecodeError) -> str:
    """What is wrong, without a place: Python's "Unterminated string starting at" waits for one."""
    return error.msg.removesuffix(" at")


def whole_document(lines: Iterable[tuple[int, bytes]], source: str) -> str:
    """The text of a json file. UserError if a line cannot be decoded: one bad line spoils the document."""
    texts = []
    for number, raw in lines:
        text, reason = decode(raw)
        if reason is not None:
            hint = "a json file is read as a whole, so fix the line; a bad row of a jsonl file can be skipped"
            raise UserError(reason, where=f"{source}:{number}", hint=hint)
        texts.append(text)
    return "\n".join(texts)


@contextmanager
def json_errors_as_user_errors(source: str) -> Iterator[None]:
    """Turns decoding errors of a document into UserErrors with the line."""
    try:
        yield
    except json.JSONDecodeError as error:
        where = f"{source}:{error.lineno}"
        hint = "fix the file; if it has one object per line, set data.format: jsonl"
        raise UserError(f"not JSON: {_fault(error)} at column {error.colno}", where=where, hint=hint) from None
    except RepeatedKey as error:
        raise UserError(str(error), where=source, hint="fix the file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {json_reason(error)}", where=source, hint="fix the file") from None


def element_at(document: str, position: int) -> tuple[Any, int]:
    """The value that begins at `position`, or the RepeatedKey in it, and its end."""
    try:
        return _STRICT.raw_decode(document, position)
    except RepeatedKey as error:
        return error, _LAST.raw_decode(document, position)[1]


def json_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """One document: an array of objects, or an object whose "data" is one. It is one text, so it is held whole."""
    document = whole_document(lines, source)
    if not document.strip():
        return
    with json_errors_as_user_errors(source):
        for line, value in _json_elements(document, source):
            yield object_row(source, line, value, request.required)


def _json_elements(document: str, source: str) -> Iterator[tuple[int, Any]]:
    """(line where the element starts, element); elements are decoded one by one to know their lines."""
    position = _array_start(document, source)
    line, counted = 1, 0
    while document[position : position + 1] != "]":
        value, end = element_at(document, position)
        # Counted from the last element on: counting from the start would be quadratic.
        line += document.count("\n", counted, position)
        counted = position
        yield line, value
        position = _skip_blanks(document, end)
        if document[position : position + 1] == ",":
            position = _skip_blanks(document, position + 1)
        elif document[position : position + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' or ']'", document, position)
    after = _skip_blanks(document, position + 1)
    if document[_skip_blanks(document, 0)] == "[" and after != len(document):
        raise json.JSONDecodeError("Extra data", document, after)


def _array_start(document: str, source: str) -> int:
    """Position of the first element of the array of rows (or of its closing bracket)."""
    position = _skip_blanks(document, 0)
    if document[position] == "[":
        return _skip_blanks(document, position + 1)
    value, end = _LAST.raw_decode(document, position)  # each row is read strictly afterwards
    if _skip_blanks(document, end) != len(document):
        raise json.JSONDecodeError("Extra data", document, _skip_blanks(document, end))
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        got = f"an object with the keys {listed(value)}" if isinstance(value, dict) else json_type(value)
        raise UserError(
            f'expected an array of objects, or an object with such an array under "data"; got {got}',
            where=source,
            hint="one object per line is jsonl: set data.format: jsonl",
        )
    return _data_array(document, position)


def _data_array(document: str, position: int) -> int:
    """Walk the keys of a valid object up to the array under "data"."""
    while True:
        # The document was decoded as a whole just before, so no key or bracket can be missing here.
        key, position = _LAST.raw_decode(document, _skip_blanks(document, position + 1))
        position = _skip_blanks(document, _skip_blanks(document, position) + 1)
        if key == "data" and document[position] == "[":
            return _skip_blanks(document, position + 1)
        position = _skip_blanks(document, _LAST.raw_decode(document, position)[1])


def _skip_blanks(document: str, position: int) -> int:
    while document[position : position + 1] in (" ", "\n", "\t", "\r"):
        position += 1
    return position


def json_bytes(value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as JSON in UTF-8; `default`: what stands for a value that JSON does not know."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=default).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can spell
        return json.dumps(value, indent=indent, default=default).encode()


def plain(value: Any) -> Any:
    """What stands for a value that JSON does not know, for `default`: a list for arrays and sets, a number for NumPy's,
    text for dates, times, decimal numbers, paths and UUIDs. TypeError: it is none of these."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | Decimal | PurePath | UUID):
        return str(value)
    raise TypeError(f"nothing stands for a value of type {type(value).__name__}")


# -- SQuAD 1.1, SQuAD 2.0 and CMRC 2018: a nested document, one row per question --------------------------------------
#
# {"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "answers": [...]}]}]}]}
# [{"context_text": ..., "qas": [{"query_id": ..., "query_text": ..., "answers": ["..."]}]}]    CMRC's first layout
#
# A row has the keys of its entry in "qas" (id, question, answers, is_impossible) and the paragraph's context. Answers
# of CMRC's first layout have no place: it is the first one in the context where they stand. The documents stand on
# one line, so a row's place is its path: data[3].paragraphs[0].qas[2], or [3].qas[2].


_CONTEXT = "context_text"
_FIRST_NAMES = {"query_id": "id", "query_text": "question"}


def squad_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """One row per question in file order; the document is held whole.

    An article or a paragraph that is not built as it should be is one bad row. UserError if the file is not JSON, or
    not of this layout at all.
    """
    text = whole_document(lines, source)
    if not text.strip():
        return
    with json_errors_as_user_errors(source):
        document = _STRICT.decode(text)
    for place, paragraph in _paragraphs(document, source):
        reason = _paragraph_reason(paragraph)
        if reason is not None:
            yield BadRow(source, place, reason)
            continue
        for i, question in enumerate(paragraph["qas"]):
            row = object_row(source, f"{place}.qas[{i}]", question, ())
            if isinstance(row, Row):
                row = object_row(source, row.line, _values(question, paragraph), request.required)
            yield row


def is_first_layout(document: Any) -> bool:
    """Whether a document is in CMRC's first layout."""
    return isinstance(document, list) and any(isinstance(each, dict) and _CONTEXT in each for each in document)


def _values(question: dict[str, Any], paragraph: dict[str, Any]) -> dict[str, Any]:
    """The columns of a question."""
    if _CONTEXT not in paragraph:
        return {**question, "context": paragraph["context"]}
    context, answers = paragraph[_CONTEXT], question.get("answers")
    values = {_FIRST_NAMES.get(name, name): value for name, value in question.items()}
    if isinstance(answers, list) and isinstance(context, str):
        values["answers"] = [
            {"text": each, "answer_start": context.find(each)} if isinstance(each, str) else each for each in answers
        ]
    return {**values, "context": context}


def _paragraphs(document: Any, source: str) -> Iterator[tuple[str, Any]]:
    """(path, paragraph). An article without paragraphs is yielded itself, and later reported as a bad row."""
    if is_first_layout(document):
        yield from ((f"[{i}]", paragraph) for i, paragraph in enumerate(document))
        return
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        got = f"an object with the keys {listed(document)}" if isinstance(document, dict) else json_type(document)
        hint = "a flat array of objects with question, context and answers is data.format: json; one per line is jsonl"
        raise UserError(f'not in the layout of SQuAD, {{"data": [...]}}: got {got}', where=source, hint=hint)
    for i, article in enumerate(document["data"]):
        if isinstance(article, dict) and isinstance(article.get("paragraphs"), list):
            for j, paragraph in enumerate(article["paragraphs"]):
                yield f"data[{i}].paragraphs[{j}]", paragraph
        else:
            yield f"data[{i}]", article


def _paragraph_reason(value: Any) -> str | None:
    """Why `value` is no paragraph, None when it is one."""
    if not isinstance(value, dict):
        return f"not a JSON object: got {json_type(value)}"
    if "context" not in value and _CONTEXT not in value:
        wanted = "context and qas" if "qas" in value else "paragraphs"
        return f"not in the layout of SQuAD: {wanted} expected; the keys are {listed(value)}"
    if not isinstance(value.get("qas"), list):
        return "not in the layout of SQuAD: qas, the list of questions, is missing or no list"
    return None
