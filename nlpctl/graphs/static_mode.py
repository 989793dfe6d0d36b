"""Paddle's static mode for a while: programs are loaded and changed there, and nothing of it stays."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import paddle

from nlpctl.formats.program import static_mode


@dataclass(frozen=True)
class StaticWorld:
    """Where static programs run: on the CPU, with variables of their own."""

    executor: paddle.static.Executor
    scope: Any


@contextlib.contextmanager
def static_world() -> Iterator[StaticWorld]:
    """Static mode with an empty scope and names counted from 0; the mode from before comes back, also after a failure.

    Quantising is done on the CPU whatever the device: its results are files.
    """
    with static_mode():
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope), paddle.utils.unique_name.guard():
            yield StaticWorld(paddle.static.Executor(paddle.CPUPlace()), scope)


@contextlib.contextmanager
def quiet_quantisers() -> Iterator[None]:
    """Paddle's quantisers tell every step by a bar of their own and through their own logger: neither is shown."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(disabled)
