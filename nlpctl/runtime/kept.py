"""What a command changes in its process, put back: for those who call it from Python."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator


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
