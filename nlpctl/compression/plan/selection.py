"""The choice of the best candidate: the fastest or smallest among those within the allowed loss, and of those that
speed and score do not tell apart the simplest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nlpctl.compression.plan.one_scale import Paces
from nlpctl.compression.plan.scores import Metric, Row
from nlpctl.compression.strategies.registry import simplicity
from nlpctl.models.export_folder import POINT

Target = Literal["throughput", "latency", "size"]
ALIKE = 0.03  # relative difference below which two speeds count as equal, given other load on the machine
_ROUNDING = 1e-6  # points


@dataclass(frozen=True)
class Aim:
    """The criterion of the choice. `max_drop`: allowed loss in points against the reference; `target`: what to
    optimise; `sure`: the share of resampled dev splits in which the loss has to be within it, None: dev as it is.

    throughput: samples per second at the largest of `batch_sizes`; latency: the median time of a batch of the
    smallest; size: of the graph on disk.
    """

    max_drop: float = 0.5
    target: Target = "throughput"
    batch_sizes: tuple[int, ...] = (1, 32)
    sure: float | None = None

    @property
    def batch_size(self) -> int:
        """The batch size of the target."""
        return min(self.batch_sizes) if self.target == "latency" else max(self.batch_sizes)

    def gain(self, row: Row) -> float:
        """The improvement over the reference in terms of the target, as a factor; for size, the inverse of the MB.

        From the row's own rounds with the reference: enough to decide what to try next."""
        if self.target == "size":
            return 1 / row.size_mb
        speed = row.speed(self.batch_size)
        return speed.p50_times if self.target == "latency" else speed.times


def ordered(rows: Sequence[Row], aim: Aim, paces: Paces) -> list[Row]:
    """The rows in the order of the table: best in terms of the target first."""
    return sorted(rows, key=lambda row: (-_gain(row, aim, paces)[1], row.name))


def within(row: Row, reference: Row, metric: Metric, aim: Aim) -> bool:
    """Whether a row is within the allowed loss; with `sure`, Row.drops must be known."""
    drop = metric.drop(row.score, reference.score) if aim.sure is None else row.likely_drop(aim.sure)
    return drop <= aim.max_drop + _ROUNDING


def select(rows: Sequence[Row], reference: Row, metric: Metric, aim: Aim, paces: Paces) -> Row:
    """The best row: the simplest of the `contenders`; of equally simple ones the best score, then the smaller graph."""

    def key(row: Row) -> tuple:
        return simplicity(row.candidate), metric.drop(row.score, reference.score), row.size_mb, -_speed(row, aim, paces)

    return min(contenders(rows, reference, metric, aim, paces), key=key)


def contenders(rows: Sequence[Row], reference: Row, metric: Metric, aim: Aim, paces: Paces) -> list[Row]:
    """The rows within the allowed loss that neither speed nor score tells from the best; the reference, which is one of
    `rows`, if no other qualifies.

    Speeds are alike if their spreads in the last round overlap, or if they differ by less than 3 %; sizes only if they
    are equal, and then the fastest count. Of rows alike in speed, those stay whose score dev cannot tell from the best.
    """
    allowed = [row for row in rows if within(row, reference, metric, aim)] or [reference]
    gains = {row.name: _gain(row, aim, paces) for row in allowed}
    low, most, _ = max(gains.values(), key=lambda gain: gain[1])
    if aim.target == "size":
        alike = [row for row in allowed if gains[row.name][1] == most]
        fastest = max(_speed(row, aim, paces) for row in alike)
        return [row for row in alike if _speed(row, aim, paces) >= fastest / (1 + ALIKE)]
    alike = [row for row in allowed if gains[row.name][2] >= low or gains[row.name][1] >= most / (1 + ALIKE)]
    first = min(alike, key=lambda row: metric.drop(row.score, reference.score))
    behind = {row.name: metric.drop(row.score, first.score) for row in alike}
    return [row for row in alike if behind[row.name] <= indistinct(row, first) + _ROUNDING]


def indistinct(one: Row, other: Row) -> float:
    """The points by which the scores of two rows may differ by chance: two standard errors.

    Only dev rows that are decided differently can be scored differently; these are at most the rows that one of both
    decides differently from the reference.
    """
    differing = min(1.0, 2.0 - one.agreement - other.agreement)
    return 2 * math.sqrt(differing / one.rows) / POINT


def _gain(row: Row, aim: Aim, paces: Paces) -> tuple[float, float, float]:
    """The figure that the target is about, larger is better, with its lower and upper end in the last round."""
    if aim.target == "size":
        return (1 / row.size_mb,) * 3
    pace = paces.of(row, aim.batch_size)
    gain = pace.p50_times if aim.target == "latency" else pace.times
    if pace.low is None or pace.high is None:
        return gain, gain, gain
    return gain * pace.low / pace.times, gain, gain * pace.high / pace.times


def _speed(row: Row, aim: Aim, paces: Paces) -> float:
    return paces.of(row, max(aim.batch_sizes)).times
