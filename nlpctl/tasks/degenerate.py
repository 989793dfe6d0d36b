"""Whether the scores of a model say that it is degenerate, and so of no use: it answers all rows alike, or never right.

Also what is said of such scores where it was not just trained (training/plateau.py says more). Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import scores, task_info
from nlpctl.errors import Problem
from nlpctl.names import and_more
from nlpctl.report.language import Later, later

HINT = (
    "compare its labels with those of the data, or train it anew: `nlpctl train RECIPE --overfit-batch` tells whether "
    "it can learn at all, and docs/guards.md what to check"
)
LEAST_OTHERS = 5  # rows with another label, below which one answer to all rows may be chance


def degenerate_reason(task: str, report: Mapping[str, Any], watched: str | None = None) -> Later | None:
    """What is wrong with a model of `task` that has this report of a split, in a sentence; None: nothing is known.

    `watched`: another score that may not be 0, such as the one that chose the model.
    """
    labels = report.get("labels", {})
    expected = {name: figures.get("support", 0) for name, figures in labels.items()}
    if "labels" in report and not sum(expected.values()):
        return None  # there was nothing to find
    if "micro_f1" in report and "accuracy" in report:  # one label for each row
        rows = report.get("rows")
        for name, figures in labels.items():
            right = figures["recall"] * expected[name]
            given = right / figures["precision"] if figures["precision"] else 0.0
            if round(given) == rows and rows - expected[name] >= LEAST_OTHERS:
                others = rows - expected[name]
                return later("all {:,} rows get the label {!r}, and {:,} have another one", rows, name, others)
    info = task_info(task)
    rising = [name for name in scores(task) if info.greater_is_better(name) and name in report]
    telling = next(([name] for name in ("micro_f1", "f1") if name in rising), rising)
    if telling and all(report[name] == 0 for name in telling):
        return later("{} is 0", telling[0])
    if watched is not None and info.greater_is_better(watched) and report.get(watched) == 0:
        return later("{} is 0", watched)
    return None


def useless_on(recipe: Recipe, reports: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    """The first split, and why a model that was trained by `recipe` is of no use on it; None: nothing is known, or the
    recipe does not ask."""
    if recipe.guards.not_learning == "ignore" or not reports:
        return None
    split, watched = next(iter(reports)), recipe.training.metric_for_best_model
    reason = degenerate_reason(recipe.task, reports[split], None if watched is None else watched.removeprefix("eval_"))
    return None if reason is None else (split, reason)


def warn_of_degenerate(task: str, reports: Mapping[str, Mapping[str, Any]], model: str = "this model") -> None:
    """Warn of the splits that `model` is of no use on. `reports`: by split."""
    for split, report in reports.items():
        if reason := degenerate_reason(task, report):
            console.warn(str(Problem(f"{model} is of no use on {split}: {reason}", hint=HINT)))


def warn_of_missing_labels(task: str, split: str, report: Mapping[str, Any]) -> None:
    """Warn of labels that `split` has no row of, and that its macro F1 counts as 0 all the same."""
    if "macro_f1" not in report or task_info(task).tags:  # taggers count the types that are there
        return
    missing = [repr(name) for name, figures in report.get("labels", {}).items() if not figures["support"]]
    if missing:
        as_zero = f"macro_f1 counts {'it' if len(missing) == 1 else 'them'} as 0"
        console.warn(f"{split} has no row of the label {and_more(missing)}: {as_zero}")
