"""The mistakes of a model, ordered for inspection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """An example with a wrong answer. `row`: its index among the examples; `size`: how wrong, comparable within one
    task only; `expected` and `given` are for people."""

    row: int
    size: float
    expected: str
    given: str


def worst(mistakes: list[Mistake], most: int) -> list[Mistake]:
    """The `most` largest mistakes, the largest first; equal ones in the order of their rows."""
    return sorted(mistakes, key=lambda mistake: (-mistake.size, mistake.row))[:most]
