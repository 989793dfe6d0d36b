"""Functions and their gradients beside Paddle's."""

from __future__ import annotations

import numpy as np
import paddle


def tensor(*shape, seed=0, trained=True, dtype="float32"):
    made = paddle.to_tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))
    made.stop_gradient = not trained
    return made


def fresh(trained):
    copy = trained.detach()
    copy.stop_gradient = False
    return copy


def gradients(function, *inputs):
    """The output, and the gradients of a weighted sum of it."""
    inputs = [each.detach() if each.stop_gradient else fresh(each) for each in inputs]
    output = function(*inputs)
    (output * tensor(*output.shape, seed=9, trained=False)).sum().backward()
    return output.numpy(), [None if each.grad is None else each.grad.numpy() for each in inputs]


def assert_equal_to_paddles(ours, paddles, *inputs):
    output, found = gradients(ours, *inputs)
    expected_output, expected = gradients(paddles, *inputs)
    np.testing.assert_allclose(output, expected_output, rtol=1e-5, atol=1e-6)
    assert [each is None for each in found] == [each is None for each in expected]
    for one, other in zip(found, expected, strict=True):
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
