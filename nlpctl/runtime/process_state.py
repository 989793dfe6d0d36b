"""Temporary changes of this process: contexts that restore its random states, drop what C code prints, hold back the
garbage collector, or let threads take turns more often. Imports no Paddle."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

TURN = 1e-4  # seconds that a thread may hold the GIL while another one waits


@contextlib.contextmanager
def process_kept() -> Iterator[None]:
    """Restore the device and the random states of Python, NumPy and Paddle at the end of the context.

    Libraries that are not imported yet are ignored.
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
def _silent_stderr() -> Iterator[None]:
    """Send file descriptor 2 to /dev/null, which C and C++ code writes to."""
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
    """Inside the context, the garbage collector ignores existing objects (gc.freeze).

    Paddle and PaddleNLP create a million objects. Each full collection takes a tenth of a second or more, and frequent
    collections double the cost of a row outside the engine. New objects are collected as usual.
    """
    unfreeze = gc.unfreeze  # a generator that is left open ends with the interpreter, when modules are empty
    gc.freeze()
    try:
        yield
    finally:
        unfreeze()


class Shared:
    """A context that may be open several times, also in threads: it begins with the first and ends with the last."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]):
        self._make, self._lock = make, threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._open = self._make()
                self._open.__enter__()
            self._inside += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._open.__exit__(None, None, None)
                del self._open


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


# Inside the context, stderr is dropped, including the output of C and C++ code and of other threads. For calls that
# raise exceptions for their errors and write useless output besides.
silent_stderr = Shared(_silent_stderr)

# Inside the context, a thread that returns from an engine waits for the GIL no longer than TURN. The default of 5 ms is
# more than a small network needs for a batch.
short_turns = Shared(_short_turns)
