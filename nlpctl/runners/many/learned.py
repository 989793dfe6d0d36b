"""What a learning curve says: what each size scored, and what more rows would bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nlpctl.layout import REPORT
from nlpctl.runners.many.power_law import NEVER, Curve, Interval

POINT = 0.01
FAR = 10  # times the rows there are: beyond, a curve is a guess


@dataclass(frozen=True)
class Point:
    """The runs on `rows` rows: their names and scores, and what the curve says."""

    rows: int
    runs: tuple[str, ...]
    scores: tuple[float, ...]
    fitted: float

    @property
    def mean(self) -> float:
        return fmean(self.scores)


@dataclass(frozen=True)
class Learned:
    """What the curve says. `whole`: the expected score of all rows; `foretold`: the interval of one run's; `double`: of
    twice as many rows.

    `more`: further rows for one more point, None: no number of rows; `more_interval`: None at the end: it may be none.
    `told`: the answer in words.
    """

    folder: Path
    split: str
    metric: str
    rows: int
    points: tuple[Point, ...]
    whole: float
    foretold: Interval
    double: float
    double_interval: Interval
    more: int | None
    more_interval: tuple[int, int | None] | None
    told: str

    def to_json(self) -> dict[str, Any]:
        points = [{**asdict(point), "mean": point.mean} for point in self.points]
        return {**asdict(self), "points": points, "report": self.folder / REPORT}


def learned(
    folder: Path, split: str, metric: str, rows: int, scored: Sequence[tuple[int, Sequence[str], Sequence[float]]],
    curve: Curve,
) -> Learned:
    """`scored`: the rows of each size, the names of its runs, and their scores; `rows`: how many there are in all."""
    points = tuple(Point(size, tuple(names), tuple(values), curve.score(size)[0]) for size, names, values in scored)
    needed, (low, high) = curve.rows_for(POINT, rows)
    more = None if np.isinf(needed) else max(1, round(needed - rows))
    ends = None if np.isinf(low) else (max(1, round(low - rows)), None if np.isinf(high) else round(high - rows))
    double, double_interval = curve.score(2 * rows)
    whole = curve.score(rows)[0]
    told = _told(curve, rows, more, ends, (double - whole, tuple(end - whole for end in double_interval)))
    return Learned(
        folder, split, metric, rows, points, whole, curve.foretold(rows), double, double_interval, more, ends, told
    )


def _told(
    curve: Curve, rows: int, more: int | None, ends: tuple[int, int | None] | None, double: tuple[float, Any]
) -> str:
    """How many more rows there must be for one more point; or that the runs cannot tell."""
    unsure = "more runs (--repeats) or larger shares would narrow it"
    if curve.rises < 0.95:
        return f"It cannot be told whether more rows raise the score: the runs differ too much; {unsure}."
    if ends is None:
        return f"One more point is out of reach: by the curve, not even {NEVER:,} times as many rows bring it."
    if more is None or ends[1] is None:
        least = f"at least {ends[0]:,} more rows are needed"
        return f"It cannot be told how many rows bring one more point: {least}, and perhaps none do; {unsure}."
    told = f"One more point takes about {more:,} more rows ({ends[0]:,} to {ends[1]:,} with 95 %; there are {rows:,})."
    if more + rows > FAR * rows:
        told += f" That is more than {FAR} times the rows there are: a guess."
    return f"{told} Twice as many rows bring {double[0] * 100:+.1f} points."
