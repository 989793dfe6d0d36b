"""Paddle's gradients through frozen layers are wrong or missing on a CPU."""

from __future__ import annotations

import paddle
import pytest

import nlpctl  # noqa: F401
from nlpctl.models.changes import freeze
from nlpctl.models.parameters import named
from nlpctl.upstream.frozen_layers import pass_gradients


class Network(paddle.nn.Layer):
    """A layer to be trained, and one above it that is frozen."""

    def __init__(self, above):
        super().__init__()
        paddle.seed(1)
        self.below = paddle.nn.Linear(3, 4)
        self.above = above()
        for parameter in self.above.parameters():
            parameter.set_value(paddle.rand(parameter.shape) * 2 + 0.1)

    def forward(self, inputs):
        outputs = self.above(self.below(inputs))
        return outputs[0] if isinstance(outputs, tuple) else outputs


LAYERS = {
    "layer norm": lambda: paddle.nn.LayerNorm(4),
    "layer norm without bias": lambda: paddle.nn.LayerNorm(4, bias_attr=False),
    "lstm": lambda: paddle.nn.LSTM(4, 5, direction="bidirect"),
    "gru": lambda: paddle.nn.GRU(4, 5, num_layers=2),
}
INPUTS = paddle.randn([2, 6, 3])


def gradient(network):
    """Of the trained layer's weight."""
    outputs = network(INPUTS)
    (outputs**3).sum().backward()
    found = network.below.weight.grad.numpy()
    network.clear_gradients()
    return outputs.numpy(), found


@pytest.mark.parametrize("name", LAYERS)
def test_frozen_layers_are_still_wrong(name):
    network = Network(LAYERS[name])
    _, expected = gradient(network)
    for parameter in network.above.parameters():
        parameter.stop_gradient = True
    if "norm" in name:
        assert abs(gradient(network)[1] - expected).max() > 0.01 * abs(expected).max()
    else:
        with pytest.raises(ValueError, match="nullptr"):
            gradient(network)


@pytest.mark.parametrize("patterns", [["above.*"], ["above.weight*"]])
@pytest.mark.parametrize("name", LAYERS)
def test_a_frozen_layer_hands_on_its_gradient(name, patterns):
    network = Network(LAYERS[name])
    if patterns == ["above.weight*"] and "norm" not in name:
        patterns = ["above.*weight_hh*"]
    outputs, expected = gradient(network)
    frozen = freeze(network, patterns, "model.freeze")
    found = gradient(network)
    assert (found[0] == outputs).all() and found[1] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    parameters = named(network)
    assert frozen and not any(float(parameters[each].grad.abs().sum()) for each in frozen)  # cleared, and left alone
    network.eval()
    with paddle.no_grad():
        assert (network(INPUTS).numpy() == outputs).all()


def test_nothing_is_recorded_where_nothing_below_is_trained():
    network = Network(LAYERS["layer norm"])
    for parameter in network.parameters():
        parameter.stop_gradient = True
    pass_gradients(network)
    assert network(INPUTS).stop_gradient
