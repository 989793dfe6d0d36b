"""Graceful termination: SIGTERM (from `kill`, systemd and batch systems) is handled like Ctrl-C.

Most commands end at once (`sigterm_interrupts`). Training could be interrupted in the middle of a weight update, so it
stops after the step (`stops_later`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from nlpctl.console import is_main_rank
from nlpctl.runtime.ranks import is_child, on_several_nodes, rank

STOP, STOP_KNOWN = "stop", "stop.known"  # files in NLPCTL_EXCHANGE
STOP_SECONDS = 25.0  # seconds from the first signal to a forced stop; many systems kill after 30

_POLL_SECONDS = 0.02


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Inside the context, SIGTERM raises KeyboardInterrupt.

    In a thread other than the main one, where Python allows no handlers, nothing changes. `import paddle` installs a
    handler that ends the process with a C++ stack; `configure_paddle` restores the previous one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def sigterm_waits() -> Iterator[None]:
    """Inside the context SIGTERM waits, for its end or for a service that starts to see it.

    Paddle's import would answer it with a C++ stack. Threads that begin inside never take the signal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopNote:
    """The step after which all processes stop: a file in the folder that those of a node share.

    The nodes pass it on (launch/node_launch.py). Process 0 goes on only when all of them have it, and no other
    process can finish the step without process 0.
    """

    def __init__(self, exchange: Path, several_nodes: bool = False):
        self._file, self._known = exchange / STOP, exchange / STOP_KNOWN
        self._several_nodes = several_nodes

    def read(self) -> int | None:
        return int(self._file.read_text(encoding="ascii")) if self._file.exists() else None

    def write(self, step: int) -> None:
        """Returns once all nodes have the note."""
        # Renamed, so that another process never reads half a number.
        staged = self._file.with_suffix(".new")
        staged.write_text(str(step), encoding="ascii")
        staged.rename(self._file)
        while self._several_nodes and not self._known.exists():
            time.sleep(_POLL_SECONDS)


class StopRequest:
    """Decides whether training stops, and after which step.

    A single process stops after the step in which the signal came. Several processes must stop after the same step:
    process 0 writes down the step after its current one. Every step ends with an exchange of gradients, so no other
    process can have finished that step before it was written down.
    """

    def __init__(self, note: StopNote | None):
        """`note`: where the run's processes read the step; None: there is one process."""
        self.asked = False
        self._note = note
        self._step: int | None = None

    def due(self, step: int) -> bool:
        """Whether to stop now that `step` steps are completed. Every process has to ask after every step."""
        if self._note is None:
            return self.asked
        if self._step is None:
            self._step = self._note.read()
            if self._step is None and self.asked and rank() == 0:
                self._step = step + 1
                self._note.write(self._step)
        return self._step is not None and step >= self._step


@contextlib.contextmanager
def stops_later(seconds: float = STOP_SECONDS) -> Iterator[StopRequest]:
    """Inside the context, the first Ctrl-C or SIGTERM only asks to stop; KeyboardInterrupt comes with the second, after
    `seconds`, or when the body ends without having stopped.

    In a thread other than the main one signals do what they did before.
    """
    note = StopNote(Path(os.environ["NLPCTL_EXCHANGE"]), on_several_nodes()) if is_child() else None
    stop = StopRequest(note)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    owner = os.getpid()

    def ask(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # in a data worker: Ctrl-C reaches it too, but its batches are still needed
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        signal.signal(signal.SIGALRM, _interrupt)
        # A step that hangs, such as a collective without its partner, would otherwise ignore the request for ever.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        if is_main_rank():  # os.write: a signal handler must not re-enter a stream that is being written to
            os.write(2, b"interrupted: a checkpoint is saved after this step (once more: stop at once)\n")

    kinds = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.getsignal(number) for number in (*kinds, signal.SIGALRM)}
    for number in kinds:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        if stop.asked:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
    if stop.asked:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
