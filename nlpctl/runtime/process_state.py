"""What is changed in this process for a while, and then put back."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
from collections.abc import Iterator

TURN = 1e-4  # seconds that a thread may keep another one waiting


@contextlib.contextmanager
def process_kept() -> Iterator[None]:
    """Device and random states of Python, NumPy and Paddle are afterwards what they were before the body.

    Of libraries that are not imported yet there is nothing to keep.
    """
    state = random.getstate()
    numpy, paddle = sys.modules.get("numpy"), sys.modules.get("paddle")
    numpy_state = None if numpy is None else numpy.random.get_state()
    device = None if paddle is None else paddle.get_device()
    generators = None if paddle is None else paddle.get_rng_state()
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        if paddle is not None:
            paddle.set_device(device)
            paddle.set_rng_state(generators)


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Inside, what C and C++ code writes to stderr is dropped; so is what other threads write there meanwhile.

    For calls that tell what went wrong by raising, and chatter besides.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def gc_frozen() -> Iterator[None]:
    """In the body, the garbage collector leaves alone the objects that are there already.

    Paddle and PaddleNLP make a million of them; walking these takes a tenth of a second or more, again and again while
    rows come and go, and doubles what a row costs beside the engine. Objects that the body makes are collected as ever.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
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
