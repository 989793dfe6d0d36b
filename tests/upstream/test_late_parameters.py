"""Paddle's optimizers, resumed before a parameter had its first gradient."""

from __future__ import annotations

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle

from nlpctl.upstream.late_parameters import take_late_parameters
from nlpctl.upstream.parameter_names import fresh_parameter_names


def two_layers():
    with fresh_parameter_names():
        layers = [paddle.nn.Linear(2, 2), paddle.nn.Linear(2, 2)]
        for layer in layers:
            layer.weight.set_value(paddle.ones([2, 2]))
        return layers, paddle.optimizer.AdamW(0.1, parameters=[p for layer in layers for p in layer.parameters()])


def step(optimizer, *layers):
    sum(layer(paddle.ones([1, 2])).sum() for layer in layers).backward()
    optimizer.step()
    optimizer.clear_grad(set_to_zero=False)


def resumed(take):
    (first, second), optimizer = two_layers()
    with fresh_parameter_names():
        step(optimizer, first)
        state = dict(optimizer.state_dict())
    (first, second), optimizer = two_layers()
    optimizer.set_state_dict(state)
    take(optimizer)
    with fresh_parameter_names():
        step(optimizer, second)
        step(optimizer, first)
    return optimizer.state_dict()


def test_paddle_still_refuses_it():
    """`take_late_parameters` can go when this fails."""
    with pytest.raises(AssertionError, match="should in state dict"):
        resumed(lambda optimizer: None)


def test_it_begins_anew_and_the_others_go_on():
    state = resumed(take_late_parameters)
    powers = [float(state[f"linear_{number}.w_0_beta1_pow_acc_0"]) for number in (0, 1)]
    assert powers == pytest.approx([0.9**3, 0.9**2])  # two steps, and one
