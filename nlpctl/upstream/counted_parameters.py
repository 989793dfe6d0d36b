"""The size of a network while it is built."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def counted_parameters(tell: Callable[[int], None]) -> Iterator[None]:
    """Inside the context, `tell` gets the numbers in all parameters so far before each takes its memory; it may raise.

    paddlepaddle 2.6.2, base/layer_helper_base.py:329: a parameter is filled as soon as it is made, and nothing tells
    its shape before. paddle.LazyGuard would leave it empty, but PaddleNLP's networks set the weights of their tables
    while they are built. The counter is the process's: contexts in several threads must not overlap.
    Test: tests/upstream/test_counted_parameters.py.
    """
    from paddle.base.layer_helper_base import LayerHelperBase  # behind Layer.create_parameter and the function

    create, numbers = LayerHelperBase.create_parameter, 0

    def counted(helper: Any, attr: Any, shape: Sequence[int], *arguments: Any, **more: Any) -> Any:
        nonlocal numbers
        numbers += math.prod(map(int, shape))
        tell(numbers)
        return create(helper, attr, shape, *arguments, **more)

    LayerHelperBase.create_parameter = counted
    try:
        yield
    finally:
        LayerHelperBase.create_parameter = create
