"""The choice of the best candidate: the fastest or smallest among those within the allowed loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nlpctl.compression.plan.scores import Metric, Row

Target = Literal["throughput", "latency", "size"]
ALIKE = 0.03  # relative difference below which two speeds count as equal, given other load on the machine
_ROUNDING = 1e-6  # points


@dataclass(frozen=True)
class Aim:
    """The criterion of the choice. `max_drop`: allowed loss in points against the reference; `target`: what to
    optimise.

    throughput: samples per second at the largest of `batch_sizes`; latency: the median time of a batch of the
    smallest; size: of the graph on disk.
    """

    max_drop: float = 0.5
    target: Target = "throughput"
    batch_sizes: tuple[int, ...] = (1, 32)

    @property
    def batch_size(self) -> int:
        """The batch size of the target."""
        return min(self.batch_sizes) if self.target == "latency" else max(self.batch_sizes)

    def gain(self, row: Row) -> float:
        """The improvement over the reference in terms of the target, as a factor; for size, the inverse of the MB."""
        if self.target == "size":
            return 1 / row.size_mb
        speed = row.speed(self.batch_size)
        return speed.p50_times if self.target == "latency" else speed.times


def ordered(rows: Sequence[Row], aim: Aim) -> list[Row]:
    """The rows in the order of the table: best in terms of the target first."""
    return sorted(rows, key=lambda row: (-aim.gain(row), row.name))


def within(row: Row, reference: Row, metric: Metric, aim: Aim) -> bool:
    """Whether a row is within the allowed loss."""
    return metric.drop(row.score, reference.score) <= aim.max_drop + _ROUNDING


def select(rows: Sequence[Row], reference: Row, metric: Metric, aim: Aim) -> Row:
    """The best row; the reference, which is one of `rows`, if no other qualifies.

    Among equal speeds the better score wins, then the smaller graph; among graphs of one size the faster.
    """
    allowed = [row for row in rows if within(row, reference, metric, aim)] or [reference]
    most = max(aim.gain(row) for row in allowed)
    if aim.target == "size":
        largest = max(aim.batch_sizes)
        return max((row for row in allowed if aim.gain(row) == most), key=lambda row: row.speed(largest).times)
    alike = [row for row in allowed if aim.gain(row) >= most / (1 + ALIKE)]
    return min(alike, key=lambda row: (metric.drop(row.score, reference.score), row.size_mb, -aim.gain(row)))
