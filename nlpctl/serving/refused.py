"""Refusing a request: a status, and problems in the same form as on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from nlpctl.errors import Problem

SHOWN = 10  # most problems listed
_LONGEST = 300  # characters of a message, which may quote the request


class Refused(Exception):
    """A refused request. `status`: 4xx for the sender's mistakes, 503 for trying again later."""

    def __init__(self, status: int, *problems: Problem, headers: Mapping[str, str] | None = None):
        super().__init__(str(problems[0]))
        self.status, self.problems, self.headers = status, problems, dict(headers or {})

    def content(self) -> dict[str, Any]:
        """The JSON body: {"errors": [{"message", "where", "hint"}, ...]}; empty fields are left out."""
        return {"errors": [_told(problem) for problem in self.problems[:SHOWN]]}


def last_response(refused: Refused) -> bytes:
    """The whole HTTP response, after which the connection is closed; for where no application answers."""
    body = json.dumps(refused.content()).encode()
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
        told = "has Content-Length too" if b"content-length" in names else "is of HTTP/1.0"
        problem = Problem(f"a request with Transfer-Encoding {told}", "Transfer-Encoding", "send one of the two")
        raise Refused(400, problem, headers={"Connection": "close"})


def full(seconds: int) -> Refused:
    """503: the queue has no room for the request; `seconds`: when to try again."""
    problem = Problem("the service is busy: its queue is full", hint=f"try again after {seconds} s")
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


def _told(problem: Problem) -> dict[str, str]:
    values = {"message": problem.message, "where": problem.where, "hint": problem.hint}
    return {name: text if len(text) <= _LONGEST else text[:_LONGEST] + "..." for name, text in values.items() if text}
