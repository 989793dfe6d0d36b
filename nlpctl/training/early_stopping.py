"""When a training ends before its last step, by its scores on dev: early stopping, and the pruner of a sweep's trials.
Imports no Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nlpctl.config.schema import EarlyStoppingSection, Recipe
from nlpctl.config.tasks import task_info


@dataclass(frozen=True)
class Patience:
    """Ends a training after `section.patience` evaluations without an improvement of `metric`, such as eval_accuracy.
    """

    section: EarlyStoppingSection
    metric: str
    greater_is_better: bool

    def exhausted(self, history: Iterable[Mapping[str, Any]]) -> bool:
        """Whether the last evaluations of `history`, the Trainer's log, brought no improvement."""
        sign = 1.0 if self.greater_is_better else -1.0
        best, waited = None, 0
        for entry in history:
            if self.metric in entry:
                value = sign * entry[self.metric]
                # NaN, such as a correlation of equal predictions, is never an improvement.
                improved = value == value and (best is None or value > best + self.section.min_delta)
                best, waited = (value, 0) if improved else (best, waited + 1)
        patience = self.section.patience
        return patience is not None and waited >= patience


def patience_of(recipe: Recipe) -> Patience | None:
    """The recipe's; it watches metric_for_best_model, or as PaddleNLP the loss. None: there is no early stopping."""
    if recipe.early_stopping.patience is None:
        return None
    metric = recipe.training.metric_for_best_model or "loss"
    greater = recipe.training.greater_is_better
    if greater is None:
        greater = task_info(recipe.task).greater_is_better(metric)
    return Patience(recipe.early_stopping, f"eval_{metric.removeprefix('eval_')}", greater)


@dataclass(frozen=True)
class TrialPruner:
    """Says after each evaluation whether a training is worth going on with: `worth(number of the evaluation, from 1;
    its score)`. `metric`: the score, such as f1."""

    metric: str
    worth: Callable[[int, float], bool]
