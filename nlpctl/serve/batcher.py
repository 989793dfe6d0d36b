"""Dynamic batching: waiting requests form batches for one engine.

    submit (event loop) --queue, bounded--> a thread: answer(rows) --> back to each request

While the engine computes, requests gather, so under load batches fill without waiting. An idle engine starts at once,
or after `batch_wait`. What waits is sorted by length and divided into the batches that cost the least (`BatchCosts`).

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

import numpy as np

from nlpctl.errors import UserError, is_failure
from nlpctl.runtime.threads import ONE_STREAM, Streams
from nlpctl.serve.metrics import SECONDS, Counter, Gauge, Histogram, Metric
from nlpctl.serve.requests import Refused, busy, failed, unusable
from nlpctl.serve.settings import LAST_BATCH, ServeSettings
from nlpctl.spelling import option

# --------------------------------------------------------------------------------------------------
# What batches cost, learned from those computed so far, and how requests are divided so that they cost the least.
#
# A batch is as slow as its longest row. Dividing it saves what the shorter rows are padded by, and costs what every
# batch takes whatever is in it. Both differ by a hundred times between networks and devices, so they are measured.

_MEMORY = 0.98  # weight of a batch beside the next one: some fifty count
_ENOUGH = 8  # batches before their cost is believed


class BatchCosts:
    """Seconds of a batch = fixed + per unit * rows * size of the longest, by least squares over the latest batches.

    Padding makes every row as large as the longest. `size` is any unit that grows with a row's time.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)  # of 1, x, y, x * x, x * y

    def add(self, rows: int, longest: float, seconds: float) -> None:
        """A batch of `rows`, the largest of size `longest`, took `seconds`."""
        self._seen += 1
        padded = rows * longest
        latest = (1, padded, seconds, padded * padded, padded * seconds)
        self._sums = tuple(_MEMORY * last + new for last, new in zip(self._sums, latest, strict=True))

    def fitted(self) -> tuple[float, float]:
        """Seconds of every batch, and per unit of padded size, neither negative.

        (1, 0), which makes batches full, while too little is known.
        """
        count, x, y, xx, xy = self._sums
        spread = count * xx - x * x
        if self._seen < _ENOUGH or spread <= 1e-9 * count * xx:  # all of one size
            return 1.0, 0.0
        each = max((count * xy - x * y) / spread, 0.0)
        fixed = (y - each * x) / count
        # Batches of nearly one size say little of either: the best line that is not below zero begins there.
        return (fixed, each) if fixed >= 0 else (0.0, xy / xx)

    def seconds(self, batches: int, padded: float) -> float | None:
        """What `batches` of `padded` units in all will take; None while that is unknown."""
        fixed, each = self.fitted()
        return fixed * batches + each * padded if each else None

    def divide(self, rows: Sequence[int], sizes: Sequence[float], most: int) -> list[int]:
        """Where to divide requests into batches of at most `most` rows, one larger request aside, for the least cost.

        `rows` of each request, and the size of its longest, rising. Returns the end of each batch.
        """
        if len(rows) == 1:
            return [1]
        fixed, each = self.fitted()
        before = np.concatenate([[0], np.cumsum(rows)])  # rows before each request
        cost, start = np.zeros(len(rows) + 1), [0] * (len(rows) + 1)
        # cost[end] is the least cost of the first `end` requests, whose last batch begins at start[end].
        for end in range(1, len(rows) + 1):
            first = min(int(np.searchsorted(before, before[end] - most)), end - 1)
            costs = cost[first:end] + each * sizes[end - 1] * (before[end] - before[first:end])
            # argmin takes the first of equals, which is the largest batch.
            start[end] = first + int(costs.argmin())
            cost[end] = costs[start[end] - first] + fixed
        ends = [len(rows)]
        while start[ends[-1]]:
            ends.append(start[ends[-1]])
        return ends[::-1]


Answer = Callable[[Sequence[Any]], list[dict[str, Any]]]  # rows, including bad ones, to their answers in order
Size = Callable[[Any], int]  # of a row; grows with the time it takes
StreamsOf = Callable[[], Streams]  # of the engine that answers now
CHUNK_BATCHES = 4  # batches taken from the queue together
OVERLOADS = 32  # times that more requests than streams met before these are opened: that loads the graph again
_LONGEST_RETRY = 60  # seconds of Retry-After
BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(eq=False)
class _Pending:
    """A request in the queue, or in the engine. `future`: gets its answers."""

    rows: Sequence[Any]
    longest: int  # size of a row
    size: int  # of all rows
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
        self._queue: deque[_Pending] = deque()
        self._planned: deque[Sequence[_Pending]] = deque()  # batches that were taken from the queue
        self._changed = asyncio.Event()  # a request came, or a batch was computed
        self._single_stream = _Threads()  # a batch at a time on all processors
        self._side_by_side = self._single_stream  # after _follow_engine: a stream per batch
        self._streams = streams  # gives the streams of the engine that answers now
        self._opened_streams = ONE_STREAM  # those that _side_by_side has, or is to have
        self._overloads = 0  # plans made while more requests than streams were unanswered
        self._running: dict[asyncio.Task[None], _Threads] = {}  # a task per batch
        self._task: asyncio.Task[None] | None = None
        self._defect: BaseException | None = None  # why nothing is answered any more
        self._opening: asyncio.Task[None] | None = None
        self._waiting_rows = self._computed_rows = self._unanswered = 0
        self._unfinished = self._begun = 0  # sizes of all rows that wait or are computed, and of those in the engine
        self._rate = 0.0  # recent rows per second
        self._latest_rows = self._latest_seconds = self._busy_since = 0.0
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
        self._task.add_done_callback(self._stopped)

    async def close(self, seconds: float = LAST_BATCH) -> bool:
        """Stop after the current batches of the engine. The queue must be empty.

        False: the engine still computes after so many seconds, in a thread that the interpreter would wait for.
        """
        if self._task is not None:
            self._task.cancel()
        if own := [each for each in (self._task, self._opening, *self._running) if each is not None]:
            await asyncio.wait(own, timeout=seconds)
        if self._opening is not None or self._running:
            return False
        for threads in {self._single_stream, self._side_by_side}:
            threads.close()
        return True

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def check_room(self, rows: int = 1) -> None:
        """Refused: the queue has no room for so many rows, or they would wait too long (503); a defect (500)."""
        if self._defect is not None:
            raise failed(self._defect)
        wait, waiting, settings = self._expected_wait(), self._waiting_rows, self._settings
        reason = None
        if waiting + rows > settings.queue:
            most = f"{settings.queue:,} rows wait ({option('queue')})"
            reason = f"{waiting:,} of at most {most}, no room for {rows:,} more"
        elif wait > settings.max_wait:
            most = f"{settings.max_wait:g} s ({option('max-wait')})"
            reason = f"an answer would wait about {wait:.1f} s for those before it, and at most {most}"
        if reason is not None:
            raise busy(reason, min(max(1, math.ceil(wait / 2)), _LONGEST_RETRY))

    async def submit(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """The answers to `rows`, in order. Refused: no room, rows the task cannot use, a failing engine.

        Cancelled, the rows leave the queue, unless the engine has them already.
        """
        self.check_room(len(rows))
        sizes = list(map(self._size, rows))
        pending = _Pending(rows, max(sizes), sum(sizes), asyncio.get_running_loop().create_future())
        self._queue.append(pending)
        self._waiting_rows += len(rows)
        self._unfinished += pending.size
        self._unanswered += 1
        self._changed.set()
        try:
            return await pending.future
        finally:
            self._unanswered -= 1
            if not pending.taken:
                # The sender has disconnected before the engine took its rows.
                self._queue.remove(pending)
                self._waiting_rows -= len(rows)
                self._unfinished -= pending.size

    async def _run(self) -> None:
        while True:
            threads = self._free()
            if threads is not None and self._planned:
                self._start(self._planned.popleft(), threads)
                continue
            left = None  # seconds until a batch is due, whatever happens
            if threads is not None and self._queue:
                left = self._left_to_gather()
                if left <= 0:
                    self._plan(threads)
                    continue
            self._changed.clear()
            # Not asyncio.wait_for, which may lose a cancellation before Python 3.12.
            timer = None if left is None else asyncio.get_running_loop().call_later(left, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _free(self) -> _Threads | None:
        """Who can take a batch now: a stream if there are more requests than streams, else the whole engine."""
        beside, running = self._side_by_side, self._running.values()
        if beside is not self._single_stream and self._unanswered > beside.streams.count:
            return beside if len(running) < beside.streams.count else None
        return None if self._single_stream in running else self._single_stream

    def _left_to_gather(self) -> float:
        """Seconds until the batch is to start: it is full, or `batch_wait` seconds after its first request came."""
        if self._waiting_rows >= self._settings.batch_size:
            return 0.0
        return self._queue[0].since + self._settings.batch_wait - time.monotonic()

    def _plan(self, threads: _Threads) -> None:
        """Divide what waits into batches of requests of similar length, the shortest first."""
        self._follow_engine()
        # Sorted within what was taken together only, so a long request never waits for ever behind short ones.
        ordered = sorted(self._take(), key=lambda each: each.longest)
        rows, sizes = [len(each.rows) for each in ordered], [each.longest for each in ordered]
        free = 1 if threads is self._single_stream else threads.streams.count - len(self._running)
        most = min(self._settings.batch_size, math.ceil(sum(rows) / free))  # something for each
        self._planned += [ordered[start:end] for start, end in pairwise([0, *threads.costs.divide(rows, sizes, most)])]

    def _take(self) -> list[_Pending]:
        """The first requests of the queue, as many as fit into CHUNK_BATCHES batches; a larger request goes alone."""
        taken: list[_Pending] = []
        rows, most = 0, CHUNK_BATCHES * self._settings.batch_size
        while self._queue and (not taken or rows + len(self._queue[0].rows) <= most):
            taken.append(self._queue.popleft())
            taken[-1].taken = True
            rows += len(taken[-1].rows)
        self._waiting_rows -= rows
        self._computed_rows += rows
        return taken

    def _start(self, batch: Sequence[_Pending], threads: _Threads) -> None:
        if not self._running:
            self._busy_since = time.monotonic()
        self._begun += sum(each.size for each in batch)
        task = asyncio.create_task(self._compute(batch, threads))
        self._running[task] = threads
        task.add_done_callback(self._ended)

    async def _compute(self, batch: Sequence[_Pending], threads: _Threads) -> None:
        try:
            if left := [each for each in batch if not each.future.done()]:  # the other senders have disconnected
                await self._answer_together(left, threads)
        except BaseException as error:
            _refuse(batch, error)
            raise
        finally:
            self._computed_rows -= sum(len(each.rows) for each in batch)
            size = sum(each.size for each in batch)
            self._unfinished -= size
            self._begun -= size

    async def _answer_together(self, batch: Sequence[_Pending], threads: _Threads) -> None:
        started = time.monotonic()
        for each in batch:
            self.wait_seconds.observe(started - each.since)
        todo, loop = [each.rows for each in batch], asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(threads.executor, self._answer_all, todo)
        except Exception as error:  # no thread: the others must not wait forever
            results = [error] * len(batch)
        seconds, rows = time.monotonic() - started, sum(map(len, todo))
        self._finish(batch, results)
        self._count_batch(rows, seconds)
        # Not what was computed in several batches: more rows than one has, or request by request after a failure.
        if rows <= self._settings.batch_size and not any(isinstance(each, BaseException) for each in results):
            threads.costs.add(rows, max(each.longest for each in batch), seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()
        self._stopped(task)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """A defect: what waits is refused, and from now on /health says that the service is broken."""
        self._defect = error
        if self._task is not None:
            self._task.cancel()
        _refuse([*self._queue, *(each for batch in self._planned for each in batch)], error)
        self._report(error)

    def _follow_engine(self) -> None:
        """Open the streams of the engine that answers now, in a thread of their own, once that pays."""
        streams = self._streams()
        self._overloads += self._unanswered > streams.count
        if self._overloads > OVERLOADS and streams is not self._opened_streams and self._opening is None:
            self._opened_streams = streams
            self._opening = asyncio.create_task(self._open(streams))

    async def _open(self, streams: Streams) -> None:
        last, self._side_by_side = self._side_by_side, self._single_stream
        try:
            if last is not self._single_stream:
                while users := [task for task, threads in self._running.items() if threads is last]:
                    await asyncio.wait(users)
                await asyncio.to_thread(last.close)
            if streams.count > 1:
                with suppress(Exception):  # no memory: the whole engine goes on answering
                    self._side_by_side = await asyncio.to_thread(_Threads, streams)
        finally:
            self._opening = None
            self._changed.set()

    def _answer_all(self, requests: Sequence[Sequence[Any]]) -> list[list[dict[str, Any]] | BaseException]:
        """Runs in a thread of the engine: per request its answers, or its exception.

        If a batch fails, each request is retried alone, so that a bad one cannot fail the others.
        """
        try:
            answers = iter(self._answer([row for rows in requests for row in rows]))
            return [[next(answers) for _ in rows] for rows in requests]
        except BaseException as error:
            if not is_failure(error):
                raise
            if len(requests) == 1:
                return [error]
            return [each for rows in requests for each in self._answer_all([rows])]

    def _count_batch(self, rows: int, seconds: float) -> None:
        """A batch was computed."""
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)
        # Of the time in which anything was computed, also several batches at once. Weighted by age, the rate follows
        # changes of load within some twenty batches.
        now = time.monotonic()
        self._latest_rows = 0.95 * self._latest_rows + rows
        self._latest_seconds = 0.95 * self._latest_seconds + now - self._busy_since
        self._busy_since = now
        self._rate = self._latest_rows / max(self._latest_seconds, 1e-6)

    def _finish(self, batch: Sequence[_Pending], results: Sequence[list[dict[str, Any]] | BaseException]) -> None:
        for pending, result in zip(batch, results, strict=True):
            if pending.future.done():  # its sender has disconnected
                continue
            if isinstance(result, BaseException):
                pending.future.set_exception(_refusal(result))
            else:
                self.rows.add(len(result))
                pending.future.set_result(result)
        for result in results:  # last: nobody waits for it
            if isinstance(result, BaseException) and not isinstance(result, UserError):
                self.failures.add()
                self._report(result)

    def _expected_wait(self) -> float:
        """Seconds until the engine has finished its current rows and the queue.

        By what such batches cost, since a text may take as long as a thousand others; at the recent rate while that is
        unknown.
        """
        rows = self._waiting_rows + self._computed_rows
        threads = self._side_by_side if self._unanswered > self._side_by_side.streams.count else self._single_stream
        running = threads.costs.seconds(len(self._running), self._begun)
        queued = threads.costs.seconds(math.ceil(rows / self._settings.batch_size), self._unfinished - self._begun)
        if running is None or queued is None:
            return rows / self._rate if self._rate else 0.0
        count = threads.streams.count
        done = time.monotonic() - self._busy_since  # of the running ones; a slow batch makes the queue no shorter
        return max(running / count - done, 0.0) + queued / count


def _refuse(requests: Sequence[_Pending], error: BaseException) -> None:
    """Answer those that have no answer yet, after a defect."""
    for pending in requests:
        if not pending.future.done():
            pending.future.set_exception(failed(error))


def _refusal(error: BaseException) -> Refused:
    return unusable(error.problems) if isinstance(error, UserError) else failed(error)
