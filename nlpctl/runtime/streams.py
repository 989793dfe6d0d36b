"""How many threads may ask an engine at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Streams:
    """How many threads may ask an engine for outputs at a time, and are together faster than one.

    That holds within `open`, in threads that called `enter` first, if there is one.
    """

    count: int
    open: AbstractContextManager[Any]
    enter: Callable[[], None] | None = None


ONE_STREAM = Streams(1, nullcontext())
