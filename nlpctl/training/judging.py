"""Whether a training is worth going on with, by its scores on dev so far. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Judging:
    """Asked after each evaluation: `worth(number of the evaluation, from 1; its score)`. `metric`: such as f1."""

    metric: str
    worth: Callable[[int, float], bool]
