"""`nlpctl serve --workers N`: several processes that answer on one address.

They share its socket. The kernel gives a connection to the first that accepts it, and the connections that wait survive
a process that is lost. The parent loads no model: it starts the workers, passes signals on to them, and starts another
one in place of one that is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import EXIT_INTERRUPTED, NlpctlError, RunFailed
from nlpctl.runners.service import make_service, note_serving, note_starting, note_stopping, set_up_to_serve
from nlpctl.runtime.crew import MOST_LOSSES
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.shares import shares
from nlpctl.runtime.worker import Worker, ask_back
from nlpctl.serving.address import url
from nlpctl.serving.metrics import Read, of_workers
from nlpctl.serving.secrets import Secrets, read_secrets
from nlpctl.serving.settings import ServeSettings
from nlpctl.serving.starting import Starting, Stopped

if TYPE_CHECKING:
    from nlpctl.inference.auto import Rows

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What the parent stops a worker with. Its own SIGTERM would be the second where a service manager sends one to every
# process of the service.
_STOP = signal.SIGUSR1
_POLL = 0.1  # seconds
_GRACE = 5.0  # seconds for a worker to end
_TELL = 1.0  # seconds between two reports of a worker's metrics to the parent
_STABLE = 60.0  # seconds after which the loss of a worker is not counted together with the one before
_PAUSE = 5.0  # seconds before a worker that was lost again and again is started once more
_FOR_EVER = 10**9  # rows: a service answers so many that timing the engines first pays
_ENGINE, _SERVE = "engine", "serve"  # what the parent asks of a worker
_HINT = "out of memory? use fewer --workers"


@dataclass(frozen=True)
class Order:
    """What a worker is told. `recipe`: with its share of the machine; `rows`: as of `open_trained_model`."""

    recipe: Recipe
    source: str
    settings: ServeSettings
    rows: Rows = None


@dataclass(frozen=True)
class _Told:
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
    # Blocked, in all threads, and fetched by `_signal`: a handler could run while this thread holds a lock.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with _Workers(Order(recipe, source, settings), listening) as workers:
            with Starting(listening, settings, secrets.tls) as starting:
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
        self._told: dict[int, _Told] = {}  # what each one told last
        self._rows = 0  # of workers that have ended
        self._failure: NlpctlError | None = None
        self._open, self._stopping = threading.Event(), threading.Event()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stopping.set()
        self._open.set()
        for worker in list(self._running.values()):
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
        while any(thread.is_alive() for thread in self._threads):
            received = _signal()
            if received is not None and self._stopping.is_set():
                raise KeyboardInterrupt
            if received is not None or (self._failure is not None and not self._stopping.is_set()):
                note_stopping()
                self._stop()
        if self._failure is not None:
            raise self._failure
        return self._rows

    def _stop(self) -> None:
        """They finish what they accepted."""
        with self._lock:
            self._stopping.set()
            self._listening.close()  # the socket must close with the last worker's
            for worker in self._running.values():
                worker.send_signal(_STOP)

    def _attend(self, number: int) -> None:
        """What the thread of worker `number` does."""
        losses = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._serve(number)
                lost = RunFailed("it was stopped")
            except NlpctlError as error:
                lost = error
            except BaseException as error:  # of the house's own code: the parent must not wait for ever
                lost = RunFailed(f"{type(error).__name__}: {error}", f"worker {number}")
            if self._stopping.is_set():
                return
            if not self._open.is_set():  # what one cannot begin, the others cannot either
                self._failure = lost
                return
            losses = 1 if time.monotonic() - began > _STABLE else losses + 1
            if losses >= MOST_LOSSES and not self._ready:
                self._failure = lost
                return
            console.warn(f"worker {number} was lost ({lost.problems[0].message}); another one takes its place")
            if losses >= MOST_LOSSES:
                self._stopping.wait(_PAUSE)

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
            engine = worker.ask(_ENGINE, where, _HINT)
            with self._lock:
                self._engine = self._engine or engine
                self._ready.add(number)
            self._open.wait()
            told = worker.ask(_SERVE, where, _HINT, counsel=partial(self._exchange, number))
            self._exchange(number, told)
        finally:
            with self._lock:
                self._running.pop(number, None)
                self._ready.discard(number)
                last = self._told.pop(number, None)
                self._rows += 0 if last is None else last.rows
            worker.end()

    def _order_of(self, number: int) -> Order:
        recipe = replace(self._order.recipe, runtime=self._shares[number])
        if self._engine is None:
            return replace(self._order, recipe=recipe, rows=_FOR_EVER)
        engine, precision = self._engine
        inference = replace(recipe.inference, engine=engine, precision=precision)
        return replace(self._order, recipe=replace(recipe, inference=inference))

    def _exchange(self, number: int, told: _Told) -> list[Read]:
        """The metrics of all workers, with what worker `number` tells now.

        The parent keeps the newest of each, so that no counter goes back when two scrapes meet different workers.
        """
        with self._lock:
            self._told[number] = told
            return of_workers({each: last.metrics for each, last in self._told.items()})


def _signal() -> signal.Signals | None:
    """A signal that has come, or comes within _POLL seconds."""
    received = signal.sigtimedwait(_SIGNALS, _POLL)
    return None if received is None else signal.Signals(received.si_signo)


def open_worker(order: Order, listening: socket.socket) -> Callable[[str], Any]:
    """Runs in the process of a worker: what answers the parent, once the model is loaded."""
    os.setsid()  # a terminal's Ctrl-C must reach only the parent
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signal.signal(_STOP, _leave)
    setup = set_up_to_serve(order.recipe, order.source)
    service = make_service(order.recipe, setup, order.source, order.settings, order.rows)
    secrets, asking = read_secrets(order.settings), threading.Lock()
    service.access = secrets.access

    def told(metrics: list[Read]) -> _Told:
        return _Told(round(service.batcher.rows.value()), metrics)

    def together(own: list[Read]) -> list[Read]:
        with asking:  # a scrape, and what is told regularly
            return ask_back(told(own)) or own  # nothing from a parent that ends

    service.together = together
    from nlpctl.serving.app import make_app
    from nlpctl.serving.server import Server

    async def serve() -> None:
        telling = asyncio.create_task(tell())
        try:
            await server.run_on(listening)
        finally:
            telling.cancel()

    async def tell() -> None:
        while True:
            await asyncio.to_thread(together, service.metrics())
            await asyncio.sleep(_TELL)

    def answer(asked: str) -> Any:
        if asked == _ENGINE:
            facts = service.facts()
            return facts["engine"], facts["precision"]
        asyncio.run(serve())
        return told(service.metrics())

    server = Server(make_app(service), service, STOP_SECONDS, tls=secrets.tls)
    signal.signal(_STOP, server.handle_exit)
    return answer


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing was accepted yet. An exception would be one in C++."""
    os._exit(EXIT_INTERRUPTED)
