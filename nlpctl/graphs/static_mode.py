"""Temporary static mode of Paddle, in which programs are loaded and changed without side effects."""

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
    """An executor on the CPU with its own scope."""

    executor: paddle.static.Executor
    scope: Any


@contextlib.contextmanager
def static_world() -> Iterator[StaticWorld]:
    """Static mode with an empty scope and names counted from 0; the mode from before comes back, also after a failure.

    Quantisation always runs on the CPU, since its results are files.
    """
    with static_mode():
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope), paddle.utils.unique_name.guard():
            yield StaticWorld(paddle.static.Executor(paddle.CPUPlace()), scope)


@contextlib.contextmanager
def quiet_quantisers() -> Iterator[None]:
    """Silence Paddle's quantisers, which show their own progress bar and log every step."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(disabled)
