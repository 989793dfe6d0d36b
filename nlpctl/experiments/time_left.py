"""The time left of several trainings: one that goes on tells its own, those to come take as long as the ended ones."""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.runs.live_runs import ToldByEvents


class TrainingsLeft:
    """The seconds until all trainings have ended, `workers` of which go on at a time.

    A training has a size, such as its rows, by which those to come are compared with those that ended.
    """

    def __init__(
        self,
        waiting: Sequence[float],
        workers: int,
        told: Callable[[Path, float], float | None],
        clock: Callable[[], float] = time.time,
    ):
        """`waiting`: the sizes of those to come. `told(run, since)`: the seconds left that a training tells itself,
        which has gone on since then; None: nothing."""
        self._waiting, self._workers, self._told, self._clock = list(waiting), workers, told, clock
        self._running: dict[Path, tuple[float, float]] = {}  # size, and when it began
        self._size, self._seconds = 0.0, 0.0  # of those that ended

    def begin(self, run: Path, size: float = 1.0) -> None:
        """A training begins: one of those to come."""
        self._running[run] = size, self._clock()
        if size in self._waiting:
            self._waiting.remove(size)

    def end(self, run: Path) -> None:
        """A training has ended; one that never began, since its values do not go together, says nothing of others."""
        if run in self._running:
            size, begun = self._running.pop(run)
            self._size, self._seconds = self._size + size, self._seconds + self._clock() - begun
        elif self._waiting:
            self._waiting.pop()

    def left(self) -> float | None:
        """None: none has ended, nor has one that goes on told anything."""
        now, running = self._clock(), list(self._running.items())
        told = {run: self._told(run, begun) for run, (_, begun) in running}
        size, seconds = self._size, self._seconds
        if not size:
            for run, (own, begun) in running:
                left = told[run]
                if left is not None:
                    size, seconds = size + own, seconds + now - begun + left
        if not size:
            return None
        pace, free = seconds / size, []
        for run, (own, begun) in running:
            left = told[run]
            free.append(max(0.0, pace * own - (now - begun)) if left is None else left)
        free += [0.0] * (self._workers - len(free))
        heapq.heapify(free)  # when each worker is free
        for own in self._waiting:
            heapq.heappush(free, heapq.heappop(free) + pace * own)
        return max(free)


class TrainingsProgress:
    """Shows how many of several trainings have ended, and the time left of all. Use it as a context."""

    def __init__(
        self,
        what: str,
        unit: str,
        total: int | None,
        waiting: Sequence[float],
        workers: int | None = None,
        at_most: Callable[[], float | None] = lambda: None,
    ):
        """`total`: None if unknown. `waiting`: the sizes of those to come. `workers`: how many processes train at a
        time; None: this one. `at_most`: no more seconds are left; None: no limit."""
        self._left = TrainingsLeft(waiting, workers or 1, self._told_here if workers is None else ToldByEvents())
        self._total, self._at_most = total, at_most
        self._lock = threading.RLock()  # trainings begin and end in threads of their own
        begun = 0 if total is None else total - len(waiting)
        self._stack = contextlib.ExitStack()
        self._bar: console.Progress | None = None
        self._shown = console.progress(total, what, unit, begun=begun, left=lambda _: self.left(), lines=False)

    def __enter__(self) -> TrainingsProgress:
        self._bar = self._stack.enter_context(self._shown)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def begin(self, run: Path, size: float = 1.0) -> None:
        with self._lock:
            self._left.begin(run, size)

    def end(self, run: Path) -> None:
        with self._lock:
            self._left.end(run)
            self.tick(1)

    def tick(self, ended: int = 0) -> None:
        """Time has passed, and so many have ended."""
        with self._lock:
            if self._bar is not None:
                self._bar.advance(ended)

    def left(self) -> float | None:
        """Seconds left of all; None if that is unknown."""
        expected = None if self._total is None else self._left.left()  # else as many begin as there is time for
        limits = [each for each in (expected, self._at_most()) if each is not None]
        return max(0.0, min(limits)) if limits else None

    def left_in_words(self) -> str:
        """For the end of a message: ", about 12m10s left"; "" if nothing is known."""
        left = self.left()
        return "" if not left else f", about {console.duration(left)} left"

    def _told_here(self, run: Path, since: float) -> float | None:
        part = None if self._bar is None else self._bar.part
        return None if part is None or part.what != "train" else part.left()
