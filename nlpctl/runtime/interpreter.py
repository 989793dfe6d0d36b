"""How Python's interpreter runs while rows stream through a network."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURN = 1e-4  # seconds that a thread may keep another one waiting


@contextmanager
def what_is_there_is_kept() -> Iterator[None]:
    """In the body, the garbage collector leaves alone the objects that are there already.

    Paddle and PaddleNLP make a million of them; walking these takes a tenth of a second or more, again and again while
    rows come and go, and doubles what a row costs beside the engine. Objects that the body makes are collected as ever.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def short_turns() -> Iterator[None]:
    """In the body, a thread that comes back from an engine waits for Python no longer than TURN.

    By default it waits 5 ms, more than a small network takes for a batch.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
