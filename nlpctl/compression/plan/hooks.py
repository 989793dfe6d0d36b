"""Code of the user's own in a compression: a loss to train with, and a score to choose by.

What PaddleNLP's Trainer calls `criterion` is the same here. Its `custom_evaluate(model, data_loader)` runs a network of
Paddle; a candidate here may be a graph of ONNX Runtime, so `compression.evaluate` is handed a function that answers
rows, and what it gets back is what `nlpctl predict` would write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.config.schema import Recipe
from nlpctl.data.functions import import_function, raised
from nlpctl.errors import UserError

if TYPE_CHECKING:
    import paddle

    from nlpctl.tasks.base import Task

Loss = Callable[..., "paddle.Tensor"]  # (network, outputs, labels): as Task.loss
Rows = Sequence[Mapping[str, Any]]
Predict = Callable[[Rows], list[dict[str, Any]]]  # rows of the data file to the answers of `nlpctl predict`
Scores = dict[str, float]

_SPAN = ("start_positions", "end_positions")  # PaddleNLP's labels of an answer; our batches hold more
_CRITERION, _EVALUATE = "compression.criterion", "compression.evaluate"


def check_hooks(recipe: Recipe) -> None:
    """UserError where a function that section compression names cannot be imported."""
    section = recipe.compression
    if section.criterion is not None:
        import_function(section.criterion, _CRITERION, "a function of (outputs, labels) that gives a loss")
    if section.evaluate is not None:
        import_function(section.evaluate, _EVALUATE, "a function of (predict, rows) that gives a score")


def training_loss(recipe: Recipe, task: Task) -> Loss:
    """The loss (network, outputs, labels) of a strategy that reads labels: compression.criterion, else the task's.

    The criterion is called as PaddleNLP's Trainer calls one: with the outputs as the network gives them, and with the
    labels; each is a tensor where there is one, else a tuple. UserError where it fails or gives no scalar.
    """
    name = recipe.compression.criterion
    if name is None:
        return task.loss
    function = import_function(name, _CRITERION, "a function of (outputs, labels) that gives a loss")
    names = _SPAN if set(_SPAN) <= set(task.label_names) else task.label_names

    def loss(
        network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], labels: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        try:
            found = function(_plain(outputs), _plain([labels[each] for each in names]))
        except Exception as error:
            raise UserError(f"{name} failed: {raised(error, __file__)}", _CRITERION, "mend the function") from None
        if not hasattr(found, "backward") or found.size != 1:
            raise UserError(f"{name} gave no scalar tensor", _CRITERION, "return the mean loss of the batch")
        return found.reshape([])

    return loss


def own_scores(recipe: Recipe, predict: Predict, rows: Rows) -> Scores:
    """What compression.evaluate says of a candidate on labelled rows; {} where the recipe names none.

    A single number is called "score". UserError where the function fails, or gives something else.
    """
    name = recipe.compression.evaluate
    if name is None:
        return {}
    function = import_function(name, _EVALUATE, "a function of (predict, rows) that gives a score")
    try:
        found = function(predict, rows)
    except Exception as error:
        raise UserError(f"{name} failed: {raised(error, __file__)}", _EVALUATE, "mend the function") from None
    scores = dict(found) if isinstance(found, Mapping) else {"score": found}
    wrong = [key for key, value in scores.items() if not _is_number(value)]
    if wrong or not scores:
        message = f"{name} gave {found!r}"[:200]
        raise UserError(message, _EVALUATE, "return a number, or a dict of names and numbers")
    return {str(key): float(value) for key, value in scores.items()}


def _plain(tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _is_number(value: Any) -> bool:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    return number == number and not isinstance(value, str)
