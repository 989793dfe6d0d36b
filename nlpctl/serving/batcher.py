"""Dynamic batching: waiting requests form batches for one engine.

    submit (event loop) --queue, bounded--> a thread: answer(rows) --> back to each request

While the engine computes, requests gather, so under load batches fill without waiting. An idle engine starts at once,
or after `batch_wait`. What waits is sorted by length and divided into the batches that cost the least (batch_costs.py).

Few requests are computed by all threads of the engine, one batch after the other. An engine with streams computes more
than these in a batch per stream: its threads need not wait for each other after every operator, nor for the core that
the event loop is using, and answers are sent while other batches are computed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nlpctl.errors import UserError
from nlpctl.runtime.streams import ONE_STREAM, Streams
from nlpctl.serving.batch_costs import BatchCosts
from nlpctl.serving.metrics import SECONDS, Counter, Gauge, Histogram, Metric
from nlpctl.serving.refused import Refused, failed, full, unusable
from nlpctl.serving.settings import ServeSettings

Answer = Callable[[Sequence[Any]], list[dict[str, Any]]]  # rows, including bad ones, to their answers in order
Size = Callable[[Any], int]  # of a row; grows with the time it takes
StreamsOf = Callable[[], Streams]  # of the engine that answers now
WINDOW = 4  # batches taken from the queue together
CROWDS = 32  # times that more requests than streams met before these are opened: that loads the graph again
BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(eq=False)
class _Waiting:
    rows: Sequence[Any]
    longest: int  # size of a row
    future: asyncio.Future[list[dict[str, Any]]]
    since: float = field(default_factory=time.monotonic)
    taken: bool = False  # by the engine


class _Threads:
    """Those that compute batches side by side, each in a stream of the engine, or one that asks the whole engine."""

    def __init__(self, streams: Streams = ONE_STREAM):
        """Opens `streams`, which loads the graph a second time."""
        self.streams, self.costs, self._open = streams, BatchCosts(), ExitStack()
        self._open.enter_context(streams.open)
        self.executor: Executor = ThreadPoolExecutor(streams.count, "engine", streams.enter)

    def close(self) -> None:
        self.executor.shutdown(wait=True)
        self._open.close()


class Batcher:
    """The queue of a service and the threads of its engine. Used in one event loop."""

    def __init__(
        self,
        answer: Answer,
        size: Size,
        settings: ServeSettings,
        report: Callable[[BaseException], None],
        streams: StreamsOf = lambda: ONE_STREAM,
    ):
        """`report` is called with every failure that is not the sender's mistake.

        `answer` is called in several threads at once if `streams` are several.
        """
        self._answer, self._size, self._settings, self._report = answer, size, settings, report
        self._queue: deque[_Waiting] = deque()
        self._some = asyncio.Event()
        self._whole = self._beside = _Threads()
        self._streams, self._followed, self._crowds = streams, ONE_STREAM, 0
        self._running: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting_rows = self._computed_rows = self._unanswered = 0
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
        """Stop after the current batches of the engine. The queue must be empty."""
        if self._task is not None:
            self._task.cancel()
        own = [each for each in (self._task, self._opening, *self._running) if each is not None]
        await asyncio.gather(*own, return_exceptions=True)
        for threads in {self._whole, self._beside}:
            threads.close()

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
        waiting = _Waiting(rows, max(map(self._size, rows)), asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._waiting_rows += len(rows)
        self._unanswered += 1
        self._some.set()
        try:
            return await waiting.future
        finally:
            self._unanswered -= 1
            if not waiting.taken:
                # The sender has disconnected before the engine took its rows.
                self._queue.remove(waiting)
                self._waiting_rows -= len(rows)

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            await self._until_free()
            await self._gather()
            crowded = self._crowded
            for batch in self._batches(self._take(), crowded):
                await self._until_free()
                task = asyncio.create_task(self._compute(batch, crowded))
                self._running.add(task)
                task.add_done_callback(self._ended)

    @property
    def _crowded(self) -> bool:
        """Whether there are more requests than the engine has streams."""
        return self._unanswered > self._streams().count

    def _threads(self, crowded: bool) -> _Threads:
        """Who computes. Not to be kept across an `await`: `_open` may close them."""
        return self._beside if crowded else self._whole

    async def _until_free(self) -> None:
        """Wait until a thread of the engine has nothing to do."""
        while len(self._running) >= (self._beside.streams.count if self._crowded else 1):
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def _compute(self, batch: Sequence[_Waiting], crowded: bool) -> None:
        wanted = [each for each in batch if not each.future.done()]  # the other senders have disconnected
        started = time.monotonic()
        for each in wanted:
            self.wait_seconds.observe(started - each.since)
        if wanted:
            todo, loop = [each.rows for each in wanted], asyncio.get_running_loop()
            threads = self._threads(crowded)
            try:
                results = await loop.run_in_executor(threads.executor, self._answer_all, todo)
            except Exception as error:  # no thread: this task must survive, or requests wait forever
                results = [error] * len(wanted)
            seconds, rows = time.monotonic() - started, sum(map(len, todo))
            self._note(rows, seconds)
            if not any(isinstance(each, Exception) for each in results):  # its requests were computed one by one
                threads.costs.add(rows, max(each.longest for each in wanted), seconds)
            self._finish(wanted, results)
        self._computed_rows -= sum(len(each.rows) for each in batch)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)  # a defect: from now on /health says that the service is broken
            if self._task is not None:
                self._task.cancel()

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
        self._computed_rows += rows
        if not self._queue:
            self._some.clear()
        return taken

    def _batches(self, requests: Sequence[_Waiting], crowded: bool) -> list[list[_Waiting]]:
        """Batches of requests of similar length, the shortest first."""
        if crowded:
            self._follow_engine()
        # Sorted within what was taken together only, so a long request never waits for ever behind short ones.
        ordered = sorted(requests, key=lambda each: each.longest)
        rows, sizes = [len(each.rows) for each in ordered], [each.longest for each in ordered]
        ends = self._threads(crowded).costs.divide(rows, sizes, self._settings.batch_size)
        return [ordered[start:end] for start, end in pairwise([0, *ends])]

    def _follow_engine(self) -> None:
        """Open the streams of the engine that answers now, in a thread of their own, once that pays."""
        self._crowds += 1
        streams = self._streams()
        if self._crowds > CROWDS and streams is not self._followed and self._opening is None:
            self._followed = streams
            self._opening = asyncio.create_task(self._open(streams))

    async def _open(self, streams: Streams) -> None:
        last, self._beside = self._beside, self._whole
        if streams.count > 1:
            with suppress(Exception):  # no memory, or no thread: the whole engine goes on answering
                self._beside = await asyncio.to_thread(_Threads, streams)
        if last is not self._whole:
            await asyncio.to_thread(last.close)  # once its batches are computed
        self._opening = None

    def _answer_all(self, requests: Sequence[Sequence[Any]]) -> list[list[dict[str, Any]] | Exception]:
        """Runs in a thread of the engine: per request its answers, or its exception.

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
        rate = len(self._running) * rows / max(seconds, 1e-6)
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
