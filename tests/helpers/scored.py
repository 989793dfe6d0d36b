"""Rows of a compression's table, made up."""

from __future__ import annotations

from typing import Any

from nlpctl.compression.plan.scores import Row, Speed


def scored(candidate: str, score: float, times: float = 1.0, **given: Any) -> Row:
    """A row at batch sizes 1 and 32. `single`: times at batch 1; anything else is a field of Row."""
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
    return Row(candidate=candidate, score=score, speeds=speeds, **values)
