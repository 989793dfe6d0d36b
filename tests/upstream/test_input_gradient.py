"""Paddle has no gradient by the input alone of a recurrent layer, and a wrong one of a LayerNorm."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import nlpctl  # noqa: F401
from nlpctl.upstream.input_gradient import differentiable


def made(kind):
    paddle.seed(1)
    network = paddle.nn.Sequential(kind(3, 4, num_layers=2, direction="bidirect", dropout=0.5))
    inputs = paddle.randn([2, 5, 3])
    inputs.stop_gradient = False
    return network, inputs


@pytest.mark.parametrize("kind", [paddle.nn.LSTM, paddle.nn.GRU])
@pytest.mark.parametrize("training", [True, False])
def test_paddle_still_fails(kind, training):
    network, inputs = made(kind)
    network.train() if training else network.eval()
    with pytest.raises(ValueError, match="nullptr"):
        paddle.grad(network(inputs)[0].sum(), inputs)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kind", [paddle.nn.LSTM, paddle.nn.GRU])
def test_gradients_by_the_input(kind, frozen):
    network, inputs = made(kind)
    network.eval()
    for parameter in network.parameters():
        parameter.stop_gradient = frozen
    with paddle.no_grad():
        expected = network(inputs)[0]
    with differentiable(network) as parameters:
        found = network(inputs)[0]
        slopes = paddle.grad(found.sum(), [inputs, *parameters])[0]
    assert paddle.allclose(found, expected, atol=1e-6)  # no dropout
    with paddle.no_grad():
        raised = inputs.clone()
        raised[0, 2, 1] += 1e-2
        difference = float(network(raised)[0].sum() - expected.sum())
    assert difference == pytest.approx(float(slopes[0, 2, 1]) * 1e-2, rel=0.05) and abs(difference) > 1e-4
    layer = network[0]
    assert not layer.training and layer.dropout == 0.5
    assert all(parameter.stop_gradient == frozen for parameter in network.parameters())


def normed():
    """A LayerNorm with weights, its input, and the gradient of the sum of the cubes of its output, from the formula."""
    paddle.seed(1)
    layer = paddle.nn.LayerNorm(6)
    layer.weight.set_value(paddle.arange(1, 7).astype("float32"))
    inputs = paddle.randn([4, 6])
    inputs.stop_gradient = False
    x = inputs.numpy().astype(np.float64)
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    unit = (x - x.mean(-1, keepdims=True)) / deviation
    weight = np.arange(1, 7)
    slopes = 3 * (unit * weight) ** 2 * weight
    inner = slopes - slopes.mean(-1, keepdims=True) - unit * (slopes * unit).mean(-1, keepdims=True)
    return layer, inputs, inner / deviation


@pytest.mark.parametrize("frozen", [True, False])
def test_the_gradient_of_a_layer_norm_is_still_wrong(frozen):
    layer, inputs, expected = normed()
    for parameter in layer.parameters():
        parameter.stop_gradient = frozen
    if frozen:
        (layer(inputs) ** 3).sum().backward()
        found = inputs.grad
    else:
        (found,) = paddle.grad((layer(inputs) ** 3).sum(), inputs)
    assert np.abs(found.numpy() - expected).max() > 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("frozen", [True, False])
def test_the_gradient_of_a_layer_norm(frozen):
    layer, inputs, expected = normed()
    for parameter in layer.parameters():
        parameter.stop_gradient = frozen
    with differentiable(layer) as parameters:
        found = paddle.grad((layer(inputs) ** 3).sum(), [inputs, *parameters], allow_unused=True)[0]
    assert found.numpy() == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert all(parameter.stop_gradient == frozen for parameter in layer.parameters())
