"""Gradients that pass through frozen layers to what is trained below them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.nn.layer.rnn import RNNBase


def pass_gradients(network: paddle.nn.Layer) -> None:
    """Corrects the gradients that frozen layers of `network` pass to layers below; their outputs stay the same.

    paddlepaddle 2.6.2 on a CPU goes wrong where the gradient of a layer's own weights is not wanted:
    - nn/functional/norm.py:366, layer_norm: the gradient by the input is that of a weight of 1, without a word;
    - nn/layer/rnn.py:1594: the backward pass fails ("Required tensor shall not be nullptr").
    Frozen weights are therefore replaced by copies whose gradients are computed and discarded.
    Test: tests/upstream/test_frozen_layers.py.
    """
    for layer in network.sublayers(include_self=True):
        if any(parameter.stop_gradient for parameter in layer.parameters()):
            if isinstance(layer, paddle.nn.LayerNorm):
                layer.forward = functools.partial(_normalise, layer)
            elif isinstance(layer, RNNBase):
                layer.forward = functools.partial(_recur, layer, layer.forward)


def _normalise(layer: paddle.nn.LayerNorm, inputs: paddle.Tensor) -> paddle.Tensor:
    weight, bias = (_stand_in(layer, inputs, parameter) for parameter in (layer.weight, layer.bias))
    return F.layer_norm(inputs, layer._normalized_shape, weight, bias, layer._epsilon)


def _recur(layer: RNNBase, forward: Callable[..., Any], inputs: paddle.Tensor, *args: Any, **kwargs: Any) -> Any:
    weights = layer._all_weights
    layer._all_weights = [_stand_in(layer, inputs, weight) for weight in weights]
    try:
        return forward(inputs, *args, **kwargs)
    finally:
        layer._all_weights = weights


def _stand_in(layer: paddle.nn.Layer, inputs: paddle.Tensor, parameter: paddle.Tensor | None) -> paddle.Tensor | None:
    """A copy of a frozen `parameter`; the parameter itself if it is trained, or if no gradient passes the layer."""
    if parameter is None or not parameter.stop_gradient:
        return parameter
    if inputs.stop_gradient and all(each.stop_gradient for each in layer.parameters()):
        return parameter
    # detach shares the memory, so no weight is copied; only its gradient is computed and dropped.
    copy = parameter.detach()
    copy.stop_gradient = False
    return copy
