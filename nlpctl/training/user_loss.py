"""A loss function of the user's own, named as module:function, called as the criterion of PaddleNLP's Trainer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.data.functions import import_function, raised
from nlpctl.errors import UserError

if TYPE_CHECKING:
    import paddle

    from nlpctl.tasks.base import Task

Loss = Callable[..., "paddle.Tensor"]  # (network, outputs, labels): as Task.loss

# PaddleNLP passes these two labels to a criterion; the batches of nlpctl hold more.
_SPAN = ("start_positions", "end_positions")


def import_loss(name: str, where: str) -> Callable[..., Any]:
    """The function that `name` names. UserError for the key `where` if it cannot be imported."""
    return import_function(name, where, "a function (outputs, labels) that returns a loss")


def user_loss(name: str, where: str, task: Task) -> Loss:
    """The loss (network, outputs, labels) that the function `name` of the key `where` computes.

    The function gets the network's outputs and the labels; each is a tensor if there is one, else a tuple. It returns
    a scalar. UserError if it cannot be imported; the loss raises UserError if it fails or returns anything else.
    """
    function = import_loss(name, where)
    names = _SPAN if set(_SPAN) <= set(task.label_names) else task.label_names

    def loss(
        network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], labels: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        try:
            found = function(_plain(outputs), _plain([labels[each] for each in names]))
        except Exception as error:
            raise UserError(f"{name} failed: {raised(error, __file__)}", where, "fix the function") from None
        if not hasattr(found, "backward") or found.size != 1:
            raise UserError(f"{name} returned no scalar tensor", where, "return the mean loss of the batch")
        return found.reshape([])

    return loss


def _plain(tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
