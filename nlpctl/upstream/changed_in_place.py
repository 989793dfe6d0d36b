"""What a PyLayer keeps for its gradient, and whether it was changed in place since."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paddle

_PADDLES = "has been modified by an inplace operation"  # of its own functions
_BEFORE = "before the gradient that needs it was computed"


class ChangedInPlace(RuntimeError):
    """A tensor that a gradient needs holds other numbers than those that were computed with."""


def save(ctx: Any, function: str, **tensors: paddle.Tensor) -> None:
    """`ctx.save_for_backward`; the names of function and tensors are for the message of `saved`.

    paddlepaddle 2.6.2 and 3.1.1, autograd/py_layer.py:91 (save_for_backward): it keeps the tensors alone. Paddle's own
    functions also keep inplace_version, and refuse to compute a gradient from numbers that have changed since; in a
    PyLayer the gradient is wrong without a word. Test: tests/upstream/test_py_layer.py.
    """
    ctx.save_for_backward(*tensors.values())
    ctx.versions = {f"the {name} of {function}": tensor.inplace_version for name, tensor in tensors.items()}


def saved(ctx: Any) -> tuple[paddle.Tensor, ...]:
    """The tensors of `save`. ChangedInPlace: one was changed since."""
    tensors = ctx.saved_tensor()
    for (name, version), tensor in zip(ctx.versions.items(), tensors, strict=True):
        if tensor.inplace_version != version:
            raise ChangedInPlace(f"{name} was changed in place {_BEFORE}")
    return tensors


def what_changed(error: BaseException) -> str | None:
    """What an error of a backward pass says of a change in place, as a sentence; None: it is about something else.

    What `saved` raises arrives as OSError, "(External) ChangedInPlace: ..."; Paddle's own is a RuntimeError.
    """
    text = str(error)
    if found := re.search(rf"{ChangedInPlace.__name__}: (.+)", text):
        return found[1].strip()
    return f"a tensor was changed in place {_BEFORE}" if _PADDLES in text else None
