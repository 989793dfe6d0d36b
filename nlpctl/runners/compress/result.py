"""The result of a compression, for its reports and for the caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nlpctl.compression.plan.one_scale import Paces
from nlpctl.compression.plan.scores import Failure, Metric, Row, TestScore
from nlpctl.compression.plan.selection import Aim
from nlpctl.errors import NlpctlError


@dataclass(frozen=True)
class CompressResult:
    """The output folder, the table, the failures with reasons, and the best row, also on test data; the
    speeds of all rows on one scale.

    `failed`: the first error, if nothing that was asked for could be made.
    """

    folder: Path
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    metric: Metric
    aim: Aim
    reference: Row
    best: Row
    test: TestScore | None
    paces: Paces
    failed: NlpctlError | None = None

    def is_uncompressed(self, row: Row) -> bool:
        """Whether a row is the uncompressed network, in whatever engine and precision."""
        return row.candidate == self.reference.candidate
