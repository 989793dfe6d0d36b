"""Graceful termination: SIGTERM (from `kill`, systemd and batch systems) is handled like Ctrl-C.

Most commands end at once (`sigterm_interrupts`). Training could be interrupted in the middle of a weight update, so it
stops after the step (`stops_later`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from nlpctl import console
from nlpctl.runtime.ranks import EXCHANGE, is_child

MOST_STEPS = 32  # without an exchange: steps may become slower, and STOP_SECONDS go on
_EXCHANGE_SECONDS = 1.0
_SAME_SECONDS = 1.0  # between two signals of one request
STOP_SECONDS = 25.0  # seconds from SIGTERM to a forced stop; many systems kill after 30


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


sigterm_is_held = threading.Event()  # set inside `sigterm_waits`


@contextlib.contextmanager
def sigterm_waits() -> Iterator[None]:
    """Inside the context SIGTERM waits, for its end or for a service that starts to see it.

    Paddle's import would answer it with a C++ stack. Threads that begin inside never take the signal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sigterm_is_held.set()
    try:
        yield
    finally:
        sigterm_is_held.clear()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopRequest:
    """Decides after every step whether training stops. Several processes stop after the same step."""

    def __init__(
        self,
        maxima: Callable[[Sequence[int]], list[int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`maxima`: for each number, the greatest that a process of the run gives; by default Paddle's all-reduce.
        `clock`: seconds."""
        self.asked = False
        self._maxima, self._clock = maxima or _maxima_of_all, clock
        self._steps, self._left = 1, 1  # from one exchange to the next, and how many of them are left; alike everywhere
        self._exchanged = clock()

    def due(self, last: bool = False) -> bool:
        """Whether to stop now. Every process of a run has to ask after every step. `last`: no other step follows.

        Signals reach the processes at different moments, and one that stops alone would leave the others waiting for
        its gradients; a file or a store that all of them see could be read too early by one of them. So they tell each
        other by an all-reduce: not after every step, since they, and a GPU, wait for it, but about every
        _EXCHANGE_SECONDS. With it they agree on the number of steps until the next one, the least that one proposes.
        """
        if not is_child():
            return self.asked
        self._left -= 1
        if self._left > 0 and not last:
            return False
        per_step = (self._clock() - self._exchanged) / (self._steps - self._left)
        # At most twice as many as before: the first steps, and those after an evaluation, tell little of the next ones.
        proposed = max(1, min(2 * self._steps, MOST_STEPS, int(_EXCHANGE_SECONDS / max(per_step, 1e-6))))
        asked, steps = self._maxima([int(self.asked), -proposed])
        self._steps = self._left = -steps
        self._exchanged = self._clock()
        return bool(asked)


def _maxima_of_all(numbers: Sequence[int]) -> list[int]:
    import paddle

    together = paddle.to_tensor(list(numbers), dtype="int32")
    paddle.distributed.all_reduce(together, op=paddle.distributed.ReduceOp.MAX)
    maxima: list[int] = together.tolist()
    return maxima


@contextlib.contextmanager
def stops_later(seconds: float = STOP_SECONDS) -> Iterator[StopRequest]:
    """Inside the context, the first Ctrl-C or SIGTERM only asks to stop; KeyboardInterrupt comes with the second,
    `seconds` after a SIGTERM, or when the body ends without having stopped.

    A Ctrl-C waits for as long as the step and its checkpoint take: whoever sits there can give another. In a process
    that nlpctl has started it does not: a step may wait for a process that is gone, and nlpctl ends it by force then.

    In a thread other than the main one signals do what they did before.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    owner = os.getpid()
    first: tuple[int, float] | None = None  # the first signal, and when (seconds of time.monotonic)

    def is_second(number: int) -> bool:
        """Whether a signal after the first is another request.

        systemd and schedulers send SIGTERM to all processes at once. A rank that nlpctl started then gets it from them,
        and SIGINT from nlpctl, which has got it too: the two are one request, in whatever order they come. A terminal's
        Ctrl-C reaches nlpctl alone, which passes on the first as SIGINT, and after another ends the ranks by force.
        """
        assert first is not None
        if EXCHANGE not in os.environ or number == first[0]:
            return True
        return number == signal.SIGTERM and time.monotonic() > first[1] + _SAME_SECONDS

    def ask(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # in a data worker: Ctrl-C reaches it too, but its batches are still needed
            if number == signal.SIGTERM:
                os._exit(128 + number)
            return
        nonlocal first
        if stop.asked:
            if is_second(number):
                raise KeyboardInterrupt
            return
        first = number, time.monotonic()
        stop.asked = True
        if number == signal.SIGTERM or EXCHANGE in os.environ or multiprocessing.parent_process() is not None:
            signal.signal(signal.SIGALRM, too_late)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        if console.is_main_rank():
            when = "a common step: this one, or one within about a second" if is_child() else "this step"
            console.note_at_once(f"interrupted: a checkpoint is saved after {when} (once more: stop at once)")

    def too_late(number: int, frame: FrameType | None) -> None:
        if console.is_main_rank():
            saved = "the step and its checkpoint take longer, so that a resumed run goes on from an earlier one"
            console.note_at_once(f"stopped after {seconds:g} seconds: {saved}")
        raise KeyboardInterrupt

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
