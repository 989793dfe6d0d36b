"""A watchdog that reports the stacks of all threads if a run makes no progress."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import paddle

from nlpctl import console
from nlpctl.runtime.event_log import EventLog

EVENT = "stalled"
STDERR = 2
MARGIN = 5.0  # seconds before faulthandler reports, in case Python cannot run


class Watchdog:
    """Reports if `beat` was not called for `minutes`: once per stall.

    A Python thread reports, with the step and an event. If C++ code blocks all Python threads, faulthandler's own
    thread writes only the stacks.
    """

    def __init__(self, minutes: float, log: EventLog, step: Callable[[], int]):
        self._seconds, self._log, self._step = minutes * 60, log, step
        self._last = time.monotonic()
        self._reported = False
        self._ended = threading.Event()

    def beat(self) -> None:
        """Record progress."""
        self._last, self._reported = time.monotonic(), False
        faulthandler.dump_traceback_later(self._seconds + MARGIN, file=STDERR)

    def watch(self) -> None:
        """The body of the thread that reports."""
        while not self._ended.wait(min(self._seconds / 4, 10.0)):
            if not self._reported and time.monotonic() - self._last > self._seconds:
                self._reported = True
                faulthandler.cancel_dump_traceback_later()
                self._report()

    def end(self) -> None:
        self._ended.set()
        faulthandler.cancel_dump_traceback_later()

    def _report(self) -> None:
        step, minutes = self._step(), self._seconds / 60
        time_passed = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
        console.warn(f"no progress for {time_passed}, after step {step}; what every thread is doing:")
        faulthandler.dump_traceback(file=STDERR, all_threads=True)
        console.warn("the run keeps waiting; runtime.watchdog_minutes sets the time before this message (null: never)")
        if console.is_main_rank():
            self._log.append(EVENT, step, minutes=minutes)


@contextmanager
def watched_for_progress(
    network: paddle.nn.Layer, minutes: float | None, log: EventLog, step: Callable[[], int]
) -> Iterator[None]:
    """Inside the context, every batch that `network` computes, for training or scoring, counts as progress. None:
    disabled.

    `step`: returns the number of completed steps.
    """
    if minutes is None:
        yield
        return
    watchdog = Watchdog(minutes, log, step)
    hook = network.register_forward_post_hook(lambda *_: watchdog.beat())
    thread = threading.Thread(target=watchdog.watch, name="watchdog", daemon=True)
    watchdog.beat()
    thread.start()
    try:
        yield
    finally:
        hook.remove()
        watchdog.end()
        thread.join()
