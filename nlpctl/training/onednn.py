"""oneDNN's functions of an encoder, and their gradients, called directly.

Paddle ships the library (paddle/libs) and runs exports with it, but its eager mode has functions of its own, which take
up to twenty times as long and use one thread (docs/upstream.md). Here oneDNN is called through its C interface
(https://uxlfoundation.github.io/oneDNN/); the numbers of the constants are those of its dnnl_types.h, version 3.

Tensors are on the CPU, of 32-bit numbers, and those of products may be bfloat16. Nothing is recorded for a gradient:
nlpctl/training/fast_cpu.py does that.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import paddle

_CPU, _IN_ORDER, _BFLOAT16, _FLOAT32, _UINT8 = 1, 1, 2, 3, 6
_FORWARD, _BACKWARD = 64, 128
_LINEAR, _GELU, _ADD, _MULTIPLY, _SOFTMAX, _SCALE_AND_SHIFT = 0x26, 0x31, 0x1FFF0, 0x1FFF1, 0x30000, 2 | 4
_X, _X2, _Y, _WEIGHTS, _MEAN, _VARIANCE, _SCALE, _SHIFT = 1, 2, 17, 33, 49, 50, 51, 52
_DX, _DY, _DSCALE, _DSHIFT = 129, 145, 255, 256
_AFTER = 32768  # times 1 for the first function after the main one: the number of its argument, with _X2
_OUT_OF_MEMORY = 1
_SHAPES = 512  # of which each function is kept, prepared: up to 0.1 MB each, and 0.3 ms to prepare

_one_at_a_time = threading.Lock()

P = ParamSpec("P")
R = TypeVar("R")


def available() -> bool:
    """Whether Paddle comes with oneDNN 3, which is so on x86 Linux."""
    return _library() is not None


def multiply_(x: paddle.Tensor, factor: paddle.Tensor) -> None:
    """Multiply x by a factor (one number) in place."""
    if not x.is_contiguous():  # a view of another tensor, which changes too
        x.multiply_(factor)
        return
    _binary(_MULTIPLY, (math.prod(x.shape),), (1,)).run({_X: x, _X2: factor, _Y: x})


def masked(x: paddle.Tensor, mask: np.ndarray, factor: float) -> paddle.Tensor:
    """x times `factor` where the mask (of as many bytes) is 1, and times 0 where it is 0."""
    y = empty(x.shape)
    size = (math.prod(x.shape),)
    _binary(_MULTIPLY, size, size, _UINT8, factor).run({_X: x, _X2: mask, _Y: y})
    return y


def gelu(x: paddle.Tensor) -> paddle.Tensor:
    """x P(x), P the normal distribution (Hendrycks and Gimpel, 2016)."""
    y = empty(x.shape)
    _gelu(math.prod(x.shape))[0].run({_X: x, _Y: y})
    return y


def gelu_gradient(x: paddle.Tensor, gradient: paddle.Tensor) -> paddle.Tensor:
    """The gradient of x, given that of `gelu(x)`."""
    dx = empty(x.shape)
    _gelu(math.prod(x.shape))[1].run({_X: x, _DY: gradient, _DX: dx})
    return dx


def softmax(x: paddle.Tensor) -> paddle.Tensor:
    """exp(x) / sum(exp(x)) over the last axis."""
    y = empty(x.shape)
    _softmax(*_rows(x))[0].run({_X: x, _Y: y})
    return y


def softmax_gradient(y: paddle.Tensor, gradient: paddle.Tensor) -> paddle.Tensor:
    """The gradient of x, given y = softmax(x) and its gradient."""
    dx = empty(y.shape)
    _softmax(*_rows(y))[1].run({_Y: y, _DY: gradient, _DX: dx})
    return dx


def layer_norm(
    x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor, epsilon: float
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Ba et al., 2016, over the last axis: (x - mean) / sqrt(variance + epsilon) w + b; x (..., N), w (N), b (N).

    Also returns mean and variance, one of each per vector of N numbers.
    """
    rows, width = _rows(x)
    y, mean, variance = empty(x.shape), empty([rows]), empty([rows])
    of = {_X: x, _SCALE: weight, _SHIFT: bias, _MEAN: mean, _VARIANCE: variance, _Y: y}
    _layer_norm(rows, width, epsilon)[0].run(of)
    return y, mean, variance


def layer_norm_gradients(
    x: paddle.Tensor,
    weight: paddle.Tensor,
    bias: paddle.Tensor,
    epsilon: float,
    mean: paddle.Tensor,
    variance: paddle.Tensor,
    gradient: paddle.Tensor,
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """The gradients of x, weight and bias, given that of `layer_norm`'s first result, and its other two."""
    dx, dweight, dbias = empty(x.shape), empty(weight.shape), empty(bias.shape)
    of = {_X: x, _SCALE: weight, _SHIFT: bias, _MEAN: mean, _VARIANCE: variance, _DY: gradient}
    _layer_norm(*_rows(x), epsilon)[1].run({**of, _DX: dx, _DSCALE: dweight, _DSHIFT: dbias})
    return dx, dweight, dbias


def to_bfloat16(x: paddle.Tensor) -> paddle.Tensor:
    """x, each number rounded to 8 bits of precision."""
    y = empty(x.shape, paddle.bfloat16)
    _to_bfloat16(math.prod(x.shape)).run({_X: x, _Y: y})
    return y


@dataclass(frozen=True)
class View:
    """A tensor as axes of which the last two are a matrix; strides in numbers."""

    tensor: paddle.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: paddle.Tensor) -> View:
        """A tensor as it is."""
        return cls(tensor, tuple(tensor.shape), _contiguous(tensor.shape))

    @classmethod
    def of_rows(cls, tensor: paddle.Tensor) -> View:
        """(..., N) as (M, N)."""
        rows, width = _rows(tensor)
        return cls(tensor, (rows, width), (width, 1))

    @classmethod
    def of_heads(cls, tensor: paddle.Tensor, heads: int) -> View:
        """(B, L, H D) as (B, H, L, D)."""
        texts, tokens, width = tensor.shape
        size = width // heads
        return cls(tensor, (texts, heads, tokens, size), (tokens * width, size, width, 1))

    @property
    def transposed(self) -> View:
        """Each matrix transposed."""
        return View(
            self.tensor,
            (*self.shape[:-2], self.shape[-1], self.shape[-2]),
            (*self.strides[:-2], self.strides[-1], self.strides[-2]),
        )

    @property
    def layout(self) -> _Strided:
        return self.shape, self.strides, _BFLOAT16 if self.tensor.dtype == paddle.bfloat16 else _FLOAT32


def multiply_matrices(x: View, y: View, into: View, *, scale: float = 1.0, plus: View | None = None) -> None:
    """Write scale x y + plus; the axes of `plus` may be 1, for all."""
    of = {_X: x.tensor, _WEIGHTS: y.tensor, _Y: into.tensor}
    if plus is not None:
        of[_plus(scale)] = plus.tensor
    _product(x.layout, y.layout, into.layout, scale, None if plus is None else plus.layout).run(of)


def empty(shape: Sequence[int], dtype: Any = paddle.float32) -> paddle.Tensor:
    """A tensor for a result; `paddle.empty` takes 4.6 microseconds, this 1.6, some 400 times in a step."""
    return paddle._C_ops.empty(list(shape), dtype, _place())


@functools.cache
def _place() -> Any:
    return paddle.CPUPlace()


def _rows(x: paddle.Tensor) -> tuple[int, int]:
    *first, width = x.shape
    return math.prod(first), width


def _contiguous(shape: list[int] | tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * length)
    return tuple(strides)


# -- what is prepared, by shape ------------------------------------------------------------------


_prepared: list[Any] = []


def _for_a_shape(prepare: Callable[P, R]) -> Callable[P, R]:
    """`prepare`, whose results are kept by its arguments until `forget`."""
    kept = functools.lru_cache(_SHAPES)(prepare)
    _prepared.append(kept)
    return kept  # type: ignore[return-value]  # functools forgets the types of the arguments


def forget() -> None:
    """Free what was prepared."""
    for kept in _prepared:
        kept.cache_clear()


@_for_a_shape
def _binary(
    kind: int, shape: tuple[int, ...], second: tuple[int, ...], of_second: int = _FLOAT32, scale: float = 1.0
) -> _Primitive:
    x, y, then = _layout(*shape), _layout(*second, kind=of_second), _Attributes(scale)
    return _Primitive(_described("binary", kind, x, y, x, then), {_X: x, _X2: y, _Y: x})


@_for_a_shape
def _gelu(size: int) -> tuple[_Primitive, _Primitive]:
    x, zero = _layout(size), c_float(0)
    forward = _described("eltwise_forward", _FORWARD, _GELU, x, x, zero, zero, None)
    backward = _described("eltwise_backward", _GELU, x, x, x, zero, zero, forward, None)
    return _Primitive(forward, {_X: x, _Y: x}), _Primitive(backward, {_X: x, _DY: x, _DX: x})


@_for_a_shape
def _softmax(rows: int, width: int) -> tuple[_Primitive, _Primitive]:
    x = _layout(rows, width)
    forward = _described("softmax_forward", _FORWARD, _SOFTMAX, x, x, 1, None)
    backward = _described("softmax_backward", _SOFTMAX, x, x, x, 1, forward, None)
    return _Primitive(forward, {_X: x, _Y: x}), _Primitive(backward, {_Y: x, _DY: x, _DX: x})


@_for_a_shape
def _layer_norm(rows: int, width: int, epsilon: float) -> tuple[_Primitive, _Primitive]:
    x, vector, numbers = _layout(rows, width), _layout(width), _layout(rows)
    how = c_float(epsilon), c_uint(_SCALE_AND_SHIFT)
    forward = _described("layer_normalization_forward", _FORWARD, x, x, numbers, *how, None)
    backward = _described("layer_normalization_backward", _BACKWARD, x, x, x, numbers, *how, forward, None)
    given = {_X: x, _SCALE: vector, _SHIFT: vector, _MEAN: numbers, _VARIANCE: numbers}
    gradients = {_DX: x, _DSCALE: vector, _DSHIFT: vector}
    return _Primitive(forward, {**given, _Y: x}), _Primitive(backward, {**given, _DY: x, **gradients})


@_for_a_shape
def _to_bfloat16(size: int) -> _Primitive:
    x, y = _layout(size), _layout(size, kind=_BFLOAT16)
    made = _Object("primitive_desc", "reorder_primitive_desc_create", x, _engine(), y, _engine(), None)
    return _Primitive(made, {_X: x, _Y: y})


_Strided = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, type


@_for_a_shape
def _product(x: _Strided, y: _Strided, into: _Strided, scale: float, plus: _Strided | None) -> _Primitive:
    views = (x, y, into) if plus is None else (x, y, into, plus)
    layouts = [_layout(*shape, strides=strides, kind=kind) for shape, strides, kind in views]
    made = _described("matmul", layouts[0], layouts[1], None, layouts[2], _Attributes(scale, *layouts[3:]))
    numbers = (_X, _WEIGHTS, _Y, _plus(scale))
    return _Primitive(made, dict(zip(numbers, layouts, strict=False)))


# -- the C interface -----------------------------------------------------------------------------


class _Argument(ctypes.Structure):
    _fields_ = [("number", c_int), ("memory", c_void_p)]


@functools.cache
def _library() -> ctypes.CDLL | None:
    file = Path(paddle.__file__).parent / "libs" / "libdnnl.so.3"
    return ctypes.CDLL(str(file)) if file.is_file() else None


@functools.cache
def _function(name: str) -> Any:
    return getattr(_library(), f"dnnl_{name}")


def _call(name: str, *arguments: Any) -> None:
    status = _function(name)(*arguments)
    if status == _OUT_OF_MEMORY:
        raise MemoryError(f"out of memory in oneDNN's dnnl_{name}")
    if status != 0:
        raise RuntimeError(f"oneDNN's dnnl_{name} returned {status} (dnnl_status_t)")


class _Object:
    """One of oneDNN's objects, which is destroyed with this one."""

    def __init__(self, kind: str, make: str, *arguments: Any):
        self._as_parameter_ = c_void_p()  # ctypes passes it for the object
        self._destroy = _function(f"{kind}_destroy")
        _call(make, byref(self._as_parameter_), *arguments)

    def __del__(self) -> None:
        if self._as_parameter_:
            self._destroy(self)


class _Attributes(_Object):
    """What follows a function: its result times `scale`, unless that is 1, then `plus` added, if any."""

    def __init__(self, scale: float, plus: _Object | None = None):
        super().__init__("primitive_attr", "primitive_attr_create")
        after = _Object("post_ops", "post_ops_create")
        if scale != 1:
            _call("post_ops_append_eltwise", after, _LINEAR, c_float(scale), c_float(0))
        if plus is not None:
            _call("post_ops_append_binary", after, _ADD, plus)
        _call("primitive_attr_set_post_ops", self, after)


def _plus(scale: float) -> int:
    """The number of the argument `plus` of _Attributes."""
    return _AFTER * (1 if scale == 1 else 2) | _X2


@functools.cache
def _engine() -> _Object:
    return _Object("engine", "engine_create", _CPU, c_size_t(0))


@functools.cache
def _stream() -> _Object:
    return _Object("stream", "stream_create", _engine(), _IN_ORDER)


def _layout(*shape: int, strides: tuple[int, ...] | None = None, kind: int = _FLOAT32) -> _Object:
    numbers = c_int64 * len(shape)
    steps = numbers(*(_contiguous(shape) if strides is None else strides))
    return _Object("memory_desc", "memory_desc_create_with_strides", len(shape), numbers(*shape), kind, steps)


def _described(function: str, *arguments: Any) -> _Object:
    return _Object("primitive_desc", f"{function}_primitive_desc_create", _engine(), *arguments)


class _Primitive:
    """A function for one shape; `layouts`: that of each argument, by its number."""

    def __init__(self, description: _Object, layouts: Mapping[int, _Object]):
        self._primitive = _Object("primitive", "primitive_create", description)
        self._memory = {
            number: _Object("memory", "memory_create", layout, _engine(), None) for number, layout in layouts.items()
        }
        self._set = _function("memory_set_data_handle")
        given = [_Argument(number, memory._as_parameter_) for number, memory in self._memory.items()]
        self._arguments = (_Argument * len(given))(*given)

    def run(self, of: Mapping[int, paddle.Tensor | np.ndarray]) -> None:
        """Compute the results among `of` from the others."""
        with _one_at_a_time:
            copies = []  # live as long as the function runs
            for number, memory in self._memory.items():
                values = of[number]
                if isinstance(values, np.ndarray):
                    address = values.ctypes.data
                else:
                    # A copy of a view: its own `contiguous` would part it from the tensor that it shows, for good.
                    copies.append(values if values.is_contiguous() else paddle._C_ops.assign(values.detach()))
                    address = copies[-1].data_ptr()
                self._set(memory, c_void_p(address))
            _call("primitive_execute", self._primitive, _stream(), len(self._arguments), self._arguments)
            _call("stream_wait", _stream())
