"""Refusing a request: a status, and problems in the same form as on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from nlpctl.data.passthrough_columns import KEEP_ALL, KeptRowReader, KeptRows, with_kept
from nlpctl.data.readers.json_rows import RepeatedKey, json_reason, json_type, object_row, unique_keys
from nlpctl.data.readers.row import MISSING, BadRow
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import Problem
from nlpctl.names import listed, nearest

SHOWN = 10  # most problems listed
_LONGEST = 300  # characters of a message, which may quote the request


class Refused(Exception):
    """A refused request. `status`: 4xx for the sender's mistakes, 503 for trying again later."""

    def __init__(self, status: int, *problems: Problem, headers: Mapping[str, str] | None = None):
        super().__init__(str(problems[0]))
        self.status, self.problems, self.headers = status, problems, dict(headers or {})

    def content(self) -> dict[str, Any]:
        """The JSON body: {"errors": [{"message", "where", "hint"}, ...]}; empty fields are left out."""
        return {"errors": [_problem_json(problem) for problem in self.problems[:SHOWN]]}


def last_response(refused: Refused, content: Mapping[str, str] | None = None) -> bytes:
    """The whole HTTP response, after which the connection is closed; for where no application answers.

    `content`: of the body, in place of that of `refused`.
    """
    body = json.dumps(content or refused.content()).encode()
    headers = {"Content-Type": "application/json", **refused.headers, "Connection": "close"}
    lines = [f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def refuse_framing(scope: Mapping[str, Any]) -> None:
    """Refused (400), and the connection closed: nobody can be sure where the body of this request ends.

    A proxy that goes by Content-Length, and a server that goes by Transfer-Encoding, would take one body for different
    requests (RFC 9112, 6.1). All else of the kind is refused where a head is read (h11).
    """
    names = [name for name, _ in scope.get("headers", ())]
    if b"transfer-encoding" in names and (b"content-length" in names or scope.get("http_version") == "1.0"):
        reason = "has Content-Length too" if b"content-length" in names else "is of HTTP/1.0"
        problem = Problem(f"a request with Transfer-Encoding {reason}", "Transfer-Encoding", "send one of the two")
        raise Refused(400, problem, headers={"Connection": "close"})


def busy(reason: str, seconds: int) -> Refused:
    """503: there is no room for the request now. `reason`: which limit it meets; `seconds`: when to try again."""
    problem = Problem(f"the service is busy: {reason}", hint=f"try again after {seconds} s")
    return Refused(503, problem, headers={"Retry-After": str(seconds)})


def stopping() -> Refused:
    """503: the service is about to end."""
    problem = Problem("the service is stopping", hint="use another server")
    return Refused(503, problem, headers={"Retry-After": "1"})


def failed(error: BaseException) -> Refused:
    """500: a bug, or exhausted resources; see the log of the service."""
    return Refused(500, Problem(f"the service failed ({type(error).__name__})", hint="see its log for details"))


def unusable(problems: Sequence[Problem]) -> Refused:
    """422: the request is JSON, but its rows do not fit the model."""
    return Refused(422, *problems)


def _problem_json(problem: Problem) -> dict[str, str]:
    values = {"message": problem.message, "where": problem.where, "hint": problem.hint}
    return {name: text if len(text) <= _LONGEST else text[:_LONGEST] + "..." for name, text in values.items() if text}


# -- the body of a request: from untrusted JSON to rows --------------------------------------------

SOURCE = "body"  # followed by a JSONPath: body:$[3] is the fourth row of a list, body:$ the only one
JSON_TYPE = "application/json"
_KEYS = 100  # most keys per row, since messages search them for similar names
_DEPTH = 100  # most lists and objects within one another: what an answer repeats is written by recursion


@dataclass(frozen=True)
class Rows:
    """The rows of a request: examples, and BadRows if these are answered too. `listed`: the body is a list."""

    rows: KeptRows
    listed: bool

    def response(self, answers: Sequence[dict[str, Any]]) -> Any:
        """The content of the response: `answers` to the rows, each with the other keys of its row."""
        content = [with_kept(answer, kept) for answer, kept in zip(answers, self.rows.kept, strict=True)]
        return content if self.listed else content[0]


class BodyReader:
    """Reads bodies: one row as an object, or several as a list of objects, with the keys of a line of jsonl."""

    def __init__(self, task_rows: TaskRows, max_rows: int, max_characters: int):
        self._required, self._text_columns = task_rows.required(labelled=False), task_rows.text_columns()
        self._skip = task_rows.data.on_bad_row == "skip"
        self._reader = KeptRowReader(task_rows, KEEP_ALL)
        self._max_rows, self._max_characters = max_rows, max_characters

    def read(self, body: bytes) -> Rows:
        """Refused: 400 as of `parse`, 413 for too many rows or characters, 422 if a row cannot be used."""
        value = parse(body, self._text_columns)
        if isinstance(value, dict):
            return Rows(self._examples([("$", value)]), listed=False)
        if not isinstance(value, list):
            hint = "send a row as an object, or several as a list of objects"
            raise unusable([Problem(f"the body is {json_type(value)}", SOURCE, hint)])
        if not value:
            raise unusable([Problem("the list holds no rows", SOURCE, "send one row or more")])
        if len(value) > self._max_rows:
            message = f"{len(value)} rows in a request; the limit is {self._max_rows}"
            raise Refused(413, Problem(message, SOURCE, "send them in several requests"))
        return Rows(self._examples([(f"$[{index}]", row) for index, row in enumerate(value)]), listed=True)

    def _examples(self, values: Sequence[tuple[str, Any]]) -> KeptRows:
        self._limit_characters(values)
        read = KeptRows([self._example(place, value) for place, value in values])
        bad = [row for row in read if isinstance(row, BadRow)]
        if bad and not (self._skip and len(bad) < len(read)):
            more = f"; {len(bad)} of {len(read)} rows are bad" if len(bad) > SHOWN else ""
            raise unusable([Problem(row.reason + more, row.where) for row in bad])
        return read

    def _limit_characters(self, values: Sequence[tuple[str, Any]]) -> None:
        total = 0
        for place, value in values:
            total += characters(value)
            if total > self._max_characters:
                message = f"up to this row the request has {total} characters; the limit is {self._max_characters}"
                raise Refused(413, Problem(message, f"{SOURCE}:{place}", "send fewer rows at a time, or shorter texts"))

    def _example(self, place: str, value: Any) -> tuple[Any, dict[str, Any]]:
        """A row, and what its answer repeats: as for a line of jsonl, every other key."""
        if isinstance(value, dict) and len(value) > _KEYS:
            return BadRow(SOURCE, place, f"too many keys: {len(value)}; the limit is {_KEYS}"), {}
        row = object_row(SOURCE, place, value, self._required)
        if isinstance(row, BadRow) and isinstance(value, dict):
            row = row._replace(reason=self._missing(value))
        return self._reader.read(row)

    def _missing(self, row: dict[str, Any]) -> str:
        """What `missing_key` tells, but the row's key is at fault: the service's names are no choice of the client."""
        name = next(name for name in self._required if name not in row)
        guess = nearest(name, row)
        advice = "" if guess is None else f"; write {name!r} in place of {guess!r}"
        return f"{MISSING} {name!r}: the keys are {listed(row)}{advice}"


def characters(value: Any) -> int:
    """Characters of all strings in a JSON value, keys of objects aside."""
    total, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            total += len(each)
        else:
            left += _children(each)
    return total


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def parse(body: bytes, keys: Sequence[str]) -> Any:
    """The JSON value in `body`. Refused (400): not JSON, a repeated key, nested too deeply. `keys`: of a row, for the
    hint."""
    try:
        # Decoded here and not by json.loads, which would also accept UTF-16 and UTF-32.
        value = json.loads(body.decode("utf-8"), object_pairs_hook=unique_keys)
        _limit_depth(value)
        return value
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte 0x{body[error.start]:02x} at byte {error.start + 1}"
        raise Refused(400, Problem(message, SOURCE, "send JSON in UTF-8")) from None
    except RepeatedKey as error:
        raise Refused(400, Problem(str(error), SOURCE, "send each key once")) from None
    except RecursionError:
        message = f"nested too deeply: more than {_DEPTH} lists and objects within one another"
        raise Refused(400, Problem(message, SOURCE, "send less in a row")) from None
    except ValueError as error:
        reason = json_reason(error) if body.strip() else "the body is empty"
        row = ", ".join(f'"{key}": "..."' for key in keys)
        hint = f"send a row such as {{{row}}}, or a list of rows"
        raise Refused(400, Problem(f"not JSON: {reason}", SOURCE, hint)) from None


def _limit_depth(value: Any) -> None:
    """RecursionError beyond _DEPTH, as json.loads raises it where its stack, which differs by thread, is at its end."""
    level = [value]
    for _ in range(_DEPTH):
        level = [child for each in level for child in _children(each)]
    if any(isinstance(each, dict | list) for each in level):
        raise RecursionError


def check_headers(content_type: str, encoding: str) -> None:
    """Refused (415) unless the body is JSON in UTF-8 that is not compressed.

    HTML forms of other web sites cannot send this type, so no foreign page can use the service (CSRF).
    """
    kind, _, parameters = content_type.partition(";")
    name, _, charset = parameters.strip().lower().partition("=")
    utf8 = name != "charset" or charset.strip("\"' ") in ("utf-8", "utf8", "us-ascii")
    if kind.strip().lower() != JSON_TYPE or not utf8:
        shown = content_type[:60] or "nothing"
        hint = f"send it as {JSON_TYPE}; with curl: -H 'Content-Type: {JSON_TYPE}'"
        raise Refused(415, Problem(f"the content type is {shown}", "Content-Type", hint))
    if encoding.strip().lower() not in ("", "identity"):
        message = f"the body is encoded as {encoding[:60]}"
        raise Refused(415, Problem(message, "Content-Encoding", "send it uncompressed"))
