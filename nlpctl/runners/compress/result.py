"""The result of a compression, for its reports and for the caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nlpctl.compression.plan.scores import Failure, Metric, Row, TestScore
from nlpctl.compression.plan.selection import Aim


@dataclass(frozen=True)
class CompressResult:
    """The output folder, the table, the failures with reasons, and the best row, also on test data."""

    folder: Path
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    metric: Metric
    aim: Aim
    reference: Row
    best: Row
    test: TestScore | None
