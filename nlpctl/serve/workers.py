"""`nlpctl serve --workers N`: several processes that answer on one address.

They share its socket. The kernel gives a connection to the first that accepts it, and there it stays; the connections
that wait survive a process that is lost. The parent loads no model: it starts the workers, passes signals on to them,
and starts another one in place of one that is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError, RunFailed
from nlpctl.runtime.worker import Worker, call_parent, start_resource_tracker
from nlpctl.runtime.worker_pool import MOST_LOSSES
from nlpctl.runtime.worker_slots import shares
from nlpctl.serve.metrics import Read, of_workers
from nlpctl.serve.service import make_service, note_serving, note_starting, note_stopping, set_up_to_serve
from nlpctl.serve.settings import ApiKeys, Secrets, ServeSettings, read_tls
from nlpctl.serve.starting import Starting, Stopped, url

if TYPE_CHECKING:
    from nlpctl.engines.auto import Rows
    from nlpctl.serve.server import Server

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What the parent stops a worker with. Its own SIGTERM would be the second where a service manager sends one to every
# process of the service.
_STOP = signal.SIGUSR1
_POLL = 0.1  # seconds
_GRACE = 3.0  # seconds for a worker to end
_REPORT_EVERY = 1.0  # seconds between two reports of a worker's metrics to the parent
_STABLE = 60.0  # a worker that answered for so many seconds is not counted with the losses before it
_PAUSE = 5.0  # seconds before a worker that was lost MOST_LOSSES times in a row is started once more
_FOR_EVER = 10**9  # rows: a service answers so many that timing the engines first pays
_ENGINE, _SERVE = "engine", "serve"  # what the parent asks of a worker
_HINT = "out of memory? use fewer --workers"


@dataclass(frozen=True)
class ServeWorkerConfig:
    """What a worker is told. `recipe`: with its share of the machine; `rows`: as of `open_trained_model`.

    `access`: as read at the start, so that a worker that takes another's place asks for the same keys.
    """

    recipe: Recipe
    source: str
    settings: ServeSettings
    access: ApiKeys | None
    rows: Rows = None


@dataclass(frozen=True)
class _Report:
    """What a worker has done since its start."""

    rows: int
    metrics: list[Read]


def serve_side_by_side(
    recipe: Recipe, source: str, settings: ServeSettings, secrets: Secrets, listening: socket.socket
) -> int:
    """Answer in settings.workers processes until a signal; returns the number of rows.

    Until all are ready requests get 503. Raises Stopped or KeyboardInterrupt for a signal in this time, and
    KeyboardInterrupt at the second signal later.
    """
    address = url(listening, secrets.tls is not None)
    start_resource_tracker()  # would unblock the signals in the thread that starts the first process
    with _noted_signals() as signals:
        with _Workers(ServeWorkerConfig(recipe, source, settings, secrets.access), listening, signals) as workers:
            with Starting(listening, settings, secrets.tls) as starting:
                note_starting(address)
                starting.stage = "loading the model and choosing its engine"
                workers.start_all()
            note_serving(recipe, address)
            return workers.until_stopped()


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The SIGINT and SIGTERM that have come inside the context.

    An exception of a handler could come while this thread holds a lock. Blocking them instead would not do: they would
    reach a thread of a library that was started before.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Workers:
    """The workers, each with a thread of this process that starts it, and starts another one when it is lost.

    They end with the context.
    """

    def __init__(self, order: ServeWorkerConfig, listening: socket.socket, signals: list[int]):
        """`signals`: those that came and were not looked at yet."""
        self._order, self._listening, self._signals = order, listening, signals
        self._stop_limit = order.settings.longest_stop + _GRACE  # a worker that has not ended then is killed
        self._shares = shares(order.recipe.runtime, order.settings.workers)
        self._engine: tuple[str, str] | None = None  # of the first worker, which all others take
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # of what follows
        self._running: dict[int, Worker] = {}
        self._ready: dict[int, float] = {}  # and since when
        self._late: set[int] = set()  # that were killed at the end
        self._reports: dict[int, _Report] = {}  # the newest of each
        self._rows = 0  # of workers that have ended
        self._failure: NlpctlError | None = None
        self._open, self._stopping = threading.Event(), threading.Event()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *error: Any) -> None:
        with self._lock:  # a thread starts its worker under it: none is missed
            self._stopping.set()
            self._open.set()
            for worker in self._running.values():
                worker.send_signal(signal.SIGKILL)
        for thread in self._threads:
            thread.join()

    def start_all(self) -> None:
        """Returns once all are ready. The first one alone chooses the engine, on a machine that is still quiet."""
        for number in range(self._order.settings.workers):
            thread = threading.Thread(target=self._attend, args=(number,), name=f"worker-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
            if number == 0:
                self._await_ready(1)
        self._await_ready(self._order.settings.workers)

    def _signal(self) -> int | None:
        """A signal that has come, also in the next _POLL seconds."""
        time.sleep(_POLL)
        return self._signals.pop(0) if self._signals else None

    def _await_ready(self, count: int) -> None:
        while len(self._ready) < count:
            received = self._signal()
            if received is not None:
                raise Stopped if received == signal.SIGTERM else KeyboardInterrupt
            if self._failure is not None:
                raise self._failure

    def until_stopped(self) -> int:
        """Let them answer until a signal; the number of rows that they answered. KeyboardInterrupt: a second one."""
        self._open.set()
        until = math.inf
        while any(thread.is_alive() for thread in self._threads):
            received = self._signal()
            if received is not None and self._stopping.is_set():
                raise KeyboardInterrupt
            if received is not None or (self._failure is not None and not self._stopping.is_set()):
                note_stopping()
                self._stop()
                until = time.monotonic() + self._stop_limit
            if time.monotonic() > until:
                self._kill_late()
                until = math.inf
        if self._failure is not None:
            raise self._failure
        return self._rows

    def _stop(self) -> None:
        """They finish what they accepted. One that still loads its model has accepted nothing."""
        with self._lock:
            self._stopping.set()
            self._listening.close()  # the socket must close with the last worker's
            for number, worker in self._running.items():
                worker.send_signal(_STOP if number in self._ready else signal.SIGKILL)

    def _kill_late(self) -> None:
        with self._lock:
            for number, worker in self._running.items():
                self._late.add(number)
                worker.send_signal(signal.SIGKILL)

    def _attend(self, number: int) -> None:
        """Keep worker `number` running until the service stops. Runs in a thread of its own.

        One that is lost is started again at once, after MOST_LOSSES in a row every _PAUSE seconds. It is the failure of
        the service if it cannot begin before the service is open, if it is lost MOST_LOSSES times in a row and no other
        worker answers, or if it is lost while it finishes accepted requests.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # of the processes that it starts, which inherit this
        losses = 0
        while not self._stopping.is_set():
            lost, seconds = self._lost(number)
            if self._stopping.is_set():
                self._failure = self._failure or lost
                return
            losses = 1 if seconds > _STABLE else losses + 1
            if not self._open.is_set() or (losses >= MOST_LOSSES and not self._ready):
                self._failure = lost
                return
            told = "a worker was lost, and another one takes its place" if seconds else "a worker could not start again"
            console.warn(f"{told}: {lost}")
            if losses >= MOST_LOSSES:
                self._stopping.wait(_PAUSE)

    def _lost(self, number: int) -> tuple[NlpctlError | None, float]:
        """Run worker `number` once: why it was lost, or None if it ended as told; and how long it answered, in s."""
        where, lost = f"worker {number}", None
        try:
            self._serve(number)
            if not self._stopping.is_set():
                lost = RunFailed("it stopped", where)
        except NlpctlError as error:
            lost = error
        except BaseException as error:  # a bug: without this the parent would wait for ever
            lost = RunFailed(f"{type(error).__name__}: {error}", where)
        with self._lock:
            since = self._ready.pop(number, None)
            if number in self._late:
                message = f"it had not stopped after {self._stop_limit:g} s and was killed"
                lost = RunFailed(message, where, "look for a request that hangs; what it was answering is lost")
        return lost, 0.0 if since is None else time.monotonic() - since

    def _serve(self, number: int) -> None:
        """Start worker `number` and let it answer until it is told to stop. NlpctlError: it is lost."""
        worker = Worker(open_worker, self._order_of(number), self._listening, grace=_GRACE, daemon=True)
        try:
            with self._lock:
                if self._stopping.is_set():
                    return
                worker.start()
                self._running[number] = worker
            where = f"worker {number}"
            try:
                engine = worker.ask(_ENGINE, where, _HINT)
            except NlpctlError:
                if self._stopping.is_set():  # it was killed: it had accepted nothing
                    return
                raise
            with self._lock:
                self._engine = self._engine or engine
                if self._stopping.is_set():
                    return
                self._ready[number] = time.monotonic()
            self._open.wait()
            self._exchange(number, worker.ask(_SERVE, where, _HINT, callback=partial(self._exchange, number)))
        finally:
            with self._lock:
                self._running.pop(number, None)
                last = self._reports.pop(number, None)
                self._rows += 0 if last is None else last.rows
            worker.end()

    def _order_of(self, number: int) -> ServeWorkerConfig:
        """The first worker chooses the engine; all others, and its replacement, take the same."""
        recipe = replace(self._order.recipe, runtime=self._shares[number])
        if self._engine is None:
            return replace(self._order, recipe=recipe, rows=_FOR_EVER)
        engine, precision = self._engine
        inference = replace(recipe.inference, engine=engine, precision=precision)
        return replace(self._order, recipe=replace(recipe, inference=inference))

    def _exchange(self, number: int, report: _Report) -> list[Read]:
        """The metrics of all workers, with those of worker `number` as it reports them now.

        The parent keeps the newest of each, so that no counter goes back when two scrapes meet different workers.
        """
        with self._lock:
            self._reports[number] = report
            return of_workers({each: last.metrics for each, last in self._reports.items()})


def open_worker(order: ServeWorkerConfig, listening: socket.socket) -> Callable[[str], Any]:
    """Runs in the process of a worker: what answers the parent, once the model is loaded."""
    os.setsid()  # a terminal sends Ctrl-C to all processes of a session, and only the parent must take it
    setup = set_up_to_serve(order.recipe, order.source)
    service = make_service(order.recipe, setup, order.source, order.settings, order.rows)
    service.access = order.access

    def report() -> _Report:
        return _Report(round(service.batcher.rows.value()), service.metrics())

    from nlpctl.serve.app import make_app
    from nlpctl.serve.server import Server

    server = Server(make_app(service), service, tls=read_tls(order.settings), shared=True)
    signal.signal(_STOP, server.handle_exit)

    def answer(asked: str) -> Any:
        if asked == _ENGINE:
            facts = service.facts()
            return facts["engine"], facts["precision"]
        if not server.should_exit:  # the signal may have come already
            with console.unread_dropped():
                asyncio.run(_serve_and_report(server, listening, report))
        return report()

    return answer


async def _serve_and_report(server: Server, listening: socket.socket, report: Callable[[], _Report]) -> None:
    one_at_a_time = asyncio.Lock()  # a report must not overtake an older one: counters would go back

    async def metrics_of_all() -> list[Read]:
        async with one_at_a_time:
            own = report()
            return await asyncio.to_thread(call_parent, own) or own.metrics  # nothing from a parent that ends

    async def report_regularly() -> None:
        while True:
            with contextlib.suppress(OSError):  # all descriptors are in use: later
                await metrics_of_all()
            await asyncio.sleep(_REPORT_EVERY)

    server.service.metrics_of_all = metrics_of_all
    reporting = asyncio.create_task(report_regularly())
    try:
        await server.run_on(listening)
    finally:
        reporting.cancel()
