"""Static mode for a while: Paddle runs programs only in it, and nlpctl works in dynamic mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import paddle


@contextmanager
def static_mode() -> Iterator[None]:
    """Static mode inside; afterwards whatever was before."""
    was_dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        yield
    finally:
        if was_dynamic:
            paddle.disable_static()
