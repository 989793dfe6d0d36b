"""Parameter names that do not depend on networks built earlier in the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def fresh_parameter_names() -> Iterator[None]:
    """Build a network inside this, and its parameters are named as in a new process.

    A training that may be resumed in the same process needs all of it inside: the optimizer names its
    moments from the same counter, at its first step.

    paddlepaddle 2.6.2, base/unique_name.py:37: parameter names (linear_3.w_0) and optimizer moments
    (linear_3.w_0_moment1_0) come from a counter of the process. Optimizer states are keyed by them, so a
    second training in one process cannot resume from a checkpoint of the first: "Optimizer set error,
    embedding_21.w_0_moment1_0 should in state dict". Test: tests/upstream/test_parameter_names.py.
    """
    import paddle

    with paddle.utils.unique_name.guard():
        yield
