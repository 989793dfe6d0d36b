"""Gradients by the input of a network with recurrent layers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import paddle
from paddle.nn.layer.rnn import RNNBase


@contextlib.contextmanager
def differentiable_rnns(network: paddle.nn.Layer) -> Iterator[list[paddle.Tensor]]:
    """While the body runs, the recurrent layers of `network` can be differentiated, although it is in eval mode.

    Yields parameters whose gradients have to be asked for together with that of the input:
    paddle.grad(output, [input, *parameters]).

    paddlepaddle 2.6.2, nn/layer/rnn.py:1594: the backward pass needs what is kept in training mode only, and room
    for the gradients of all weights; else it fails with "(InvalidArgument) Required tensor shall not be nullptr".
    Without dropout the layers compute the same in both modes. Test: tests/upstream/test_rnn_gradient.py.
    """
    layers = [layer for layer in network.sublayers(include_self=True) if isinstance(layer, RNNBase)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    modes = [(layer.training, layer.dropout) for layer in layers]
    frozen = [parameter.stop_gradient for parameter in parameters]
    for layer in layers:
        layer.training, layer.dropout = True, 0.0
    for parameter in parameters:
        parameter.stop_gradient = False
    try:
        yield parameters
    finally:
        for layer, (training, dropout) in zip(layers, modes, strict=True):
            layer.training, layer.dropout = training, dropout
        for parameter, was in zip(parameters, frozen, strict=True):
            parameter.stop_gradient = was
