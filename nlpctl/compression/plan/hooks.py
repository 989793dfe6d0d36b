"""User functions in a compression: a training loss, and a score for the choice.

`criterion` is the same as in PaddleNLP's Trainer. Its `custom_evaluate(model, data_loader)` runs a Paddle network. Here
a candidate may be a graph of ONNX Runtime, so `compression.evaluate` gets a function that predicts rows and returns
the answers that `nlpctl predict` would write.
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

_SPAN = ("start_positions", "end_positions")  # the labels that PaddleNLP passes to a criterion; our batches hold more
_CRITERION, _EVALUATE = "compression.criterion", "compression.evaluate"


def check_hooks(recipe: Recipe) -> None:
    """UserError if a function that section compression names cannot be imported."""
    section = recipe.compression
    if section.criterion is not None:
        import_function(section.criterion, _CRITERION, "a function (outputs, labels) that returns a loss")
    if section.evaluate is not None:
        import_function(section.evaluate, _EVALUATE, "a function (predict, rows) that returns a score")


def training_loss(recipe: Recipe, task: Task) -> Loss:
    """The loss (network, outputs, labels) of a strategy that reads labels: compression.criterion, else the task's.

    The criterion is called as in PaddleNLP's Trainer, with the network's outputs and the labels; each is a tensor if
    there is one, else a tuple. UserError if it fails or does not return a scalar.
    """
    name = recipe.compression.criterion
    if name is None:
        return task.loss
    function = import_function(name, _CRITERION, "a function (outputs, labels) that returns a loss")
    names = _SPAN if set(_SPAN) <= set(task.label_names) else task.label_names

    def loss(
        network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], labels: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        try:
            found = function(_plain(outputs), _plain([labels[each] for each in names]))
        except Exception as error:
            raise UserError(f"{name} failed: {raised(error, __file__)}", _CRITERION, "fix the function") from None
        if not hasattr(found, "backward") or found.size != 1:
            raise UserError(f"{name} returned no scalar tensor", _CRITERION, "return the mean loss of the batch")
        return found.reshape([])

    return loss


def own_scores(recipe: Recipe, predict: Predict, rows: Rows) -> Scores:
    """The scores of a candidate on labelled rows by compression.evaluate; {} if the recipe names no function.

    A single number is called "score". UserError if the function fails or returns anything else.
    """
    name = recipe.compression.evaluate
    if name is None:
        return {}
    function = import_function(name, _EVALUATE, "a function (predict, rows) that returns a score")
    try:
        found = function(predict, rows)
    except Exception as error:
        raise UserError(f"{name} failed: {raised(error, __file__)}", _EVALUATE, "fix the function") from None
    scores = dict(found) if isinstance(found, Mapping) else {"score": found}
    wrong = [key for key, value in scores.items() if not _is_number(value)]
    if wrong or not scores:
        message = f"{name} returned {found!r}"[:200]
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
