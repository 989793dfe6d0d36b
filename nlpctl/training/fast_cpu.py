"""Training on a CPU without Paddle's slowest kernels: the same functions and gradients, computed faster.

    with fast_cpu(recipe, device, network):
        ...  # train

Half of a step of a small encoder is not matrix multiplication. Measured with one thread (docs/benchmarks.md): sums over
rows, as in the gradients of biases and of LayerNorm, take 100 times as long as a product with a row of ones; dropout
draws one number at a time; a transposed tensor is copied element by element; and each large tensor comes as new pages
from the system.

The functions are replaced while a network is trained, so the network itself, what is saved of it, and what answers with
it do not change. A function falls back to Paddle's own where it was not made for the case (another type, mixed
precision, static graphs, no gradient wanted).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer
from paddle.nn.layer import norm

from nlpctl.config.own_parts import named_parts
from nlpctl.config.schema import Recipe
from nlpctl.runtime.paddle_cpu import copying_transposes, freed_memory_kept, may_copy_transposes

LEVELS = 1 << 16  # dropout draws 16 bits per element: its probability is a multiple of 1/65536

_paddle_linear, _paddle_dropout, _paddle_layer_norm = F.linear, F.dropout, F.layer_norm


@contextlib.contextmanager
def fast_cpu(recipe: Recipe, device: str, network: paddle.nn.Layer) -> Iterator[None]:
    """Around a training of `network`: on a CPU, unless training.fast_cpu is off, the faster functions are in place."""
    if not recipe.training.fast_cpu or device != "cpu":
        yield
        return
    may_copy = not _own_code(recipe) and may_copy_transposes(network)
    with freed_memory_kept, _faster_functions(), copying_transposes if may_copy else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _faster_functions() -> Iterator[None]:
    F.linear, F.dropout, F.layer_norm, norm.layer_norm = linear, dropout, layer_norm, layer_norm
    try:
        yield
    finally:
        F.linear, F.dropout = _paddle_linear, _paddle_dropout
        F.layer_norm = norm.layer_norm = _paddle_layer_norm


def _own_code(recipe: Recipe) -> bool:
    return recipe.compression.criterion is not None or any(True for _ in named_parts(recipe))


# -- the functions -------------------------------------------------------------------------------


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None = None, name: str | None = None):
    """`F.linear`; the gradient of the bias is a product."""
    if bias is None or not _covered(x, weight, bias):
        return _paddle_linear(x, weight, bias, name)
    return _AddBias.apply(paddle.matmul(x, weight), bias)


def layer_norm(x, normalized_shape, weight=None, bias=None, epsilon=1e-5, name=None):
    """`F.layer_norm` over the last axis; the sums of its gradient are products."""
    last = list(np.atleast_1d(normalized_shape)) == x.shape[-1:]
    if weight is None or bias is None or not last or not _covered(x, weight, bias):
        return _paddle_layer_norm(x, normalized_shape, weight, bias, epsilon, name)
    return _LayerNorm.apply(x, weight, bias, epsilon)


def dropout(x, p=0.5, axis=None, training=True, mode="upscale_in_train", name=None):
    """`F.dropout`, with its numbers from a fast generator that is seeded by one number of Paddle's.

    So a mask is, as in Paddle, a function of Paddle's seed and of the draws since. Unlike the other functions it also
    applies where no gradient is wanted: a recomputed forward pass must draw the same mask.
    """
    plain = training and axis is None and mode == "upscale_in_train" and isinstance(p, (int, float)) and 0 < p < 1
    if not plain or not _covered(x, gradient=False):
        return _paddle_dropout(x, p, axis, training, mode, name)
    return x * _mask(x.shape, p)


def _covered(*tensors: paddle.Tensor, gradient: bool = True) -> bool:
    """Whether these are 32-bit numbers in eager mode without mixed precision, and, with `gradient`, one trains."""
    if not paddle.in_dynamic_mode() or any(tensor.dtype != paddle.float32 for tensor in tensors):
        return False
    if gradient and (not paddle.is_grad_enabled() or all(tensor.stop_gradient for tensor in tensors)):
        return False
    return paddle.base.framework._dygraph_tracer()._amp_level == paddle.base.core.AmpLevel.O0


def _mask(shape: list[int], p: float) -> paddle.Tensor:
    """Factors of dropout: 0 with probability `p` (rounded to 1/65536), else the inverse of the probability to stay."""
    dropped = round(p * LEVELS)
    size = int(np.prod(shape))
    seed = int(paddle.randint(0, 2**31 - 1, [1]))
    drawn = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.uint16)[:size]
    factor = np.float32(LEVELS / (LEVELS - dropped)) if dropped < LEVELS else np.float32(0)
    return paddle.to_tensor(np.multiply(drawn >= dropped, factor, dtype=np.float32).reshape(shape))


class _AddBias(PyLayer):
    """y + b, y (..., N), b (N)."""

    @staticmethod
    def forward(ctx: Any, y: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        ctx.wanted = _wanted(y, bias)
        return y + bias

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        of_y, of_bias = ctx.wanted
        return gradient if of_y else None, _sum_of_rows(_rows(gradient)) if of_bias else None


class _LayerNorm(PyLayer):
    """Ba et al., 2016, over the last axis: h w + b with h = (x - mean) / sqrt(variance + epsilon); x (..., N).

    With g the gradient of the output and u = g w, that of x is (u - mean(u) - h mean(u h)) / sqrt(variance + epsilon).
    """

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor, epsilon: float):
        ctx.wanted, ctx.epsilon = _wanted(x, weight, bias), epsilon
        y, mean, variance = paddle._legacy_C_ops.layer_norm(
            x, weight, bias, "epsilon", epsilon, "begin_norm_axis", x.ndim - 1
        )
        ctx.save_for_backward(x, weight, mean, variance)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensor()
        of_x, of_weight, of_bias = ctx.wanted
        width, g = x.shape[-1], _rows(gradient)
        scale = paddle.rsqrt(variance.reshape([-1, 1]) + ctx.epsilon)
        h = (_rows(x) - mean.reshape([-1, 1])).multiply_(scale)
        gh = g * h
        dx = None
        if of_x:
            share = (weight / width).reshape([width, 1])
            dx = (g * weight).subtract_(paddle.matmul(g, share)).subtract_(h.multiply_(paddle.matmul(gh, share)))
            dx = dx.multiply_(scale).reshape(gradient.shape)
        return dx, _sum_of_rows(gh) if of_weight else None, _sum_of_rows(g) if of_bias else None


def _wanted(*tensors: paddle.Tensor) -> tuple[bool, ...]:
    """Which of a PyLayer's inputs get a gradient; Paddle takes None for the others, and nothing else."""
    return tuple(not tensor.stop_gradient for tensor in tensors)


def _rows(x: paddle.Tensor) -> paddle.Tensor:
    return x.reshape([-1, x.shape[-1]])


def _sum_of_rows(x: paddle.Tensor) -> paddle.Tensor:
    """(M, N) -> (N), as a product: Paddle's sum over the first axis takes 100 times as long."""
    return paddle.matmul(paddle.ones([1, x.shape[0]], x.dtype), x).reshape([-1])
