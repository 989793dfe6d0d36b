"""What a request gets in place of an answer: a status, and problems told as on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nlpctl.errors import Problem

SHOWN = 10  # problems that are listed
_LONGEST = 300  # characters of a message, which may quote what was sent


class Refused(Exception):
    """A request that is not answered. `status` is HTTP's: 4xx for the sender's mistakes, 503 to try again later."""

    def __init__(self, status: int, *problems: Problem, headers: Mapping[str, str] | None = None):
        super().__init__(str(problems[0]))
        self.status, self.problems, self.headers = status, problems, dict(headers or {})

    def content(self) -> dict[str, Any]:
        """The JSON body: {"errors": [{"message", "where", "hint"}, ...]}; what is empty is left out."""
        return {"errors": [_told(problem) for problem in self.problems[:SHOWN]]}


def full(seconds: int) -> Refused:
    """503: the queue has no room for the request; `seconds` is when it may have."""
    problem = Problem("the service is busy: its queue is full", hint=f"try again after {seconds} s")
    return Refused(503, problem, headers={"Retry-After": str(seconds)})


def failed(error: BaseException) -> Refused:
    """500: a bug of ours, or a machine that ran out of something; the log of the service says more."""
    return Refused(500, Problem(f"the service failed ({type(error).__name__})", hint="its log tells more"))


def unusable(problems: Sequence[Problem]) -> Refused:
    """422: the request is JSON, but not what the model takes."""
    return Refused(422, *problems)


def _told(problem: Problem) -> dict[str, str]:
    values = {"message": problem.message, "where": problem.where, "hint": problem.hint}
    return {name: text if len(text) <= _LONGEST else text[:_LONGEST] + "..." for name, text in values.items() if text}
