"""Several workers that take jobs from one list. What a lost worker had taken is done again.

A worker is a process of this machine (`LocalWorker`) or whatever else answers requests (`WorkerHandle`). Each is
served by a thread of this process, which starts it, hands it one job at a time, and starts another one in place of
one that ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

from nlpctl import console
from nlpctl.errors import RunFailed
from nlpctl.runtime.worker import ProcessEnded, Worker

MOST_LOSSES = 3  # workers that may be lost over one job
MOST_WAITS = 24  # times in a row that no worker at all can be had
_GRACE = 5.0  # seconds for a worker to end

_AGAIN = 5.0  # seconds until a worker is asked for again where there was no room

Job = Callable[..., Any]


class NoRoom(RunFailed):
    """A worker cannot be had now."""


class WorkerHandle(Protocol):
    """Something that works elsewhere."""

    def ask(self, job: tuple[Job, tuple[Any, ...]]) -> Any:
        """The result of the job's function, called there. ProcessEnded: it is lost, and the job may not be done."""
        ...

    def end(self, interrupt: bool) -> None:
        """End it; with `interrupt` also in the middle of a job. May be called twice."""
        ...


class LocalWorker:
    """A process of this machine."""

    def __init__(self, opened: Callable[..., Callable[[Any], Any]], *arguments: Any):
        self._worker = Worker(opened, *arguments, grace=_GRACE, daemon=True)
        self._worker.start()

    def ask(self, job: tuple[Job, tuple[Any, ...]]) -> Any:
        return self._worker.ask(job, f"worker process {self._worker.pid}", "out of memory? use fewer --workers")

    def end(self, interrupt: bool) -> None:
        self._worker.end(interrupt)


@dataclass
class WorkItem:
    """What one worker has done. `seconds`: at work; `losses`: processes that ended in the middle of it."""

    worker: int
    jobs: int = 0
    rows: int = 0
    seconds: float = 0.0
    losses: int = 0


@dataclass
class _Taken:
    """A job in the list. `losses`: workers lost over it."""

    number: int
    work: tuple[Job, tuple[Any, ...]]
    losses: int = field(default=0)


class WorkerPool:
    """Workers 0 to `size` - 1. Use it as a context: they end with it."""

    def __init__(self, hire: Callable[[int], WorkerHandle], size: int):
        """`hire(i)` starts worker i, and may be called again when it is lost. NoRoom: it is called again later."""
        self.shares = [WorkItem(number) for number in range(size)]
        self._hire = hire
        self._hands: list[WorkerHandle | None] = [None] * size
        self._waiting: SimpleQueue[_Taken | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, Any, int]] = SimpleQueue()
        self._stopped = threading.Event()
        self._missing, self._told = 0, False  # how often there was no room for any; whether that was told
        # These threads last as long as the workers, which end with the thread that started them.
        self._threads = [threading.Thread(target=self._serve, args=(number,), daemon=True) for number in range(size)]

    def __enter__(self) -> WorkerPool:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        self._stopped.set()
        for _ in self._threads:
            self._waiting.put(None)
        ending = self._interrupt() if kind is not None else []
        try:
            for thread in (*ending, *self._threads):
                thread.join()
        except KeyboardInterrupt:  # the second one
            self._interrupt()
            raise

    def _interrupt(self) -> list[threading.Thread]:
        """Interrupt all workers at once, since each has a while to end; the threads that wait for that."""
        hands = [hand for hand in self._hands if hand is not None]
        ending = [threading.Thread(target=hand.end, args=(True,), daemon=True) for hand in hands]
        for thread in ending:
            thread.start()
        return ending

    def results(self, jobs: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any, int]]:
        """Run jobs, (function, its arguments...), in any worker; (job's number, result, worker) as each is done.

        The function gets what the worker holds before its arguments. The first failure of a job is raised; RunFailed if
        MOST_LOSSES workers were lost over one job.
        """
        count = 0
        for job in jobs:
            self._waiting.put(_Taken(count, (job[0], job[1:])))
            count += 1
        for _ in range(count):
            number, result, worker = self._done.get()
            if isinstance(result, BaseException):
                raise result
            yield number, result, worker

    def _serve(self, number: int) -> None:
        """What the thread of worker `number` does."""
        try:
            while (job := self._waiting.get()) is not None and not self._stopped.is_set():
                try:
                    self._run(number, job)
                except BaseException as error:  # also of the house's own code: nobody must wait for ever
                    self._done.put((job.number, error, number))
        finally:
            hand = self._hands[number]
            if hand is not None:
                hand.end(interrupt=False)

    def _run(self, number: int, job: _Taken) -> None:
        share, started = self.shares[number], time.monotonic()
        try:
            if self._hands[number] is None:
                self._hands[number] = self._hire(number)
                if self._stopped.is_set():  # while it was hired, when nobody could end it
                    return
            result = self._hands[number].ask(job.work)
        except NoRoom as missing:
            self._hands[number] = None
            if not self._told:
                console.note(f"worker {number}: {missing.problems[0].message}; it is asked for again")
                self._told = True
            # While there is one, which may take a day over its job, the others wait as long as they must.
            self._missing = 0 if any(self._hands) else self._missing + 1
            if self._missing > MOST_WAITS:
                raise
            self._waiting.put(job)  # for a worker that is there
            self._stopped.wait(_AGAIN)
            return
        except ProcessEnded as lost:
            hand, self._hands[number] = self._hands[number], None
            if hand is not None:
                hand.end(interrupt=True)
            if self._stopped.is_set():
                return
            share.losses += 1
            job.losses += 1
            if job.losses == MOST_LOSSES:
                problem = lost.problems[0]
                message = f"{MOST_LOSSES} workers were lost over the same piece of work, the last one: "
                raise RunFailed(message + problem.message, problem.where, problem.hint) from None
            console.note(f"worker {number} was lost ({lost.problems[0].message}); another one takes its place")
            self._waiting.put(job)
            return
        self._missing, self._told = 0, False
        share.jobs += 1
        share.seconds += time.monotonic() - started
        self._done.put((job.number, result, number))


def answering(held: Any) -> Callable[[tuple[Job, tuple[Any, ...]]], Any]:
    """What a worker answers jobs with, once it holds `held`."""
    return lambda job: job[0](held, *job[1])
