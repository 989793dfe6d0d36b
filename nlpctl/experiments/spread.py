"""The scores of several runs: mean and spread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from nlpctl.layout import TRUNCATED
from nlpctl.report.model import Table
from nlpctl.report.score_tables import figures

_COUNTS = ("rows", TRUNCATED)


@dataclass(frozen=True)
class Spread:
    """One score of several runs. `deviation`: the standard deviation between runs (n - 1); None of a single run."""

    mean: float
    deviation: float | None
    least: float
    most: float
    runs: int


def spread(values: Sequence[float]) -> Spread:
    """`values`: the score of each run, at least one."""
    deviation = stdev(values) if len(values) > 1 else None
    return Spread(fmean(values), deviation, min(values), max(values), len(values))


def spreads(metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Spread]]:
    """Per split the spread of each score over the runs that have it. `metrics`: run -> split -> report."""
    found: dict[str, dict[str, list[float]]] = {}
    for splits in metrics.values():
        for split, report in splits.items():
            for score, value in figures(report).items():
                if score not in _COUNTS and math.isfinite(value):
                    found.setdefault(split, {}).setdefault(score, []).append(float(value))
    return {split: {score: spread(values) for score, values in each.items()} for split, each in found.items()}


def as_json(found: Mapping[str, Mapping[str, Spread]]) -> dict[str, dict[str, dict[str, Any]]]:
    return {split: {score: asdict(each) for score, each in scores.items()} for split, scores in found.items()}


def spread_tables(found: Mapping[str, Mapping[str, Spread]]) -> Iterator[Table]:
    """A table per split."""
    for split, scores in found.items():
        runs = max(each.runs for each in scores.values())
        rows = [[name, each.mean, each.deviation, each.least, each.most] for name, each in scores.items()]
        yield Table(["score", "mean", "standard deviation", "least", "most"], rows, f"{split}, {runs} runs")
