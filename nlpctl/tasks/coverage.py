"""How many decisions a least confidence keeps, and how many of these are right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nlpctl.tasks.confidence import Confidences
from nlpctl.tasks.intervals import Interval, intervals
from nlpctl.tasks.tallies import make_tallies

LEAST_KEPT = 20  # decisions on which a threshold for a precision may rest


def least_confidence(decisions: Confidences, precision: float) -> float | None:
    """The least confidence from which on at least this share of the decisions is right; None if there is none.

    At least LEAST_KEPT decisions lie above it. It has as many decimals as the probabilities in answers.
    """
    confidence = decisions.keep_threshold
    order = np.argsort(-confidence, kind="stable")
    sure, right = confidence[order], np.cumsum(decisions.right[order])
    kept = np.arange(1, len(sure) + 1)
    last = np.append(sure[1:] < sure[:-1], True)  # equal confidences are kept or left together
    good = np.flatnonzero((right / kept >= precision) & (kept >= LEAST_KEPT) & last)
    return float(sure[good[-1]]) if len(good) else None


@dataclass(frozen=True)
class Coverage:
    """The decisions of a split that are at least so sure: their share of all and how many of them are right, with the
    95 % intervals of both."""

    min_confidence: float
    decisions: int
    coverage: float
    coverage_interval: Interval | None
    precision: float | None
    precision_interval: Interval | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Target:
    """The least confidence with which at least a share `precision` of the decisions on dev is right, and what it keeps
    of each split; None: there is none."""

    precision: float
    min_confidence: float | None
    kept: dict[str, Coverage]


def coverage_at(decisions: Confidences, least: float, groups: np.ndarray | None) -> Coverage:
    """What `least` as the least confidence keeps. Rows are drawn for the intervals, with all of their decisions, and
    rows with an equal number in `groups` together."""
    kept = decisions.keep_threshold >= least
    rows = int(decisions.rows.max()) + 1 if groups is None else len(groups)
    sums = [np.bincount(decisions.rows, each, rows) for each in (kept & decisions.right, kept, np.ones(len(kept)))]
    table = make_tallies("kept", (), np.column_stack(sums), np.zeros(rows, bool), [""] * rows, groups)
    bounds = intervals(table)
    right = float(decisions.right[kept].mean()) if kept.any() else None
    coverage_and_precision = bounds.get("coverage"), bounds.get("precision") if kept.any() else None
    return Coverage(least, len(kept), float(kept.mean()), coverage_and_precision[0], right, coverage_and_precision[1])
