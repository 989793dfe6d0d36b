"""Another Python process: what it needs to be told, and that Ctrl-C does not meet it unprepared."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from types import FrameType


def module_path() -> str:
    """PYTHONPATH for a process that is to find the same modules as this one."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Start processes in the body: Ctrl-C waits for its end, and in these until they call `listen_for_interrupts`.

    A terminal's Ctrl-C reaches them too; while Python and modules are loaded it would be told by a traceback.
    """
    resource_tracker.ensure_running()  # multiprocessing starts it with the first process, and then takes signals again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen_for_interrupts(handler: Callable[[int, FrameType | None], object] = signal.default_int_handler) -> None:
    """From here on Ctrl-C calls `handler`; one that came since the process was started comes now."""
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
