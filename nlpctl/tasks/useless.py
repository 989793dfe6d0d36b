"""Whether the scores of a model say that it is of no use. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl.config.tasks import scores, task_info

LEAST_OTHERS = 5  # rows with another label, below which one answer to all rows may be chance


def useless_reason(task: str, report: Mapping[str, Any], watched: str | None = None) -> str | None:
    """What is wrong with a model of `task` that has this report of a split, in a sentence; None: nothing is known.

    `watched`: another score that may not be 0, such as the one that chose the model.
    """
    labels = report.get("labels", {})
    expected = {name: figures.get("support", 0) for name, figures in labels.items()}
    if "labels" in report and not sum(expected.values()):
        return None  # there was nothing to find
    if "micro_f1" in report and "accuracy" in report:  # one label for each row
        rows = report["rows"]
        for name, figures in labels.items():
            right = figures["recall"] * expected[name]
            given = right / figures["precision"] if figures["precision"] else 0.0
            if round(given) == rows and rows - expected[name] >= LEAST_OTHERS:
                return f"all {rows:,} rows get the label {name!r}, and {rows - expected[name]:,} have another one"
    info = task_info(task)
    rising = [name for name in scores(task) if info.greater_is_better(name) and name in report]
    telling = next(([name] for name in ("micro_f1", "f1") if name in rising), rising)
    if telling and all(report[name] == 0 for name in telling):
        return f"{telling[0]} is 0"
    if watched is not None and info.greater_is_better(watched) and report.get(watched) == 0:
        return f"{watched} is 0"
    return None
