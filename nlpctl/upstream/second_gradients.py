"""Paddle's PyLayer cannot compute its gradient twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import paddle


@contextlib.contextmanager
def one_gradient(refuse: Callable[[str], Any]) -> Iterator[None]:
    """In the body, `refuse` is called with retain_graph or create_graph where one of these is asked for: it raises.

    paddlepaddle 2.6.2 and 3.1.1: the gradient of a PyLayer that is computed a second time ends the process with a
    segmentation fault, and a gradient of its gradient is not recorded. So code of the user's own, which may ask for
    either, is refused it while nlpctl's PyLayers are in place. Test: tests/upstream/test_py_layer.py.
    """
    eager = paddle.base.core.eager
    backward, partial = eager.run_backward, eager.run_partial_grad

    def run_backward(tensors: Any, gradients: Any, retain_graph: bool) -> Any:
        if retain_graph:
            refuse("retain_graph")
        return backward(tensors, gradients, retain_graph)

    def run_partial_grad(
        outputs: Any, inputs: Any, gradients: Any, retain_graph: bool, create_graph: bool, *others: Any
    ) -> Any:
        if create_graph:
            refuse("create_graph")
        if retain_graph:
            refuse("retain_graph")
        return partial(outputs, inputs, gradients, retain_graph, create_graph, *others)

    eager.run_backward, eager.run_partial_grad = run_backward, run_partial_grad
    try:
        yield
    finally:
        eager.run_backward, eager.run_partial_grad = backward, partial
