"""What Python's garbage collector has to look at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def what_is_there_is_kept() -> Iterator[None]:
    """In the body, the collector leaves alone the objects that are there already.

    Paddle and PaddleNLP make a million of them; walking these takes a tenth of a second or more, again and again while
    rows come and go, and halves the speed of a small network. Objects that the body makes are collected as ever.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
