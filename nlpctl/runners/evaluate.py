"""`nlpctl eval`: the scores of a trained model on labelled data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import SPLITS, has_split, open_split
from nlpctl.data.splits import read_labelled_split
from nlpctl.data.task_rows import TaskRows, task_rows
from nlpctl.errors import UserError
from nlpctl.runners.open_model import find_model, open_trained_model, set_up_to_answer
from nlpctl.runtime.interrupt import sigterm_interrupts

if TYPE_CHECKING:
    from nlpctl.inference.trained import TrainedModel


@dataclass(frozen=True)
class EvalResult:
    """The model that was scored, and its report per split as in metrics.json."""

    model: str
    metrics: dict[str, Any]


def evaluate(recipe: Recipe, splits: Sequence[str] = ()) -> EvalResult:
    """Score the recipe's trained model on `splits`; by default on dev and test, if they exist.

    Raises UserError for an unknown split, a missing model or data, or a bad row (by data.on_bad_row).
    """
    for name in splits:
        if name not in SPLITS:
            raise UserError(f"there is no split {name!r}", where="--split", hint=f"one of {', '.join(SPLITS)}")
    source = find_model(recipe)
    wanted = tuple(splits) or tuple(split for split in ("dev", "test") if has_split(recipe.data, split))
    missing = [split for split in wanted if not has_split(recipe.data, split)]
    if missing or not wanted:
        name = missing[0] if missing else "test"
        hint = f"give it: nlpctl eval MODEL FILE, or --set data.{name}=FILE"
        raise UserError(f"there is no {name} data", where=f"data.{name}", hint=hint)
    rows = task_rows(recipe.task, recipe.data)
    if recipe.data.dataset is None:  # a named data set may import Paddle
        for split in wanted:
            open_split(rows, split)  # reports a missing file before Paddle is imported
    batch_size, count = recipe.training.per_device_eval_batch_size, partial(_count, rows, wanted)
    model = open_trained_model(recipe, set_up_to_answer(recipe, source), source, batch_size, count)
    require_scorable(model)
    with sigterm_interrupts():
        scores = {split: _score_split(rows, model, split, recipe) for split in wanted}
    return EvalResult(source, scores)


def _count(rows: TaskRows, splits: Sequence[str]) -> int:
    return sum(1 for split in splits for _ in open_split(rows, split))


def require_scorable(model: TrainedModel) -> None:
    """UserError for an engine whose outputs do not suffice for the task's scores."""
    if model.predictor.engine != "dygraph" and not model.task.graph_scores:
        hint = "score the model folder with --engine dygraph"
        raise UserError(f"a graph of {model.task.name} gives predictions that cannot be scored", "--engine", hint)


def _score_split(rows: TaskRows, model: TrainedModel, split: str, recipe: Recipe) -> dict[str, Any]:
    examples, _, _ = read_labelled_split(rows, split, model.task.labels)
    return score(model, examples, recipe.training.per_device_eval_batch_size)


def score(model: TrainedModel, examples: Sequence[Any], batch_size: int) -> dict[str, Any]:
    """The task's report on labelled examples, as metrics.json has it for a split."""
    return model.task.report(examples, model.predictions(examples, batch_size))
