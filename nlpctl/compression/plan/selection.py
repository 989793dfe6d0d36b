"""Which candidate is the best: the fastest, or smallest, of those that lose no more than is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nlpctl.compression.plan.scores import Metric, Row

Target = Literal["throughput", "latency", "size"]
ALIKE = 0.03  # two speeds nearer than this cannot be told apart on a machine that does something else as well
_ROUNDING = 1e-6  # points


@dataclass(frozen=True)
class Aim:
    """What is wanted. `max_drop`: points that the score may lose against the reference; `target`: what counts then.

    throughput: samples per second at the largest of `batch_sizes`; latency: the median time of a batch of the
    smallest; size: of the graph on disk.
    """

    max_drop: float = 0.5
    target: Target = "throughput"
    batch_sizes: tuple[int, ...] = (1, 32)

    @property
    def batch_size(self) -> int:
        """The batch size that the target is about."""
        return min(self.batch_sizes) if self.target == "latency" else max(self.batch_sizes)

    def gain(self, row: Row) -> float:
        """How many times as good as the reference, in what the target is about; for size, per MB."""
        if self.target == "size":
            return 1 / row.size_mb
        speed = row.speed(self.batch_size)
        return speed.p50_times if self.target == "latency" else speed.times


def ordered(rows: Sequence[Row], aim: Aim) -> list[Row]:
    """The rows as a table shows them: what is best at what is aimed at first."""
    return sorted(rows, key=lambda row: (-aim.gain(row), row.name))


def within(row: Row, reference: Row, metric: Metric, aim: Aim) -> bool:
    """Whether a row loses no more than is allowed."""
    return metric.drop(row.score, reference.score) <= aim.max_drop + _ROUNDING


def select(rows: Sequence[Row], reference: Row, metric: Metric, aim: Aim) -> Row:
    """The best row; the reference, which is one of `rows`, where no other will do.

    Among speeds that are alike the better score counts, then the smaller graph; among graphs of one size the faster.
    """
    allowed = [row for row in rows if within(row, reference, metric, aim)] or [reference]
    most = max(aim.gain(row) for row in allowed)
    if aim.target == "size":
        largest = max(aim.batch_sizes)
        return max((row for row in allowed if aim.gain(row) == most), key=lambda row: row.speed(largest).times)
    alike = [row for row in allowed if aim.gain(row) >= most / (1 + ALIKE)]
    return min(alike, key=lambda row: (metric.drop(row.score, reference.score), row.size_mb, -aim.gain(row)))
