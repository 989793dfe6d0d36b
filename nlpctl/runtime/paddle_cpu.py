"""Settings of the process with which Paddle's eager mode is faster on a CPU, in training and in answering.

The numbers stay the same, bit by bit. docs/upstream.md has the measurements ("Slow functions on a CPU").
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nlpctl.runtime.process_state import Shared

if TYPE_CHECKING:
    import paddle

STRIDES = "FLAGS_use_stride_kernel"
_LIBRARIES = {"paddle", "paddlenlp", "paddleslim", "nlpctl"}
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of mallopt(3)
_TRIM_THRESHOLD, _MMAP_MAX = 128 * 1024, 65536  # glibc's defaults


@contextlib.contextmanager
def _freed_memory_kept() -> Iterator[None]:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        libc.mallopt(_M_MMAP_MAX, _MMAP_MAX)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)
        libc.malloc_trim(0)


@contextlib.contextmanager
def _copying_transposes() -> Iterator[None]:
    import paddle

    before = paddle.get_flags([STRIDES])
    paddle.set_flags({STRIDES: False})
    try:
        yield
    finally:
        paddle.set_flags(before)


# This process keeps the memory that it frees, so that the next batch gets the same pages again. The C library returns
# large blocks to the system at once, and new ones arrive as pages of zeros: a tenth of a training step. Nothing happens
# where the C library is not glibc.
freed_memory_kept = Shared(_freed_memory_kept)

# A transpose copies at once, in a fast loop, instead of later, element by element. Only for networks that
# `may_copy_transposes`; what other threads compute meanwhile has no views either.
copying_transposes = Shared(_copying_transposes)


def may_copy_transposes(network: paddle.nn.Layer) -> bool:
    """Whether `network` computes the same where Paddle has no views (paddle.view, as_strided, unfold).

    Code of the user's own may call them, and a tensor that is a view already would be misread. A flag that the user set
    (runtime.flags, the environment) stays.
    """
    import paddle

    if STRIDES in os.environ:
        return False
    layers = network.sublayers(include_self=True)
    attributes = [value for layer in layers for value in vars(layer).values() if isinstance(value, paddle.Tensor)]
    tensors = [*network.parameters(), *network.buffers(), *attributes]
    origins = {type(layer).__module__.partition(".")[0] for layer in layers}
    return origins <= _LIBRARIES and all(tensor.is_contiguous() for tensor in tensors)
