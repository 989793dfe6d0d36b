"""Dynamic batching: waiting requests form batches for one engine.

    submit (event loop) --queue, bounded--> one thread: answer(rows) --> back to each request

While the engine computes, requests gather, so under load batches fill without waiting. An idle engine starts at once,
or after `batch_wait`. Several batches are taken together and their requests sorted by length: a batch is as slow as its
longest row, and on real texts sorting gives 1.5 times the rows per second.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from nlpctl.errors import UserError
from nlpctl.serving.metrics import SECONDS, Counter, Gauge, Histogram, Metric
from nlpctl.serving.refused import Refused, failed, full, unusable
from nlpctl.serving.settings import ServeSettings

Answer = Callable[[Sequence[Any]], list[dict[str, Any]]]  # rows, including bad ones, to their answers in order
Size = Callable[[Any], int]  # of a row; grows with the time it takes
WINDOW = 4  # batches taken from the queue together
BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(eq=False)
class _Waiting:
    rows: Sequence[Any]
    future: asyncio.Future[list[dict[str, Any]]]
    since: float = field(default_factory=time.monotonic)
    taken: bool = False  # by the engine


class Batcher:
    """The queue of a service and the thread of its engine. Used in one event loop."""

    def __init__(self, answer: Answer, size: Size, settings: ServeSettings, report: Callable[[BaseException], None]):
        """`report` is called with every failure that is not the sender's mistake."""
        self._answer, self._size, self._settings, self._report = answer, size, settings, report
        self._queue: deque[_Waiting] = deque()
        self._some = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._task: asyncio.Task[None] | None = None
        self._waiting_rows = self._computed_rows = 0
        self._rate = 0.0  # recent rows per second
        self.rows = Counter("nlpctl_rows_total", "Rows that were answered.")
        self.failures = Counter("nlpctl_engine_failures_total", "Requests that the engine failed on.")
        self.batch_rows = Histogram("nlpctl_batch_rows", "Rows per batch.", BATCH_ROWS)
        self.batch_seconds = Histogram("nlpctl_batch_seconds", "Seconds to compute a batch.", SECONDS)
        self.wait_seconds = Histogram("nlpctl_wait_seconds", "Seconds that a request waited in the queue.", SECONDS)
        self.metrics: tuple[Metric, ...] = (
            self.rows,
            self.failures,
            self.batch_rows,
            self.batch_seconds,
            self.wait_seconds,
            Gauge("nlpctl_queue_rows", "Rows in the queue.", lambda: self._waiting_rows),
            Gauge("nlpctl_queue_limit_rows", "Capacity of the queue in rows.", lambda: settings.queue),
            Gauge("nlpctl_computed_rows", "Rows in the engine at the moment.", lambda: self._computed_rows),
        )

    def start(self) -> None:
        """Start answering. Call it in the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop after the current batch of the engine. The queue must be empty."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=True)

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def check_room(self, rows: int = 1) -> None:
        """Refused (503) if the queue has no room for so many rows, or they would wait too long."""
        wait = self._wait()
        if self._waiting_rows + rows > self._settings.queue or wait > self._settings.max_wait:
            raise full(max(1, math.ceil(wait / 2)))

    async def submit(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """The answers to `rows`, in order. Refused: no room, rows the task cannot use, a failing engine.

        Cancelled, the rows leave the queue, unless the engine has them already.
        """
        self.check_room(len(rows))
        waiting = _Waiting(rows, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._waiting_rows += len(rows)
        self._some.set()
        try:
            return await waiting.future
        finally:
            if not waiting.taken:
                # The sender has disconnected before the engine took its rows.
                self._queue.remove(waiting)
                self._waiting_rows -= len(rows)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some.wait()
            await self._gather()
            for batch in self._batches(self._take()):
                wanted = [each for each in batch if not each.future.done()]  # the other senders have disconnected
                started, rows = time.monotonic(), sum(len(each.rows) for each in wanted)
                for each in wanted:
                    self.wait_seconds.observe(started - each.since)
                if wanted:
                    todo = [each.rows for each in wanted]
                    try:
                        results = await loop.run_in_executor(self._thread, self._answer_all, todo)
                    except Exception as error:  # no thread: this task must survive, or requests wait forever
                        results = [error] * len(wanted)
                    self._note(rows, time.monotonic() - started)
                    self._finish(wanted, results)
                self._computed_rows -= sum(len(each.rows) for each in batch)

    async def _gather(self) -> None:
        """Wait until the batch is full, at most `batch_wait` seconds after its first request came."""
        while self._settings.batch_wait and 0 < self._waiting_rows < self._settings.batch_size:
            left = self._queue[0].since + self._settings.batch_wait - time.monotonic()
            if left <= 0:
                return
            self._some.clear()
            try:
                await asyncio.wait_for(self._some.wait(), left)
            except asyncio.TimeoutError:
                self._some.set()
                return

    def _take(self) -> list[_Waiting]:
        """The first requests of the queue, as many as fit into WINDOW batches; a larger request goes alone."""
        taken: list[_Waiting] = []
        rows = 0
        while self._queue and (not taken or rows + len(self._queue[0].rows) <= WINDOW * self._settings.batch_size):
            taken.append(self._queue.popleft())
            taken[-1].taken = True
            rows += len(taken[-1].rows)
        self._waiting_rows -= rows
        self._computed_rows = rows
        if not self._queue:
            self._some.clear()
        return taken

    def _batches(self, requests: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
        """Batches of requests of similar length, the shortest first."""
        batch: list[_Waiting] = []
        rows = 0
        # Sorted within what was taken together only, so a long request never waits for ever behind short ones.
        for each in sorted(requests, key=lambda each: max(map(self._size, each.rows))):
            if batch and rows + len(each.rows) > self._settings.batch_size:
                yield batch
                batch, rows = [], 0
            batch.append(each)
            rows += len(each.rows)
        if batch:
            yield batch

    def _answer_all(self, requests: Sequence[Sequence[Any]]) -> list[list[dict[str, Any]] | Exception]:
        """Runs in the engine's thread: per request its answers, or its exception.

        If a batch fails, each request is retried alone, so that a bad one cannot fail the others.
        """
        try:
            answers = iter(self._answer([row for rows in requests for row in rows]))
            return [[next(answers) for _ in rows] for rows in requests]
        except Exception as error:
            if len(requests) == 1:
                return [error]
            return [each for rows in requests for each in self._answer_all([rows])]

    def _note(self, rows: int, seconds: float) -> None:
        """A batch was computed."""
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)
        # An exponential mean follows changes of load within some ten batches.
        rate = rows / max(seconds, 1e-6)
        self._rate = rate if not self._rate else 0.9 * self._rate + 0.1 * rate

    def _finish(self, batch: Sequence[_Waiting], results: Sequence[list[dict[str, Any]] | Exception]) -> None:
        for waiting, result in zip(batch, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, UserError):
                self.failures.add()
                self._report(result)
            if waiting.future.done():  # its sender has disconnected
                continue
            if isinstance(result, Exception):
                waiting.future.set_exception(_refusal(result))
            else:
                self.rows.add(len(result))
                waiting.future.set_result(result)

    def _wait(self) -> float:
        """Seconds until the engine has finished its current rows and the queue, at the recent rate."""
        return (self._waiting_rows + self._computed_rows) / self._rate if self._rate else 0.0


def _refusal(error: Exception) -> Refused:
    return unusable(error.problems) if isinstance(error, UserError) else failed(error)
