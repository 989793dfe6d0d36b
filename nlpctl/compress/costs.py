"""The budget of a compression, and the time that its steps take, measured or estimated. Imports no Paddle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.documents import Document, Finite, whole_content
from nlpctl.export.strategies import CalibratedInt8, Step, Strategy
from nlpctl.layout import CANDIDATES, EXPORTS

TIMES = "times.json"
# By kind of folder: in how many engines and precisions it is scored, and how many of these are in the last round.
SCORED_PER_FOLDER = {EXPORTS: 3, CANDIDATES: 1}
FINALISTS_PER_FOLDER = {EXPORTS: 2, CANDIDATES: 1}
SAFETY = 1.2  # safety factor on the expected time of a step


class Clock:
    """Seconds left of a budget; None without a budget."""

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._end = None if seconds is None else now() + seconds

    def left(self) -> float | None:
        return None if self._end is None else self._end - self._now()


@dataclass
class Costs:
    """The time of steps in seconds: measured if a similar step was made, else estimated from the speed of the network.

    `speed`: samples per second of the uncompressed network in fp32, at the largest batch size. `rows_read`: by a
    training in all epochs, by strategy, or by Step.work for a smaller form. `scoring`: seconds to score one engine and
    precision of a folder; `turns`: seconds of one in the last round. `measured`: seconds by Step.work. `factors`: by
    how much longer than estimated each strategy took. `slowdown`: by how much longer a step takes than alone, because
    others are made beside it.
    """

    speed: float
    rows_read: dict[str, float]
    scoring: float
    turns: float = 0.0
    measured: dict[str, float] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    slowdown: float = 1.0

    def total(self, step: Step) -> float:
        """Seconds to make the folder of a step, and to score it."""
        return self.making(step) + self.to_score(step)

    def making(self, step: Step) -> float:
        """Seconds to make the folder of a step."""
        measured = self.measured.get(step.work)
        return self._estimate(step) * self.factors.get(step.method, 1.0) if measured is None else measured

    def to_score(self, step: Step) -> float:
        """Seconds to score a step, also in the last round; nothing else runs meanwhile."""
        return (
            SCORED_PER_FOLDER[step.kind] * self.scoring + FINALISTS_PER_FOLDER[step.kind] * self.turns
            if step.scored
            else 0.0
        )

    def learn(self, step: Step, seconds: float) -> None:
        """Remember how long a step took, also to correct the estimate of other forms of it."""
        self.measured[step.work] = seconds
        self.factors[step.method] = seconds / self._estimate(step)

    def left_to_make(
        self, steps: Iterable[Step], at_a_time: int, so_far: Mapping[Step, float], told: Mapping[Step, float]
    ) -> float:
        """Seconds until all of `steps` are made, `at_a_time`. `so_far`: the seconds of those that are being made;
        `told`: what these say themselves that they have left."""
        left = [told.get(step, max(0.0, self.making(step) - so_far.get(step, 0.0))) for step in steps]
        return max(max(left, default=0.0), sum(left) / at_a_time)

    def _estimate(self, step: Step) -> float:
        rows = self.rows_read.get(step.work, self.rows_read.get(step.method, 0.0))
        return step.made_by.seconds(step, self.speed / self.slowdown, rows)


def row_counter(recipe: Recipe) -> Callable[[], int]:
    """Returns a function that counts the training rows, once."""

    @cache
    def count() -> int:
        return sum(1 for _ in open_split(task_rows(recipe.task, recipe.data), "train"))

    return count


def trained_rows(recipe: Recipe, strategies: Iterable[Strategy], count: Callable[[], int]) -> dict[str, float]:
    """The rows read by each strategy that trains, over all epochs, or calibrates on all rows."""
    reading = (strategy for strategy in strategies if strategy.trains or isinstance(strategy, CalibratedInt8))
    return {strategy.name: strategy.rows_trained(recipe, count) for strategy in reading}


@dataclass(frozen=True)
class StepTimes(Document):
    """times.json of `nlpctl compress`: the seconds of each kind of step so far, by which later ones are planned."""

    seconds: Mapping[str, Finite] = whole_content()


def read_times(folder: Path) -> dict[str, float]:
    """The recorded times of earlier steps; {} if there are none."""
    times = StepTimes.load_if_valid(folder / TIMES)
    return {} if times is None else dict(times.seconds)


def write_times(folder: Path, times: Mapping[str, float]) -> None:
    """Record the times of steps for later calls."""
    StepTimes(times).save(folder / TIMES)


def format_seconds(seconds: float) -> str:
    """A time for messages: 40 s, 12 min."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
