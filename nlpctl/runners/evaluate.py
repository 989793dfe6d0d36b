"""`nlpctl eval`: the scores of a trained model on labelled data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.data.examples import ExampleList
from nlpctl.data.sources import has_split, open_split
from nlpctl.data.splits import read_labelled_split
from nlpctl.errors import UserError
from nlpctl.runners.trained import TrainedModel, find_trained_model, open_trained_model
from nlpctl.runtime.interrupt import sigterm_interrupts


@dataclass(frozen=True)
class EvalResult:
    """The model that was scored, and its report per split as in metrics.json."""

    model: str
    metrics: dict[str, Any]


def evaluate(recipe: Recipe, splits: Sequence[str] = ()) -> EvalResult:
    """Score the recipe's trained model on `splits`; by default on dev and test, as far as there are any.

    Raises UserError when there is no trained model, no data, or a bad row (by data.on_bad_row).
    """
    source = find_trained_model(recipe)
    wanted = tuple(splits) or tuple(split for split in ("dev", "test") if has_split(recipe.data, split))
    missing = [split for split in wanted if not has_split(recipe.data, split)]
    if missing or not wanted:
        name = missing[0] if missing else "test"
        raise UserError(f"there is no {name} data", where=f"data.{name}", hint=f"give it: --set data.{name}=FILE")
    if recipe.data.dataset is None:  # a named data set may import Paddle
        for split in wanted:
            open_split(recipe.data, split)  # a missing file is told before Paddle is imported
    model = open_trained_model(recipe, source)
    with sigterm_interrupts():
        return EvalResult(source, {split: _score_split(recipe, model, split) for split in wanted})


def _score_split(recipe: Recipe, model: TrainedModel, split: str) -> dict[str, Any]:
    examples, _, _ = read_labelled_split(recipe.data, split, model.task.labels)
    return score(model, examples, recipe.training.per_device_eval_batch_size)


def score(model: TrainedModel, examples: ExampleList, batch_size: int) -> dict[str, Any]:
    """The task's full report of `model` on labelled `examples`."""
    import numpy as np

    from nlpctl.inference.predictor import logits_in_order

    logits = logits_in_order(model.predictor, model.collate, examples, batch_size)
    return model.task.report(logits, np.asarray(examples.labels))
