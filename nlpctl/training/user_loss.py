"""A loss function of the user's own, named as module:function, called as the criterion of PaddleNLP's Trainer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.config.user_code import check_call, describe_error, import_function
from nlpctl.errors import UserError
from nlpctl.training.oom import is_out_of_memory

if TYPE_CHECKING:
    import paddle

    from nlpctl.tasks.base import Task

Loss = Callable[..., "paddle.Tensor"]  # (network, outputs, labels): as Task.loss

# PaddleNLP passes these two labels to a criterion; the batches of nlpctl hold more.
_SPAN = ("start_positions", "end_positions")


def import_loss(name: str, where: str) -> Callable[..., Any]:
    """The function that `name` names; of a class, such as paddle.nn:CrossEntropyLoss, an object.

    UserError for the key `where` if it cannot be imported, or takes other arguments.
    """
    function = import_function(name, where, "a function (outputs, labels) that returns a loss")
    if isinstance(function, type):
        check_call(function, (), name, where)
        function = function()
    check_call(function, ("outputs", "labels"), name, where)
    return function


def criterion_labels(task: Task) -> tuple[str, ...]:
    """The entries of a batch that a criterion, or compute_metrics, gets as labels."""
    return _SPAN if set(_SPAN) <= set(task.label_names) else task.label_names


def user_loss(name: str, where: str, task: Task) -> Loss:
    """The loss (network, outputs, labels) that the function `name` of the key `where` computes.

    The function gets the network's outputs and the labels; each is a tensor if there is one, else a tuple. It returns
    a scalar. UserError if it cannot be imported; the loss raises UserError if it fails or returns anything else.
    """
    function = import_loss(name, where)
    names = criterion_labels(task)

    def loss(
        network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], labels: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        try:
            value = function(plain(outputs), plain([labels[each] for each in names]))
        except Exception as error:
            if is_out_of_memory(error):  # training goes on in smaller parts
                raise
            raise UserError(f"{name} failed: {describe_error(error, __file__)}", where, "fix the function") from None
        if not hasattr(value, "backward") or value.size != 1:
            raise UserError(f"{name} returned no scalar tensor", where, "return the mean loss of the batch")
        return value.reshape([])

    return loss


def plain(tensors: Sequence[Any]) -> Any:
    """What user code gets of outputs or labels: the only one by itself, several as a tuple."""
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
