"""A pool of worker processes: jobs go in, and come out as they end. What a lost worker had taken is done again.

    with WorkerPool(make, 4) as pool:  # make(number): the process of worker `number`, not started yet
        pool.submit(Job(train_trial, (recipe, metric), name="trial 003"))
        job = pool.next_ended()        # waits; it holds the value, or the error

Where the processes run is up to `make`: on this machine (worker.py) or on the nodes of a Ray cluster (ray_cluster.py);
`WorkerSlots.process_factory` (worker_slots.py) gives one that does either. They start with their first job.

Each worker has a thread of this process, which leads it through the states of `WorkerState`. What may happen to a job:

    it returns, or raises an error    that is its result. After an error its process ends too: what a library left
                                      there may spoil the next job
    it is not done by its deadline    its process is interrupted; its error is TimeoutError
    its worker is lost                another process takes the worker's place and does the job from its beginning,
                                      until MOST_LOSSES were lost over it; then the last loss is its error
    no worker can be had (NoRoom)     it waits for one that is there, while more are asked for every _AGAIN seconds;
                                      where there is none at all, MOST_WAITS times, then NoRoom is its error
    the pool is left by an exception  its process is interrupted, as by Ctrl-C, and it has no result
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any

from nlpctl import console
from nlpctl.errors import NlpctlError, RunFailed
from nlpctl.runtime.worker import NoRoom, ProcessEnded, RemoteProcess

MOST_LOSSES = 3  # workers that may be lost over one job
MOST_WAITS = 24  # times in a row that no worker at all can be had
ANOTHER_WORKER = "another one takes its place"
FEWER_WORKERS = "out of memory? use fewer @[workers]"

_TICK = 1.0  # seconds between two calls of `tick`
_AGAIN = 5.0  # seconds until a worker is asked for again where there was no room


@dataclass(eq=False)
class Job:
    """A piece of work: `function(held, *arguments)`, called in a worker that holds `held` (see `answering`).

    The fields from `worker` on are written by the pool, `worker` when the job begins, the others until it ends.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    name: str | None = None  # what messages call it; None: they name the worker
    where: str | None = None  # where to look if its process dies; None: what the process is called
    deadline: float | None = None  # of time.monotonic()
    own_process: bool = False  # begins in a new process, which ends with it
    # Both are called in the worker's thread; what they raise is the error of the job. `begin`: once, when a worker is
    # ready; it fills in what is decided only then, such as `arguments`. False: the job is not needed any more, and ends
    # with the value None. `end`: when the job has ended, before its worker takes another.
    begin: Callable[[Job], bool] | None = None
    end: Callable[[Job], None] | None = None
    answer: Callable[[Any], Any] | None = None  # answers what the job asks by `call_parent`, in the worker's thread

    worker: int = -1
    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0  # of the last attempt, including the start of a process
    losses: int = 0  # workers that were lost over it
    killed: bool = False  # by `kill`


class WorkerState(Enum):
    """What the process of a worker does."""

    ABSENT = "was not started yet, has ended, or there is no room for it"
    STARTING = "is being started"
    IDLE = "waits for a job"
    BUSY = "does a job"


@dataclass
class WorkerStats:
    """What one worker has done. `seconds`: at work; `losses`: its processes that were lost.

    `rows` is counted by those who know what a job has to do with rows.
    """

    worker: int
    jobs: int = 0
    rows: int = 0
    seconds: float = 0.0
    losses: int = 0


@dataclass
class _Worker:
    """The process of a worker. Only the worker's thread changes it."""

    number: int
    stats: WorkerStats
    job: Job | None = None
    process: RemoteProcess | None = None
    state: WorkerState = WorkerState.ABSENT


class WorkerPool:
    """Workers 0 to `size` - 1. Use it as a context: they end with it. One thread, the main one, uses its methods."""

    def __init__(
        self,
        make: Callable[[int], RemoteProcess],
        size: int,
        *,
        retried: type[ProcessEnded] | tuple[type[ProcessEnded], ...] = ProcessEnded,
        again: str = ANOTHER_WORKER,
        hint: str = FEWER_WORKERS,
    ):
        """`make(number)`: a process for worker `number`, not started yet; called again for each that was lost.

        `retried`: the losses after which a job is done again; others are its error at once. `again`: ends the message
        about a loss. `hint`: of the error if a process dies.
        """
        self._make, self._retried, self._again, self._hint = make, retried, again, hint
        self.stats = [WorkerStats(number) for number in range(size)]
        self._workers = [_Worker(number, stats) for number, stats in enumerate(self.stats)]
        self._open: dict[Job, None] = {}  # in the order of submission
        # Queues, not locks: an interrupt in this thread must not leave a lock behind that the others wait for.
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._ended: SimpleQueue[Job] = SimpleQueue()
        self._stopped = threading.Event()
        self._waits, self._wait_noted = 0, False  # how often in a row there was no room for any; whether that was noted
        # The kernel ends a process with the thread that started it: these last as long as the processes.
        self._threads = [threading.Thread(target=self._attend, args=(worker,), daemon=True) for worker in self._workers]

    @property
    def size(self) -> int:
        return len(self._workers)

    @property
    def open_jobs(self) -> tuple[Job, ...]:
        """The jobs that were submitted, and not returned by `next_ended` yet."""
        return tuple(self._open)

    def __enter__(self) -> WorkerPool:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        self._stopped.set()
        for _ in self._threads:
            self._waiting.put(None)
        interrupting = self._interrupt() if kind is not None else []
        try:
            for thread in (*interrupting, *self._threads):
                thread.join()
        except KeyboardInterrupt:  # the second one
            self._interrupt()
            raise

    def _interrupt(self) -> list[threading.Thread]:
        """Interrupt all processes at once, since each has a while to end; the threads that wait for that."""
        processes = [worker.process for worker in self._workers]
        threads = [
            threading.Thread(target=process.end, args=(True,), daemon=True)
            for process in processes
            if process is not None
        ]
        for thread in threads:
            thread.start()
        return threads

    def submit(self, job: Job) -> None:
        """Give a job to the next worker that is free; those that wait are taken in their order."""
        self._open[job] = None
        self._waiting.put(job)

    def next_ended(self, tick: Callable[[], object] = lambda: None) -> Job:
        """Wait until one of the submitted jobs has ended; the job with its value, or its error, which is not raised.

        `tick`: called every second in which none ends.
        """
        while (job := self.ended_within(_TICK)) is None:
            tick()
        return job

    def ended_within(self, seconds: float) -> Job | None:
        """As `next_ended`; None if none ends within `seconds`."""
        try:
            job = self._ended.get(timeout=seconds)
        except Empty:
            return None
        del self._open[job]
        return job

    def send_signal(self, job: Job, number: signal.Signals) -> None:
        """Send a signal to the process that does a job, if one does it now."""
        for worker in self._workers:
            if worker.job is job and worker.process is not None:
                worker.process.send_signal(number)

    def kill(self, job: Job) -> None:
        """End a job at once, also one that waits, or whose process is being started. Its error is ProcessEnded."""
        job.killed = True
        self.send_signal(job, signal.SIGKILL)

    def results(
        self,
        jobs: Iterable[tuple[Any, ...]],
        begin: Callable[[int], object] = lambda number: None,
        tick: Callable[[], object] = lambda: None,
    ) -> Iterator[tuple[int, Any, int]]:
        """Run many jobs, each (function, its arguments...); (a job's number, its value, worker) as each ends.

        `begin`: hears the number of each job as it begins, in the worker's thread. `tick`: as of `next_ended`.
        Raises the first error of a job; RunFailed if MOST_LOSSES workers were lost over one.
        """
        numbers: dict[Job, int] = {}

        def begins(job: Job) -> bool:
            begin(numbers[job])
            return True

        for number, (function, *arguments) in enumerate(jobs):
            job = Job(function, tuple(arguments), begin=begins)
            numbers[job] = number
            self.submit(job)
        while numbers:
            job = self.next_ended(tick)
            if isinstance(job.error, ProcessEnded) and job.losses == MOST_LOSSES:
                problem = job.error.problems[0]
                message = f"{MOST_LOSSES} workers were lost over the same piece of work, the last one: "
                raise RunFailed(message + problem.message, problem.where, problem.hint) from None
            if job.error is not None:
                raise job.error
            yield numbers.pop(job), job.value, job.worker

    # -- in the thread of a worker ------------------------------------------------------------------------------

    def _attend(self, worker: _Worker) -> None:
        try:
            while (job := self._waiting.get()) is not None and not self._stopped.is_set():
                worker.job, job.worker = job, worker.number
                try:
                    ended = self._run(worker, job)
                    if ended and job.end is not None and not self._stopped.is_set():
                        job.end(job)
                except BaseException as error:  # of `job.end`, or a bug: nobody must wait for ever
                    job.error, ended = error, True
                worker.job = None
                if ended and not self._stopped.is_set():
                    self._ended.put(job)
        finally:
            self._end(worker)

    def _run(self, worker: _Worker, job: Job) -> bool:
        """Do a job; False: it did not end, since the pool stops or there is no room for this worker."""
        while True:
            started, dead = time.monotonic(), False
            job.error = None
            try:
                if job.killed:
                    raise ProcessEnded("it was killed before it began", job.where or "")
                if job.own_process:
                    self._end(worker)
                # One that ended while it was idle is not for this job to answer for.
                dead = worker.process is not None and not worker.process.alive
                process = worker.process or self._start(worker)
                if self._stopped.is_set():
                    return False
                if job.killed:  # while its process was being started, when there was none to kill
                    process.send_signal(signal.SIGKILL)
                begin, job.begin = job.begin, None
                if begin is not None and not begin(job):
                    return True
                worker.state = WorkerState.BUSY
                job.value = process.ask(
                    (job.function, job.arguments),
                    job.where or process.name,
                    self._hint,
                    None if job.deadline is None else max(0.0, job.deadline - time.monotonic()),
                    job.answer,
                )
                worker.state = WorkerState.IDLE
            except NoRoom as error:
                self._end(worker)
                if self._may_wait(worker, job, error):
                    self._waiting.put(job)  # for a worker that is there
                    self._stopped.wait(_AGAIN)
                    return False
                job.error = error
            except ProcessEnded as lost:
                self._end(worker, interrupt=True)
                if self._stopped.is_set():
                    return False
                worker.stats.losses += 1
                job.losses += not dead
                if not job.killed and (dead or (isinstance(lost, self._retried) and job.losses < MOST_LOSSES)):
                    self._note_loss(worker, job, lost)
                    continue
                job.error = lost
            except BaseException as error:
                # After an error of the job itself its process waits for the next one, and can leave in order.
                self._end(worker, interrupt=not isinstance(error, NlpctlError))
                job.error = error
            else:
                worker.stats.jobs += 1
                worker.stats.seconds += time.monotonic() - started
                if job.own_process:
                    self._end(worker)
            job.seconds = time.monotonic() - started
            self._waits, self._wait_noted = 0, False
            return True

    def _start(self, worker: _Worker) -> RemoteProcess:
        """A new process for the worker. NoRoom, ProcessEnded, UnfitNode (ray_cluster.py)."""
        worker.state = WorkerState.STARTING
        worker.process = process = self._make(worker.number)  # kept before it starts, so that it can be interrupted
        process.start()
        worker.state = WorkerState.IDLE
        if self._stopped.is_set():  # meanwhile, when there was nothing to interrupt
            process.end(interrupt=True)
        return process

    def _end(self, worker: _Worker, interrupt: bool = False) -> None:
        try:
            if worker.process is not None:
                worker.process.end(interrupt)
        finally:
            worker.process, worker.state = None, WorkerState.ABSENT

    def _may_wait(self, worker: _Worker, job: Job, error: NoRoom) -> bool:
        """Whether the job may wait until there is room for a worker, or another one takes it."""
        if not self._wait_noted:
            who = job.name or f"worker {worker.number}"
            console.note(f"{who}: {error.problems[0].message}; it is asked for again")
            self._wait_noted = True
        # While there is one, which may take a day over its job, the others wait as long as they must.
        there = any(each.state in (WorkerState.IDLE, WorkerState.BUSY) for each in self._workers)
        self._waits = 0 if there else self._waits + 1
        return self._waits <= MOST_WAITS

    def _note_loss(self, worker: _Worker, job: Job, lost: ProcessEnded) -> None:
        reason = lost.problems[0].message
        if job.name is None:
            console.note(f"worker {worker.number} was lost ({reason}); {self._again}")
        else:
            console.note(f"{job.name}: {reason}; {self._again}")


def answering(held: Any) -> Callable[[tuple[Callable[..., Any], tuple[Any, ...]]], Any]:
    """How a worker does jobs, once it holds `held`: what it opened at its start, and each job needs."""
    return lambda job: job[0](held, *job[1])
