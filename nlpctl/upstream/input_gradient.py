"""Gradients with respect to the input of a network only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import paddle
from paddle.nn.layer.rnn import RNNBase


@contextlib.contextmanager
def differentiable(network: paddle.nn.Layer) -> Iterator[list[paddle.Tensor]]:
    """Inside the context, the output of `network`, in eval mode, can be differentiated with respect to its input.

    Yields parameters whose gradients must be requested together with that of the input:
    paddle.grad(output, [input, *parameters], allow_unused=True).

    paddlepaddle 2.6.2, on a CPU:
    - nn/functional/norm.py:366, LayerNorm: where the gradient of its weight is not wanted, that of the input is wrong
      without a word, as if the weight were 1;
    - nn/layer/rnn.py:1594: the backward pass fails with "(InvalidArgument) Required tensor shall not be nullptr"
      where the gradients of the weights are not wanted, or the layer is in eval mode. Without dropout it computes the
      same in both modes.
    Test: tests/upstream/test_input_gradient.py.
    """
    recurrent = [layer for layer in network.sublayers(include_self=True) if isinstance(layer, RNNBase)]
    norms = [layer for layer in network.sublayers(include_self=True) if isinstance(layer, paddle.nn.LayerNorm)]
    parameters = [parameter for layer in (*recurrent, *norms) for parameter in layer.parameters()]
    modes = [(layer.training, layer.dropout) for layer in recurrent]
    frozen = [parameter.stop_gradient for parameter in parameters]
    for layer in recurrent:
        # Not train(), which would also change sublayers, whose modes are not restored below.
        layer.training, layer.dropout = True, 0.0
    for parameter in parameters:
        parameter.stop_gradient = False
    try:
        yield parameters
    finally:
        for layer, (training, dropout) in zip(recurrent, modes, strict=True):
            layer.training, layer.dropout = training, dropout
        for parameter, was in zip(parameters, frozen, strict=True):
            parameter.stop_gradient = was
