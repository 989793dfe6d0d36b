"""The functions that section compression of a recipe names: a loss for training, and a score for the choice.

`criterion` is the same as in PaddleNLP's Trainer. Its `custom_evaluate(model, data_loader)` runs a Paddle network. Here
a candidate may be a graph of ONNX Runtime, so `compression.evaluate` gets a function that predicts rows and returns
the answers that `nlpctl predict` would write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.config.schema import Recipe
from nlpctl.config.user_code import describe_error, import_code, kind_of_code
from nlpctl.errors import UserError
from nlpctl.training.user_loss import CRITERION, Loss, import_loss, user_loss

if TYPE_CHECKING:
    from nlpctl.tasks.base import Task

Rows = Sequence[Mapping[str, Any]]
Predict = Callable[[Rows], list[dict[str, Any]]]  # rows of the data file to the answers of `nlpctl predict`
Scores = dict[str, float]

OF_COMPRESSION, EVALUATE = kind_of_code("compression.criterion"), kind_of_code("compression.evaluate")


def check_user_code(recipe: Recipe) -> None:
    """UserError if a function that section compression names cannot be imported, or takes other arguments."""
    section = recipe.compression
    if section.criterion is not None:
        import_loss(OF_COMPRESSION, section.criterion)
    if section.evaluate is not None:
        import_code(EVALUATE, section.evaluate)


def label_loss(recipe: Recipe, task: Task) -> Loss:
    """The loss (network, outputs, labels) of a strategy that reads labels: compression.criterion, else that of the
    source's training.

    UserError: see `user_loss`.
    """
    for kind, name in ((OF_COMPRESSION, recipe.compression.criterion), (CRITERION, recipe.training.criterion)):
        if name is not None:
            return user_loss(kind, name, task)
    return task.loss


def user_scores(recipe: Recipe, predict: Predict, rows: Rows) -> Scores:
    """The scores of a candidate on labelled rows by compression.evaluate; {} if the recipe names no function.

    A single number is called "score". UserError if the function fails or returns anything else.
    """
    name = recipe.compression.evaluate
    if name is None:
        return {}
    function = import_code(EVALUATE, name)
    try:
        returned = function(predict, rows)
    except Exception as error:
        raise UserError(f"{name} failed: {describe_error(error, __file__)}", EVALUATE.key, "fix the function") from None
    scores = dict(returned) if isinstance(returned, Mapping) else {"score": returned}
    wrong = [key for key, value in scores.items() if not _is_number(value)]
    if wrong or not scores:
        message = f"{name} returned {returned!r}"[:200]
        raise UserError(message, EVALUATE.key, "return a number, or a dict of names and numbers")
    return {str(key): float(value) for key, value in scores.items()}


def _is_number(value: Any) -> bool:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    return number == number and not isinstance(value, str)
