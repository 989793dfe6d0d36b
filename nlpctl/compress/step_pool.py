"""Steps of a compression made side by side, each in a process of its own (step_worker.py), here or on other nodes."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from nlpctl import console
from nlpctl.compress.step_worker import GRACE, StepProcess
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError
from nlpctl.export.strategies import Step
from nlpctl.runtime.ray_cluster import ClusterLost, UnfitNode
from nlpctl.runtime.worker import NoRoom, RemoteProcess, WorkerKilled, WorkerLost
from nlpctl.runtime.worker_pool import MOST_LOSSES, MOST_WAITS
from nlpctl.runtime.worker_slots import WorkerSlots


@dataclass(frozen=True)
class Made:
    """How a step ended; `error` None: as it should. `goes_on`: its folder had been begun before."""

    step: Step
    error: NlpctlError | None
    seconds: float
    goes_on: bool


@dataclass(frozen=True)
class _Ended:
    """As `Made`, of any error. `deadline`: of time.monotonic()."""

    step: Step
    error: BaseException | None
    seconds: float
    goes_on: bool
    deadline: float | None


class StepPool:
    """A process at each of `posts`. Use it as a context: they end with it. `make`: as of `StepProcess`."""

    def __init__(
        self, recipe: Recipe, source: str, output: Path, posts: WorkerSlots, make: Callable[..., RemoteProcess]
    ):
        count = len(posts.runtimes)
        logs = [log_of(output, number) if count > 1 or posts.elsewhere else None for number in range(count)]
        self._processes = [
            StepProcess(dataclasses.replace(recipe, runtime=each), source, output, log, make)
            for each, log in zip(posts.runtimes, logs, strict=True)
        ]
        self._output = output
        self._idle = list(self._processes)
        self._busy: dict[str, StepProcess] = {}  # by the folder of the step
        self._done: SimpleQueue[_Ended] = SimpleQueue()
        self._losses, self._waits = Counter[str](), 0
        # The kernel ends a process with the thread that started it: these threads last as long as the processes.
        self._threads = ThreadPoolExecutor(count)
        self._futures: list[Future[None]] = []
        self._stack = ExitStack()

    @property
    def size(self) -> int:
        return len(self._processes)

    @property
    def running(self) -> frozenset[str]:
        """The folders that are being made."""
        return frozenset(self._busy)

    def __enter__(self) -> StepPool:
        with ExitStack() as stack:
            for process in self._processes:
                stack.enter_context(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            for process in self._busy.values():
                process.interrupt()
            wait(self._futures, timeout=GRACE)
        finally:  # a second Ctrl-C
            for process in self._busy.values():
                process.kill()
            self._stack.close()
            self._threads.shutdown()

    def begin(self, step: Step, seconds: float | None = None) -> None:
        """Begin to make a step in an idle process. `seconds`: as of `StepProcess.make`."""
        self._begin(step, None if seconds is None else time.monotonic() + seconds)

    def wait(self) -> Made:
        """The next step that ends. What was lost with its node is begun again. What is no error of nlpctl's is raised,
        and what ends all work on a cluster."""
        while True:
            ended = self._done.get()
            error = ended.error
            # Behind the others: one of these goes on, if it is idle.
            self._idle.insert(0, self._busy.pop(ended.step.folder))
            if isinstance(error, UnfitNode | ClusterLost) or not isinstance(error, NlpctlError | None):
                raise error
            if isinstance(error, WorkerLost | WorkerKilled | NoRoom) and self._may_go_again(ended.step, error):
                self._begin(ended.step, ended.deadline)
                continue
            self._waits = 0
            return Made(ended.step, error, ended.seconds, ended.goes_on)

    def _may_go_again(self, step: Step, error: NlpctlError) -> bool:
        name = step.folder
        if isinstance(error, NoRoom):
            self._waits += 1
            if self._waits == 1:
                console.note(f"{name}: {error.problems[0].message}; it is asked for again")
            return self._waits <= MOST_WAITS or bool(self._busy)
        self._losses[name] += 1
        if self._losses[name] == MOST_LOSSES:
            return False
        console.note(f"{name}: {error.problems[0].message}; another worker makes it")
        return True

    def _begin(self, step: Step, deadline: float | None) -> None:
        process = self._idle.pop()
        self._busy[step.folder] = process
        self._futures.append(self._threads.submit(self._make, process, step, deadline))

    def _make(self, process: StepProcess, step: Step, deadline: float | None) -> None:
        started, goes_on, error = time.monotonic(), (self._output / step.folder).exists(), None
        try:
            process.make(step, None if deadline is None else max(0.0, deadline - started))
        except BaseException as failed:  # nobody must wait for ever
            error = failed
        self._done.put(_Ended(step, error, time.monotonic() - started, goes_on, deadline))


def log_of(output: Path, number: int) -> Path:
    """Where the process of a worker writes to, where there are several."""
    return output / f"worker-{number}.log"

