"""What a compression found: for its reports, and for who called it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nlpctl.compression.plan.scores import Failure, Metric, Row, TestScore
from nlpctl.compression.plan.selection import Aim


@dataclass(frozen=True)
class CompressResult:
    """Where everything lies, the table, what is missing in it and why, and the best row, also on test data."""

    folder: Path
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    metric: Metric
    aim: Aim
    reference: Row
    best: Row
    test: TestScore | None
