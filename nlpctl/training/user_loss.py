"""A loss function of the user's own, named as module:function, called as the criterion of PaddleNLP's Trainer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.config.user_code import CodeKind, check_call, describe_error, import_function, kind_of_code
from nlpctl.errors import UserError
from nlpctl.training.oom import is_out_of_memory

if TYPE_CHECKING:
    import paddle

    from nlpctl.tasks.base import Task

Loss = Callable[..., "paddle.Tensor"]  # (network, outputs, labels): as Task.loss
CRITERION = kind_of_code("training.criterion")

# PaddleNLP passes these two labels to a criterion; the batches of nlpctl hold more.
_SPAN = ("start_positions", "end_positions")


def import_loss(kind: CodeKind, name: str) -> Callable[..., Any]:
    """`import_code` for a criterion, which may be a class, such as paddle.nn:CrossEntropyLoss: then an object of it."""
    function = import_function(name, kind.key, kind.purpose)
    if isinstance(function, type):
        check_call(function, (), name, kind.key)
        function = function()
    check_call(function, ("outputs", "labels"), name, kind.key)
    return function


def criterion_labels(task: Task) -> tuple[str, ...]:
    """The entries of a batch that a criterion, or compute_metrics, gets as labels."""
    return _SPAN if set(_SPAN) <= set(task.label_names) else task.label_names


def user_loss(kind: CodeKind, name: str, task: Task) -> Loss:
    """The loss (network, outputs, labels) that the criterion `name` computes.

    The function gets the network's outputs and the labels; each is a tensor if there is one, else a tuple. It returns
    a scalar. UserError if it cannot be imported; the loss raises UserError if it fails or returns anything else.
    """
    function = import_loss(kind, name)
    names = criterion_labels(task)

    def loss(
        network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], labels: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        try:
            value = function(plain(outputs), plain([labels[each] for each in names]))
        except Exception as error:
            if is_out_of_memory(error):  # training goes on in smaller parts
                raise
            raise UserError(f"{name} failed: {describe_error(error, __file__)}", kind.key, "fix the function") from None
        if not hasattr(value, "backward") or value.size != 1:
            raise UserError(f"{name} returned no scalar tensor", kind.key, "return the mean loss of the batch")
        return value.reshape([])

    return loss


def plain(tensors: Sequence[Any]) -> Any:
    """What user code gets of outputs or labels: the only one by itself, several as a tuple."""
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
