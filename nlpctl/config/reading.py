"""What reading a recipe has turned up so far; everything is collected and reported at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from nlpctl.config.schema import Origin
from nlpctl.errors import Problem


@dataclass
class Findings:
    """The problems, the keys that no check should build on, and where each value came from."""

    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    origins: dict[str, Origin] = field(default_factory=dict)

    def report(self, dotted: str, origin: Origin, message: str, hint: str) -> None:
        """Note that the value of `dotted` is wrong."""
        self.broken.add(dotted)
        problem = Problem(f"{dotted}: {message}", where=str(origin), hint=hint)
        if problem not in self.problems:
            self.problems.append(problem)
