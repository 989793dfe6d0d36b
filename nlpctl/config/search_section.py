"""The section `search`: what `nlpctl sweep` tries, how long, and by which score it chooses."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from nlpctl.config.declare import key, mapping_key

RANGES = ("uniform", "log", "int")  # the notations of a range
MOST_TRIALS = 100_000
TRIALS = 20  # unless the grid, or a budget, says how many


class Steps(Sequence[float]):
    """low, low + step, ... up to high, as they are written, made when they are asked for."""

    def __init__(self, low: float, high: float, step: float):
        self._low, self._step = exact(low), exact(step)
        self._last = math.floor((exact(high) - self._low) / self._step)

    def __len__(self) -> int:
        return self._last + 1

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number <= self._last:
            raise IndexError(number)
        return float(self._low + number * self._step)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and math.isfinite(value) and self.nearest(value) == value

    def nearest(self, value: float) -> float:
        """The step next to `value`, which may be off by what sums of floats lose."""
        return float(self[min(max(round((exact(value) - self._low) / self._step), 0), self._last)])


@dataclass(frozen=True)
class Axis:
    """What is tried of one key; the fields are named as in a recipe. Exactly one of the first four is given.

    `whole`: the key holds whole numbers. `when`: key -> values, one of which it must have; else the key stays as it is.
    """

    choices: tuple[Any, ...] | None = None
    uniform: tuple[float, float] | None = None
    log: tuple[float, float] | None = None
    int: tuple[float, float] | None = None
    step: float | None = None
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    whole: bool = field(default=False, metadata={"written": False})

    @property
    def ends(self) -> tuple[float, float]:
        """The least and greatest value of a range."""
        return next(ends for ends in (self.uniform, self.log, self.int) if ends is not None)

    @property
    def points(self) -> Sequence[Any] | None:
        """All values, in order; None of a range without steps. Of a range they are made when they are asked for."""
        if self.choices is not None:
            return self.choices
        low, high = self.ends
        if self.int is not None:
            return range(round(low), round(high) + 1, round(self.step or 1))
        return None if self.step is None or self.log is not None else Steps(low, high, self.step)

    @property
    def told(self) -> str:
        """In words, such as "log from 1e-05 to 0.0001"."""
        if self.choices is not None:
            return "one of " + ", ".join(map(_written, self.choices))
        name = next(name for name in RANGES if getattr(self, name) is not None)
        low, high = self.ends
        steps = "" if self.step is None else f" in steps of {self.step:g}"
        return f"{name} from {low:g} to {high:g}{steps}"


@dataclass(frozen=True)
class SearchSection:
    """`nlpctl sweep`: the keys that are tried, how often, and by which score the best is chosen (docs/sweep.md)."""

    space: Mapping[str, Axis] = mapping_key(
        "What is tried, by key: a list of values, {log: [1e-5, 1e-4]}, {uniform: [0, 0.3]} or {int: [2, 6]}, the two "
        "last ones also with step; with when: {KEY: value or list} only where another key that is tried has this value."
    )
    trials: int | None = key(
        None, f"How many trials; default: the whole grid, with a budget as many as it allows, else {TRIALS}."
    )
    budget: str | None = key(
        None, "Time budget, such as 30m or 8h: no trial begins that would probably exceed it. Default: no limit."
    )
    metric: str | None = key(
        None, "Score on dev to choose by; default: training.metric_for_best_model, or the task's first score."
    )
    sampler: Literal["tpe", "random", "grid"] = key(
        "tpe",
        "tpe: learns from earlier trials where good values lie (Bergstra et al., 2011); random; grid: every "
        "combination of lists, whole numbers and steps.",
    )
    pruner: Literal["median", "none"] = key(
        "median",
        "median: after five whole trials, stop one whose best score so far is worse than the median of the others at "
        "the same evaluation; none.",
    )


def _written(value: Any) -> str:
    """A value as a recipe may have it: null, true, [a list]."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def exact(number: float) -> Fraction:
    """`number` as it is written: 0.3 is three times 0.1."""
    return Fraction(repr(number))


def applies(axis: Axis, values: Mapping[str, Any]) -> bool:
    """Whether the key of `axis` is tried where others have `values`."""
    return all(name in values and values[name] in wanted for name, wanted in axis.when.items())


def ordered(space: Mapping[str, Axis]) -> Iterator[tuple[str, Axis]]:
    """The axes, each after those that its `when` names. A circle ends the order; `in_circle` finds it."""
    done: set[str] = set()
    while ready := [name for name in space if name not in done and done >= space[name].when.keys()]:
        done |= {ready[0]}
        yield ready[0], space[ready[0]]


def in_circle(space: Mapping[str, Axis]) -> list[str]:
    """The keys whose `when` depend on each other, or on such a key."""
    reached = {name for name, _ in ordered(space)}
    return [name for name in space if name not in reached]


def grid(space: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
    """Every combination of an axis' points, in order; the last key changes fastest."""
    axes = list(ordered(space))

    def further(begun: dict[str, Any], left: Sequence[tuple[str, Axis]]) -> Iterator[dict[str, Any]]:
        if not left:
            yield begun
            return
        (name, axis), *rest = left
        here = applies(axis, begun)
        for value in (() if axis.points is None else axis.points) if here else (None,):
            yield from further({**begun, name: value} if here else begun, rest)

    return further({}, axes)


def grid_size(space: Mapping[str, Axis], most: int) -> int:
    """How many points the grid has, counted up to `most`."""
    return sum(1 for _ in itertools.islice(grid(space), most))


def trials_wanted(section: SearchSection) -> int | None:
    """How many trials a sweep has; None: as many as its budget allows."""
    if section.sampler == "grid":
        return grid_size(section.space, section.trials or MOST_TRIALS)
    if section.trials is None and section.budget is None:
        return TRIALS
    return section.trials
