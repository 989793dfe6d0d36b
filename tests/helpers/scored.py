"""Rows of a compression's table, made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nlpctl.compress.scores import CandidateScore, Speed
from nlpctl.compress.timing import LastRound, RelativeSpeeds, relative_speeds


def scored(candidate: str, score: float, times: float = 1.0, **given: Any) -> CandidateScore:
    """A row at batch sizes 1 and 32. `single`: times at batch 1; anything else is a field of CandidateScore."""
    single = given.pop("single", times)
    speeds = (
        Speed(1, 100 * single, 10 / single, single, single),
        Speed(32, 500 * times, 64 / times, times, times),
    )
    values = {
        "folder": f"/work/{candidate}",
        "engine": "paddle",
        "precision": "fp32",
        "method": None,
        "report": {"rows": 200, "accuracy": score, "labels": {"x": {}}},
        "difference": 0.01,
        "agreement": 0.995,
        "size_mb": 80.0,
        "peak_mb": 700.0,
        "load_seconds": 1.5,
        "seconds": 9.0,
        **given,
    }
    return CandidateScore(candidate=candidate, score=score, speeds=speeds, **values)


def speeds_of(rows: Sequence[CandidateScore], last: LastRound | None = None) -> RelativeSpeeds:
    """The speeds of rows of which the first is the reference."""
    return relative_speeds(rows, rows[0], 0.99, last)


def rounds_of(rows: Sequence[CandidateScore], *factors: dict[str, float]) -> LastRound:
    """A last round of one batch: each row as fast as it was before, times its factor in a round."""
    rounds = [
        {
            row.name: {
                speed.batch_size: [speed.batch_size / speed.samples_per_second / factor.get(row.candidate, 1.0)]
                for speed in row.speeds
            }
            for row in rows
        }
        for factor in factors
    ]
    return LastRound(tuple(rounds))
