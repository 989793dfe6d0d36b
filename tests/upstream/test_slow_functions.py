"""Paddle's functions of a training step on a CPU, which nlpctl replaces by faster ones while it trains."""

from __future__ import annotations

import time

import paddle
import paddle.nn.functional as F

from nlpctl.training import fast_cpu as fast
from tests.helpers.gradients import tensor


def seconds(function, repeats=20):
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def test_paddles_own_functions_are_still_slow():
    """`replaced_functions` and nlpctl/training/fast_cpu.py can go when this fails: Paddle's own are then as fast."""
    x = tensor(1024, 384)
    row = paddle.ones([1, 1024])
    with paddle.no_grad():
        assert seconds(lambda: x.sum(0)) > 3 * seconds(lambda: paddle.matmul(row, x))
        assert seconds(lambda: F.dropout(x, 0.1)) > 2 * seconds(lambda: fast.dropout(x, 0.1))

    def both(function, *inputs):
        return seconds(lambda: function(*inputs).sum().backward())

    weight, bias = tensor(384, seed=1), tensor(384, seed=2)
    inputs = x, [384], weight, bias
    assert both(F.layer_norm, *inputs) > 1.3 * both(fast.layer_norm, *inputs)
