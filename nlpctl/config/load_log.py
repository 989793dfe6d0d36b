"""What loading a recipe has noted so far. All problems are collected first and reported together.

A result of the later checks of values is a `Finding` (finding.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from nlpctl.config.positions import TableNode
from nlpctl.config.schema import Origin
from nlpctl.errors import Problem


@dataclass
class LoadLog:
    """The problems, the keys that no check should build on, where each value came from, and the files read."""

    problems: list[Problem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    origins: dict[str, Origin] = field(default_factory=dict)
    trees: dict[tuple[Path, Path | None], TableNode] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)  # the keys that others name as ${section.key}

    def report(self, dotted: str, origin: Origin, message: str, hint: str) -> None:
        """Note that the value of `dotted` is wrong."""
        self.broken.add(dotted)
        problem = Problem(f"{dotted}: {message}", where=str(origin), hint=hint)
        if problem not in self.problems:
            self.problems.append(problem)
