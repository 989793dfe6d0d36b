"""Training on a CPU without Paddle's slowest functions: the same ones and their gradients, computed faster.

    with fast_cpu(recipe, device, network):
        ...  # train

Half of a step of a small encoder is not matrix multiplication, and most of that half runs on one thread in Paddle
(docs/benchmarks.md, docs/upstream.md). oneDNN, which Paddle ships on x86 Linux, computes attention, GELU, softmax,
LayerNorm, the bias of a linear layer and their gradients; dropout's numbers are NumPy's, drawn four at a time.

The functions are replaced while a network is trained (upstream/slow_functions.py), so the network itself, what is saved
of it, and what answers with it do not change. They also compute where no gradient is wanted, so the scores on dev
meanwhile come from the arithmetic that is trained, at its speed. A function falls back to Paddle's own where it was not
made for the case (another type, mixed precision, static graphs), and all are Paddle's where it comes without oneDNN.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer
from paddle.nn import ClipGradByGlobalNorm, MultiHeadAttention
from paddle.nn.layer import transformer

from nlpctl.config.schema import Recipe
from nlpctl.config.user_code import named_code
from nlpctl.errors import UserError
from nlpctl.runtime.paddle_cpu import copying_transposes, freed_memory_kept, may_copy_transposes
from nlpctl.training import onednn
from nlpctl.training.onednn import View
from nlpctl.upstream.changed_in_place import save, saved
from nlpctl.upstream.second_gradients import one_gradient
from nlpctl.upstream.slow_functions import replaced_functions

_CHECK = "FLAGS_check_nan_inf"
LEVELS = 1 << 16  # dropout draws 16 bits per element: its probability is a multiple of 1/65536

_linear, _dropout, _layer_norm, _gelu, _softmax = F.linear, F.dropout, F.layer_norm, F.gelu, F.softmax
_attend, _clip = MultiHeadAttention.forward, ClipGradByGlobalNorm._dygraph_clip
_STEPS = {name: getattr(MultiHeadAttention, name) for name in ("_prepare_qkv", "compute_kv")}  # of attention
_in_32_bits = ContextVar("_in_32_bits", default=False)


@contextlib.contextmanager
def fast_cpu(recipe: Recipe, device: str, network: paddle.nn.Layer) -> Iterator[None]:
    """Around a training of `network`, with its scores on dev: on a CPU, unless training.fast_cpu is off, the faster
    functions are in place."""
    if not recipe.training.fast_cpu or device != "cpu":
        yield
        return
    bfloat16 = recipe.training.bf16
    if bfloat16 and not onednn.available():
        raise UserError("this Paddle comes without oneDNN, which computes bf16 on a CPU", where="training.bf16")
    own = _has_user_code(recipe)
    with contextlib.ExitStack() as settings:
        settings.enter_context(freed_memory_kept)
        if onednn.available():
            settings.enter_context(_faster_functions(network, bfloat16))
            if own:
                settings.enter_context(one_gradient(_refuse))
        if not own and may_copy_transposes(network):
            settings.enter_context(copying_transposes)
        yield


@contextlib.contextmanager
def in_32_bits() -> Iterator[None]:
    """Linear layers compute in 32 bits, also in a training with training.bf16: around what is computed to be saved."""
    token = _in_32_bits.set(True)
    try:
        yield
    finally:
        _in_32_bits.reset(token)


@contextlib.contextmanager
def _faster_functions(network: paddle.nn.Layer, bfloat16: bool) -> Iterator[None]:
    faster = {
        "linear": linear_in_bfloat16(network) if bfloat16 else linear,
        "dropout": dropout,
        "layer_norm": layer_norm,
        "gelu": gelu,
        "softmax": softmax,
        "forward": attend,
        "_dygraph_clip": clip,
    }
    try:
        with replaced_functions(faster, network):
            yield
    finally:
        onednn.forget()


def _refuse(name: str) -> NoReturn:
    hint = "set training.fast_cpu: false"
    raise UserError(f"{name}=True needs Paddle's own functions", where="training.fast_cpu", hint=hint)


def _has_user_code(recipe: Recipe) -> bool:
    return recipe.compression.criterion is not None or any(True for _ in named_code(recipe))


# -- the functions -------------------------------------------------------------------------------


def linear(
    x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None = None, name: str | None = None
) -> paddle.Tensor:
    """`F.linear`; the bias is added with the product, and its gradient is one."""
    if bias is None or not _of_a_layer(weight, bias) or not _covered(x, weight, bias):
        return _linear(x, weight, bias, name)
    return _Linear.apply(x, weight, bias, False)


def linear_in_bfloat16(network: paddle.nn.Layer) -> Callable[..., paddle.Tensor]:
    """`F.linear`, of which the products, also those of the gradients, have factors of bfloat16 and sums of 32 bits.

    The weights of `network` do so also where no gradient is wanted: for scores on dev, and since the first forward pass
    of a recomputed layer must give what the second gives. Those of other networks, such as a teacher, then do not. In
    the body of `in_32_bits` none do.
    """
    trained = {id(parameter) for parameter in network.parameters()}  # names are those of other networks, too

    def linear_in_bfloat16(
        x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None = None, name: str | None = None
    ) -> paddle.Tensor:
        given = [x, weight, *([] if bias is None else [bias])]
        trains = paddle.is_grad_enabled() and not all(each.stop_gradient for each in given)
        if _in_32_bits.get() or not (trains or id(weight) in trained):
            return linear(x, weight, bias, name)
        if not _of_a_layer(weight, bias) or not _covered(*given):
            return _linear(x, weight, bias, name)
        return _Linear.apply(x, weight, bias, True)

    return linear_in_bfloat16


def layer_norm(
    x: paddle.Tensor,
    normalized_shape: int | Sequence[int],
    weight: paddle.Tensor | None = None,
    bias: paddle.Tensor | None = None,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> paddle.Tensor:
    """`F.layer_norm` over the last axis."""
    last = list(np.atleast_1d(normalized_shape)) == x.shape[-1:]
    plain = last and weight is not None and bias is not None and weight.shape == bias.shape == x.shape[-1:]
    if not plain or not _covered(x, weight, bias):
        return _layer_norm(x, normalized_shape, weight, bias, epsilon, name)
    return _LayerNorm.apply(x, weight, bias, epsilon)


def gelu(x: paddle.Tensor, approximate: bool = False, name: str | None = None) -> paddle.Tensor:
    """`F.gelu`, by the normal distribution."""
    return _gelu(x, approximate, name) if approximate or not _covered(x) else _Gelu.apply(x)


def softmax(x: paddle.Tensor, axis: int = -1, dtype: Any = None, name: str | None = None) -> paddle.Tensor:
    """`F.softmax` over the last axis."""
    if x.ndim == 0 or axis not in (-1, x.ndim - 1) or dtype is not None or not _covered(x):
        return _softmax(x, axis, dtype, name)
    return _Softmax.apply(x)


def dropout(
    x: paddle.Tensor,
    p: Any = 0.5,
    axis: int | list[int] | None = None,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
) -> paddle.Tensor:
    """`F.dropout`, with its numbers from a fast generator that is seeded by one number of Paddle's.

    So a mask is, as in Paddle, a function of Paddle's seed and of the draws since.
    """
    plain = training and axis is None and mode == "upscale_in_train" and isinstance(p, (int, float)) and 0 < p < 1
    if not plain or not _plain_float32(x):
        return _dropout(x, p, axis, training, mode, name)
    mask, factor = _drawn(math.prod(x.shape), p)
    if _checks_finite():
        return x * paddle.to_tensor(mask.reshape(x.shape).astype(np.float32) * np.float32(factor))
    return _Dropout.apply(x, mask, factor)


def attend(
    layer: MultiHeadAttention,
    query: paddle.Tensor,
    key: paddle.Tensor | None = None,
    value: paddle.Tensor | None = None,
    attn_mask: paddle.Tensor | None = None,
    cache: Any = None,
) -> Any:
    """`MultiHeadAttention.forward`, without copies of queries, keys and values by head."""
    key = query if key is None else key
    value = query if value is None else value
    if attn_mask is not None:
        attn_mask = transformer._convert_attention_mask(attn_mask, query.dtype)
    given = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    plain = cache is None and not layer.need_weights and all(each.ndim == 3 for each in given[:3])
    unchanged_steps = all(
        getattr(type(layer), name) is each and name not in vars(layer) for name, each in _STEPS.items()
    )
    usual = plain and unchanged_steps and _covered(*given)
    if not usual or not _shapes_agree(layer, query, key, value, attn_mask):
        return _attend(layer, query, key, value, attn_mask, cache)
    drop = None
    q, k, v = layer.q_proj(query), layer.k_proj(key), layer.v_proj(value)
    if layer.dropout and layer.training:
        drop = _drawn(q.shape[0] * layer.num_heads * q.shape[1] * k.shape[1], layer.dropout)
    return layer.out_proj(_Attention.apply(q, k, v, layer.num_heads, attn_mask, drop))


def clip(
    rule: ClipGradByGlobalNorm, params_grads: list[tuple[paddle.Tensor, paddle.Tensor | None]]
) -> list[tuple[paddle.Tensor, paddle.Tensor | None]]:
    """`ClipGradByGlobalNorm._dygraph_clip`, in place."""
    pairs = [(p, g) for p, g in params_grads if g is not None]
    plain = all(g.is_dense() and g.dtype == paddle.float32 and getattr(p, "need_clip", True) for p, g in pairs)
    if not pairs or not plain:
        return _clip(rule, params_grads)
    squares = paddle.stack([paddle._C_ops.squared_l2_norm(g) for _, g in pairs])
    factor = rule.clip_norm / paddle.clip(paddle.sqrt(squares.sum()), min=rule.clip_norm)
    if float(factor) != 1:
        for _, g in pairs:
            onednn.multiply_(g, factor)
    return params_grads


def _of_a_layer(weight: paddle.Tensor, bias: paddle.Tensor | None) -> bool:
    return weight.ndim == 2 and (bias is None or bias.shape == weight.shape[1:])


def _shapes_agree(layer: Any, query: Any, key: Any, value: Any, mask: paddle.Tensor | None) -> bool:
    """Whether shapes agree, but for a mask that is repeated and gets no gradient."""
    if not query.shape[0] == key.shape[0] == value.shape[0] or key.shape[1] != value.shape[1]:
        return False
    scores = [query.shape[0], layer.num_heads, query.shape[1], key.shape[1]]
    return mask is None or (
        mask.stop_gradient
        and mask.ndim == 4
        and all(size in (1, full) for size, full in zip(mask.shape, scores, strict=True))
    )


def _covered(*tensors: paddle.Tensor) -> bool:
    """Whether the faster functions were made for these: of the kind, and nobody looks at operators."""
    return _plain_float32(*tensors) and not _checks_finite()


def _plain_float32(*tensors: paddle.Tensor) -> bool:
    """Whether these are 32-bit numbers, in eager mode without mixed precision."""
    if not paddle.in_dynamic_mode() or any(tensor.dtype != paddle.float32 or 0 in tensor.shape for tensor in tensors):
        return False
    return paddle.base.framework._dygraph_tracer()._amp_level == paddle.base.core.AmpLevel.O0


def _checks_finite() -> bool:
    """Whether Paddle looks for operators whose results are not finite: it sees none of oneDNN's."""
    return paddle.get_flags(_CHECK)[_CHECK]


def _drawn(size: int, p: float) -> tuple[np.ndarray, float]:
    """A mask of dropout, 0 with probability `p` (rounded to 1/65536), else 1; and what to multiply the rest with."""
    dropped = round(p * LEVELS)
    seed = int(paddle.randint(0, 2**31 - 1, [1]))
    drawn = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.uint16)[:size]
    return drawn >= dropped, LEVELS / (LEVELS - dropped) if dropped < LEVELS else 0.0


# -- with their gradients ------------------------------------------------------------------------


class _Linear(PyLayer):
    """x w + b, x (..., K), w (K, N), b (N); `bfloat16`: the factors of the products are rounded to it.

    Of 32-bit factors Paddle (MKL) computes the gradients, which it does 1 to 5 % faster than oneDNN.
    """

    @staticmethod
    def forward(
        ctx: Any, x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None, bfloat16: bool
    ) -> paddle.Tensor:
        ctx.wanted = _wanted(x, weight) if bias is None else _wanted(x, weight, bias)
        ctx.bfloat16 = bfloat16
        factors = (onednn.to_bfloat16(x), onednn.to_bfloat16(weight)) if bfloat16 else (x, weight)
        y = onednn.empty([*x.shape[:-1], weight.shape[1]])
        plus = None if bias is None else View.of(bias.reshape([1, -1]))
        onednn.multiply_matrices(*map(View.of_rows, (*factors, y)), plus=plus)
        save(ctx, "a linear layer", input=factors[0], weight=factors[1])
        return y

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        x, weight = saved(ctx)
        multiply, given = (_multiplied, onednn.to_bfloat16(gradient)) if ctx.bfloat16 else (paddle.matmul, gradient)
        of_x, of_weight, *of_bias = ctx.wanted
        dx = multiply(_rows(given), weight, transpose_y=True).reshape(x.shape) if of_x else None
        dweight = multiply(_rows(x), _rows(given), transpose_x=True) if of_weight else None
        return dx, dweight, *(_sum_of_rows(gradient) if wanted else None for wanted in of_bias)


def _multiplied(
    x: paddle.Tensor, y: paddle.Tensor, transpose_x: bool = False, transpose_y: bool = False
) -> paddle.Tensor:
    """`paddle.matmul` of two matrices of bfloat16, in 32 bits."""
    left, right = View.of(x), View.of(y)
    left, right = left.transposed if transpose_x else left, right.transposed if transpose_y else right
    product = onednn.empty([left.shape[0], right.shape[1]])
    onednn.multiply_matrices(left, right, View.of(product))
    return product


class _LayerNorm(PyLayer):
    """As onednn.layer_norm."""

    @staticmethod
    def forward(
        ctx: Any, x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor, epsilon: float
    ) -> paddle.Tensor:
        ctx.wanted, ctx.epsilon = _wanted(x, weight, bias), epsilon
        y, mean, variance = onednn.layer_norm(x, weight, bias, epsilon)
        save(ctx, "LayerNorm", input=x, weight=weight, mean=mean, variance=variance)
        ctx.bias = bias  # whose numbers no gradient depends on: they may change
        return y

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        x, weight, mean, variance = saved(ctx)
        gradients = onednn.layer_norm_gradients(x, weight, ctx.bias, ctx.epsilon, mean, variance, gradient)
        return _those_wanted(ctx, gradients)


class _Gelu(PyLayer):
    """As onednn.gelu."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        save(ctx, "GELU", input=x)
        return onednn.gelu(x)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        (x,) = saved(ctx)
        return onednn.gelu_gradient(x, gradient)


class _Softmax(PyLayer):
    """As onednn.softmax."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor) -> paddle.Tensor:
        y = onednn.softmax(x)
        save(ctx, "softmax", output=y.detach())  # with y, its graph would hold itself until a gradient is computed
        return y

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        (y,) = saved(ctx)
        return onednn.softmax_gradient(y, gradient)


class _Dropout(PyLayer):
    """As onednn.masked, with what `_drawn` returns."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, mask: np.ndarray, factor: float) -> paddle.Tensor:
        ctx.mask, ctx.factor = mask, factor
        return onednn.masked(x, mask, factor)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return onednn.masked(gradient, ctx.mask, ctx.factor)


class _Attention(PyLayer):
    """softmax(q k' / sqrt(D) + mask) v by head, with dropout of the softmax (Vaswani et al., 2017, section 3.2).

    q (B, L, H D), k and v (B, K, H D), mask (B or 1, H or 1, L or 1, K), drop as from `_drawn`; returns (B, L, H D).
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: paddle.Tensor,
        k: paddle.Tensor,
        v: paddle.Tensor,
        heads: int,
        mask: paddle.Tensor | None,
        drop: tuple[np.ndarray, float] | None,
    ) -> paddle.Tensor:
        ctx.wanted, ctx.heads, ctx.drop = _wanted(q, k, v), heads, drop
        ctx.scale = (q.shape[2] // heads) ** -0.5
        of_q, of_k, of_v = (View.of_heads(each, heads) for each in (q, k, v))
        scores = View.of(onednn.empty([q.shape[0], heads, q.shape[1], k.shape[1]]))
        plus = None if mask is None else View.of(mask)
        onednn.multiply_matrices(of_q, of_k.transposed, scores, scale=ctx.scale, plus=plus)
        shares = onednn.softmax(scores.tensor)
        kept = shares if drop is None else onednn.masked(shares, *drop)
        answer = onednn.empty(q.shape)
        onednn.multiply_matrices(View.of(kept), of_v, View.of_heads(answer, heads))
        save(ctx, "attention", query=q, key=k, value=v, shares=shares, kept=kept)
        return answer

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        q, k, v, shares, kept = saved(ctx)
        of_q, of_k, of_v, of_gradient = (View.of_heads(each, ctx.heads) for each in (q, k, v, gradient))
        dq, dk, dv, dkept = (onednn.empty(each.shape) for each in (q, k, v, kept))
        onednn.multiply_matrices(View.of(kept).transposed, of_gradient, View.of_heads(dv, ctx.heads))
        onednn.multiply_matrices(of_gradient, of_v.transposed, View.of(dkept))
        dshares = dkept if ctx.drop is None else onednn.masked(dkept, *ctx.drop)
        dscores = View.of(onednn.softmax_gradient(shares, dshares))
        onednn.multiply_matrices(dscores, of_k, View.of_heads(dq, ctx.heads), scale=ctx.scale)
        onednn.multiply_matrices(dscores.transposed, of_q, View.of_heads(dk, ctx.heads), scale=ctx.scale)
        return _those_wanted(ctx, (dq, dk, dv))


def _wanted(*tensors: paddle.Tensor) -> tuple[bool, ...]:
    """Which of a PyLayer's inputs get a gradient; Paddle takes None for the others, and nothing else."""
    return tuple(not tensor.stop_gradient for tensor in tensors)


def _those_wanted(ctx: Any, gradients: tuple[paddle.Tensor, ...]) -> tuple[paddle.Tensor | None, ...]:
    return tuple(each if wanted else None for each, wanted in zip(gradients, ctx.wanted, strict=True))


def _sum_of_rows(x: paddle.Tensor) -> paddle.Tensor:
    """(..., N) -> (N), as a product: Paddle's sum over the first axis takes 100 times as long."""
    rows = _rows(x)
    return paddle.matmul(paddle.ones([1, rows.shape[0]], x.dtype), rows).reshape([-1])


def _rows(x: paddle.Tensor) -> paddle.Tensor:
    return x.reshape([-1, x.shape[-1]])
