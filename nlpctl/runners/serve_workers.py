"""`nlpctl serve --workers N`: several processes that answer on one address.

They share its socket. The kernel gives a connection to the first that accepts it, and there it stays; the connections
that wait survive a process that is lost. The parent loads no model: it starts the workers, passes signals on to them,
and starts another one in place of one that is lost.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError, RunFailed
from nlpctl.runners.service import make_service, note_serving, note_starting, note_stopping, set_up_to_serve
from nlpctl.runtime.crew import MOST_LOSSES
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.shares import shares
from nlpctl.runtime.worker import Worker, ask_back
from nlpctl.serving.address import url
from nlpctl.serving.metrics import Read, of_workers
from nlpctl.serving.secrets import ApiKeys, Secrets, read_tls
from nlpctl.serving.settings import ServeSettings
from nlpctl.serving.starting import Starting, Stopped

if TYPE_CHECKING:
    from nlpctl.inference.auto import Rows
    from nlpctl.serving.server import Server

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What the parent stops a worker with. Its own SIGTERM would be the second where a service manager sends one to every
# process of the service.
_STOP = signal.SIGUSR1
_POLL = 0.1  # seconds
_GRACE = 5.0  # seconds for a worker to end
_STOP_LIMIT = STOP_SECONDS + _GRACE  # a worker that has not ended then is killed
_REPORT_EVERY = 1.0  # seconds between two reports of a worker's metrics to the parent
_STABLE = 60.0  # a worker that ran for so many seconds is not counted with the losses before it
_PAUSE = 5.0  # seconds before a worker that was lost MOST_LOSSES times in a row is started once more
_FOR_EVER = 10**9  # rows: a service answers so many that timing the engines first pays
_ENGINE, _SERVE = "engine", "serve"  # what the parent asks of a worker
_HINT = "out of memory? use fewer --workers"


@dataclass(frozen=True)
class Order:
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
    resource_tracker.ensure_running()  # would unblock the signals in the thread that starts the first process
    # Blocked, in all threads, and fetched by `_signal`: a handler could run while this thread holds a lock.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with _Workers(Order(recipe, source, settings, secrets.access), listening) as workers:
            with Starting(listening, settings, secrets.tls, ends_at_sigterm=False) as starting:
                note_starting(address)
                starting.stage = "loading the model and choosing its engine"
                workers.start_all()
            note_serving(recipe, address)
            return workers.until_stopped()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Workers:
    """The workers, each with a thread of this process that starts it, and starts another one when it is lost.

    They end with the context.
    """

    def __init__(self, order: Order, listening: socket.socket):
        self._order, self._listening = order, listening
        self._shares = shares(order.recipe.runtime, order.settings.workers)
        self._engine: tuple[str, str] | None = None  # of the first worker, which all others take
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # of what follows
        self._running: dict[int, Worker] = {}
        self._ready: set[int] = set()
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

    def _await_ready(self, count: int) -> None:
        while len(self._ready) < count:
            received = _signal()
            if received is not None:
                raise Stopped if received == signal.SIGTERM else KeyboardInterrupt
            if self._failure is not None:
                raise self._failure

    def until_stopped(self) -> int:
        """Let them answer until a signal; the number of rows that they answered. KeyboardInterrupt: a second one."""
        self._open.set()
        until = math.inf
        while any(thread.is_alive() for thread in self._threads):
            received = _signal()
            if received is not None and self._stopping.is_set():
                raise KeyboardInterrupt
            if received is not None or (self._failure is not None and not self._stopping.is_set()):
                note_stopping()
                self._stop()
                until = time.monotonic() + _STOP_LIMIT
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
                console.warn(f"worker {number} has not stopped after {_STOP_LIMIT:g} s; it is killed")
                worker.send_signal(signal.SIGKILL)

    def _attend(self, number: int) -> None:
        """Keep worker `number` running until the service stops. Runs in a thread of its own.

        One that is lost is started again at once, after MOST_LOSSES in a row every _PAUSE seconds. It is the failure of
        the service if it cannot begin before the service is open, if it is lost MOST_LOSSES times in a row and no other
        worker answers, or if it is lost while it finishes accepted requests.
        """
        losses = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            lost = self._lost(number)
            if self._stopping.is_set():
                self._failure = self._failure or lost
                return
            lost = lost or RunFailed("it stopped")
            losses = 1 if time.monotonic() - began > _STABLE else losses + 1
            if not self._open.is_set() or (losses >= MOST_LOSSES and not self._ready):
                self._failure = lost
                return
            console.warn(f"a worker was lost, and another one takes its place: {lost}")
            if losses >= MOST_LOSSES:
                self._stopping.wait(_PAUSE)

    def _lost(self, number: int) -> NlpctlError | None:
        """Run worker `number` once; why it was lost, or None if it ended as it was told to."""
        try:
            self._serve(number)
        except NlpctlError as error:
            return error
        except BaseException as error:  # a bug: without this the parent would wait for ever
            return RunFailed(f"{type(error).__name__}: {error}", f"worker {number}")
        return None

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
                self._ready.add(number)
            self._open.wait()
            self._exchange(number, worker.ask(_SERVE, where, _HINT, counsel=partial(self._exchange, number)))
        finally:
            with self._lock:
                self._running.pop(number, None)
                self._ready.discard(number)
                last = self._reports.pop(number, None)
                self._rows += 0 if last is None else last.rows
            worker.end()

    def _order_of(self, number: int) -> Order:
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


def _signal() -> signal.Signals | None:
    """A signal that has come in the last _POLL seconds.

    `sigtimedwait` would be shorter, but tells of a signal that nobody sent when SIGSTOP and SIGCONT interrupt it.
    """
    time.sleep(_POLL)
    waiting = signal.sigpending() & set(_SIGNALS)
    return signal.Signals(signal.sigwait(waiting)) if waiting else None


def open_worker(order: Order, listening: socket.socket) -> Callable[[str], Any]:
    """Runs in the process of a worker: what answers the parent, once the model is loaded."""
    os.setsid()  # a terminal sends Ctrl-C to all processes of a session, and only the parent must take it
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    setup = set_up_to_serve(order.recipe, order.source)
    service = make_service(order.recipe, setup, order.source, order.settings, order.rows)
    service.access = order.access

    def report() -> _Report:
        return _Report(round(service.batcher.rows.value()), service.metrics())

    from nlpctl.serving.app import make_app
    from nlpctl.serving.server import Server

    server = Server(make_app(service), service, STOP_SECONDS, tls=read_tls(order.settings), shared=True)
    signal.signal(_STOP, server.handle_exit)

    def answer(asked: str) -> Any:
        if asked == _ENGINE:
            facts = service.facts()
            return facts["engine"], facts["precision"]
        if not server.should_exit:  # the signal may have come already
            asyncio.run(_serve_and_report(server, listening, report))
        return report()

    return answer


async def _serve_and_report(server: Server, listening: socket.socket, report: Callable[[], _Report]) -> None:
    one_at_a_time = asyncio.Lock()  # a report must not overtake an older one: counters would go back

    async def metrics_of_all() -> list[Read]:
        async with one_at_a_time:
            own = report()
            return await asyncio.to_thread(ask_back, own) or own.metrics  # nothing from a parent that ends

    async def report_regularly() -> None:
        while True:
            await metrics_of_all()
            await asyncio.sleep(_REPORT_EVERY)

    server.service.metrics_of_all = metrics_of_all
    reporting = asyncio.create_task(report_regularly())
    try:
        await server.run_on(listening)
    finally:
        reporting.cancel()
