"""`nlpctl serve --workers N`: several processes that answer on one address.

They share its socket. The kernel gives a connection to the first that accepts it, and there it stays; the connections
that wait survive a process that is lost. The parent loads no model. It has a worker pool (runtime/worker_pool.py) of N,
and each of its jobs is a process that serves until it is told to stop:

    the job begins       the process loads the model, and says that it is ready, in which engine
    all are ready        the service is open: each begins to accept connections
    while it serves      it reports its metrics every second, and gets those of all in return
    it is lost           another job, and with it another process, takes its place
    the service stops    it finishes what it has accepted; its job ends with its last report
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
from nlpctl.inference.open_model import answers_without_paddle, runtime_to_answer
from nlpctl.runtime.worker import RemoteProcess, Worker, call_parent, start_resource_tracker
from nlpctl.runtime.worker_pool import MOST_LOSSES, Job, WorkerPool, answering
from nlpctl.runtime.worker_slots import shares
from nlpctl.serve.metrics import Snapshot, join_workers
from nlpctl.serve.secrets import ApiKeys, Secrets, read_tls
from nlpctl.serve.service import make_service, note_serving, note_starting, note_stopping, set_up_to_serve
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import Starting, Stopped, url

if TYPE_CHECKING:
    from nlpctl.engines.auto import RowCount
    from nlpctl.serve.server import Server

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What the parent stops a worker with. Its own SIGTERM would be the second where a service manager sends one to every
# process of the service.
_STOP = signal.SIGUSR1
_POLL = 0.1  # seconds
_GRACE = 3.0  # seconds for a worker to end
_EXIT = 1.0  # of these for its process, once it has reported: an engine that still computes would keep it
_REPORT_EVERY = 1.0  # seconds between two reports of a worker's metrics to the parent
_STABLE = 60.0  # a worker that answered for so many seconds is not counted with the losses before it
_PAUSE = 5.0  # seconds before a worker that was lost MOST_LOSSES times in a row is started once more
_FOR_EVER = 10**9  # rows: a service answers so many that timing the engines first pays


@dataclass(frozen=True)
class ServeWorkerConfig:
    """What a worker needs to know. `recipe`: with its share of the machine; `rows`: as of `open_trained_model`.

    `access`: as read at the start, so that a worker that takes another's place asks for the same keys.
    """

    recipe: Recipe
    source: str
    settings: ServeSettings
    access: ApiKeys | None
    rows: RowCount = None


@dataclass
class _Place:
    """A worker of the service and those that take its place. `losses`: how many were lost in a row."""

    number: int
    losses: int = 0

    @property
    def name(self) -> str:
        return f"worker {self.number}"


@dataclass(frozen=True)
class _Ready:
    """A worker tells that it could begin to serve, with this engine in this precision."""

    engine: str
    precision: str


@dataclass(frozen=True)
class _Report:
    """What a worker has done since its start."""

    rows: int
    metrics: list[Snapshot]


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
        config = ServeWorkerConfig(recipe, source, settings, secrets.access)
        with ServeWorkers(config, listening, signals) as workers:
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


class ServeWorkers:
    """The worker processes of a service, as its parent sees them. They end with the context.

    One that is lost is replaced at once, after MOST_LOSSES in a row every _PAUSE seconds. It is the failure of the
    service if it is lost before the service is open, if it is lost MOST_LOSSES times in a row and no other worker
    answers, or if it is lost while it finishes accepted requests.
    """

    def __init__(self, config: ServeWorkerConfig, listening: socket.socket, signals: list[int]):
        """`signals`: those that came and were not looked at yet."""
        self._config, self._listening, self._signals = config, listening, signals
        self._stop_limit = config.settings.longest_stop + _GRACE  # a worker that has not ended then is killed
        recipe, source = config.recipe, config.source
        runtime, by_paddle = runtime_to_answer(recipe, source), not answers_without_paddle(recipe, source)
        self._shares = shares(runtime, config.settings.workers, needs_paddle=by_paddle)
        self._pool = WorkerPool(self._new_process, config.settings.workers, retried=())
        self._engine: _Ready | None = None  # of the first worker, which all others take
        self._places: dict[Job, _Place] = {}
        self._paused: list[tuple[float, _Place]] = []  # workers to start, and when
        self._late: set[Job] = set()  # that were killed at the end
        self._rows = 0  # of workers that have ended
        self._failure: NlpctlError | None = None
        self._stopping = False
        self._open = threading.Event()
        # Written by the threads of the pool, which pass on what the processes tell.
        self._heard = threading.Lock()
        self._ready: dict[Job, float] = {}  # since when each is; `_stop` asks these to end, and kills the others
        self._reports: dict[int, _Report] = {}  # the newest of each worker

    def __enter__(self) -> ServeWorkers:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the threads inherit this, and so the processes
        try:
            self._pool.__enter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.set()
        for job in self._pool.open_jobs:
            self._pool.kill(job)
        self._pool.__exit__(*error)

    def start_all(self) -> None:
        """Returns once all are ready. The first one alone chooses the engine, on a machine that is still quiet."""
        self._begin(_Place(0))
        self._await_ready(1)
        for number in range(1, self._pool.size):
            self._begin(_Place(number))
        self._await_ready(self._pool.size)

    def _await_ready(self, count: int) -> None:
        while len(self._ready) < count:
            job = self._pool.ended_within(_POLL)
            if self._signals:
                raise Stopped if self._signals.pop(0) == signal.SIGTERM else KeyboardInterrupt
            if job is not None:
                raise self._loss(job)

    def until_stopped(self) -> int:
        """Let them answer until a signal; the number of rows that they answered. KeyboardInterrupt: a second one."""
        self._open.set()
        kill_at = math.inf
        while self._pool.open_jobs or self._paused:
            job = self._pool.ended_within(_POLL)
            if job is not None:
                self._ended(job)
            received = self._signals.pop(0) if self._signals else None
            if received is not None and self._stopping:
                raise KeyboardInterrupt
            if not self._stopping and (received is not None or self._failure is not None):
                note_stopping()
                self._stop()
                kill_at = time.monotonic() + self._stop_limit
            if time.monotonic() > kill_at:
                self._late.update(self._pool.open_jobs)
                for job in self._late:
                    self._pool.kill(job)
                kill_at = math.inf
            while self._paused and self._paused[0][0] <= time.monotonic():
                self._begin(self._paused.pop(0)[1])
        if self._failure is not None:
            raise self._failure
        return self._rows

    def _stop(self) -> None:
        """They finish what they accepted. One that still loads its model has accepted nothing."""
        with self._heard:
            self._stopping = True
        self._paused.clear()
        self._listening.close()  # the socket must close with the last worker's
        for job in self._pool.open_jobs:
            if job in self._ready:
                self._pool.send_signal(job, _STOP)
            else:
                self._pool.kill(job)

    def _begin(self, place: _Place) -> None:
        """Start a worker in its place, or in that of one that was lost."""
        job = Job(ServeWorker.serve, where=place.name, own_process=True)
        job.answer = partial(self._hear, job)
        self._places[job] = place
        self._pool.submit(job)

    def _new_process(self, number: int) -> RemoteProcess:
        """The first worker chooses the engine; all others, and its replacement, take the same."""
        config = replace(self._config, recipe=replace(self._config.recipe, runtime=self._shares[number]))
        if self._engine is None:
            config = replace(config, rows=_FOR_EVER)
        else:
            chosen: dict[str, Any] = {"engine": self._engine.engine, "precision": self._engine.precision}
            inference = replace(config.recipe.inference, **chosen)
            config = replace(config, recipe=replace(config.recipe, inference=inference))
        return Worker(open_worker, config, self._listening, grace=_EXIT, daemon=True)

    def _ended(self, job: Job) -> None:
        """Count what a worker did whose job has ended, and replace it unless the service stops."""
        since = self._ready.pop(job, None)
        lost, place = self._loss(job), self._places.pop(job)
        with self._heard:
            last = self._reports.pop(place.number, None)
        last = job.value if job.error is None else last
        self._rows += 0 if last is None else last.rows
        if self._stopping:
            # One that was not ready was killed, and had accepted nothing.
            if (job.error is not None and since is not None) or job in self._late:
                self._failure = self._failure or lost
            return
        seconds = 0.0 if since is None else time.monotonic() - since
        place.losses = 1 if seconds > _STABLE else place.losses + 1
        if place.losses >= MOST_LOSSES and not self._ready:
            self._failure = lost
            return
        what = "a worker was lost, and another one takes its place" if seconds else "a worker could not start again"
        console.warn(f"{what}: {lost}")
        if place.losses >= MOST_LOSSES:
            self._paused.append((time.monotonic() + _PAUSE, place))
        else:
            self._begin(place)

    def _loss(self, job: Job) -> NlpctlError:
        """Why a worker, whose job has ended, was lost."""
        where = self._places[job].name
        if job in self._late:
            message = f"it had not stopped after {self._stop_limit:g} s and was killed"
            return RunFailed(message, where, "look for a request that hangs; what it was answering is lost")
        if job.error is None:
            return RunFailed("it stopped", where)
        if isinstance(job.error, NlpctlError):
            return job.error
        return RunFailed(f"{type(job.error).__name__}: {job.error}", where)  # a bug

    # -- in the threads of the pool -----------------------------------------------------------------------------

    def _hear(self, job: Job, content: _Ready | _Report) -> list[Snapshot] | bool:
        """Answer what the process of a job tells: that it is ready, or what it has done.

        To the first the answer is whether to serve, once all are ready. To the second it is the metrics of all workers,
        with those of this one as it reports them now; the parent keeps the newest of each, so that no counter goes back
        when two scrapes meet different workers.
        """
        if isinstance(content, _Ready):
            with self._heard:
                if self._stopping:  # `_stop` takes it for one that loads its model
                    return False
                self._engine = self._engine or content
                self._ready[job] = time.monotonic()
            self._open.wait()
            return not self._stopping  # it was about to start when the others were told to stop
        with self._heard:
            self._reports[self._places[job].number] = content
            return join_workers({number: last.metrics for number, last in self._reports.items()})


def open_worker(config: ServeWorkerConfig, listening: socket.socket) -> Callable[[Any], Any]:
    """Runs in the process of a worker: how it does its job, once the model is loaded."""
    os.setsid()  # a terminal sends Ctrl-C to all processes of a session, and only the parent must take it
    return answering(ServeWorker(config, listening))


class ServeWorker:
    """What the process of a worker holds: the service, loaded. Its method `serve` is the job."""

    def __init__(self, config: ServeWorkerConfig, listening: socket.socket):
        setup = set_up_to_serve(config.recipe, config.source)
        self._service = make_service(
            config.recipe, setup, config.source, config.settings, config.access, config.rows
        )
        self._listening = listening

        from nlpctl.serve.app import make_app
        from nlpctl.serve.server import Server

        self._server = Server(make_app(self._service), self._service, tls=read_tls(config.settings), shared=True)
        signal.signal(_STOP, self._server.handle_exit)

    def serve(self) -> _Report:
        """Answer from the moment when all workers are ready until the parent stops this one."""
        facts = self._service.facts()
        may_serve = call_parent(_Ready(facts["engine"], facts["precision"]))
        if may_serve and not self._server.should_exit:  # the signal may have come already
            with console.unread_dropped():
                asyncio.run(_serve_and_report(self._server, self._listening, self._report))
        return self._report()

    def _report(self) -> _Report:
        return _Report(round(self._service.batcher.rows.value()), self._service.metrics())


async def _serve_and_report(server: Server, listening: socket.socket, report: Callable[[], _Report]) -> None:
    one_at_a_time = asyncio.Lock()  # a report must not overtake an older one: counters would go back

    async def metrics_of_all() -> list[Snapshot]:
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
