"""What is said of models whose scores are of no use, where they were not just trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl import console
from nlpctl.errors import Problem
from nlpctl.tasks.useless import told_useless

HINT = (
    "compare its labels with those of the data, or train it anew: `nlpctl train RECIPE --overfit-batch` tells whether "
    "it can learn at all, and docs/guards.md what to check"
)


def warn_of_useless(task: str, reports: Mapping[str, Mapping[str, Any]], model: str = "this model") -> None:
    """Warn of the splits that `model` is of no use on. `reports`: by split."""
    for split, report in reports.items():
        if told := told_useless(task, report):
            console.warn(str(Problem(f"{model} is of no use on {split}: {told}", hint=HINT)))
