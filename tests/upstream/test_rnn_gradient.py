"""Paddle has no gradient by the input alone of a recurrent layer."""

from __future__ import annotations

import paddle
import pytest

import nlpctl  # noqa: F401
from nlpctl.upstream.rnn_gradient import differentiable_rnns


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
    with differentiable_rnns(network) as parameters:
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
