"""What is said of scores that are of no use, or lower than the model, where it was not just trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl import console
from nlpctl.config.tasks import task_info
from nlpctl.errors import Problem
from nlpctl.names import and_more
from nlpctl.tasks.useless import useless_reason

HINT = (
    "compare its labels with those of the data, or train it anew: `nlpctl train RECIPE --overfit-batch` tells whether "
    "it can learn at all, and docs/guards.md what to check"
)


def warn_of_useless(task: str, reports: Mapping[str, Mapping[str, Any]], model: str = "this model") -> None:
    """Warn of the splits that `model` is of no use on. `reports`: by split."""
    for split, report in reports.items():
        if told := useless_reason(task, report):
            console.warn(str(Problem(f"{model} is of no use on {split}: {told}", hint=HINT)))


def warn_of_missing_labels(task: str, split: str, report: Mapping[str, Any]) -> None:
    """Warn of labels that `split` has no row of, and that its macro F1 counts as 0 all the same."""
    if "macro_f1" not in report or task_info(task).tags:  # taggers count the types that are there
        return
    missing = [repr(name) for name, figures in report.get("labels", {}).items() if not figures["support"]]
    if missing:
        as_zero = f"macro_f1 counts {'it' if len(missing) == 1 else 'them'} as 0"
        console.warn(f"{split} has no row of the label {and_more(missing)}: {as_zero}")
