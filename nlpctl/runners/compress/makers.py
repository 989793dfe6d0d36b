"""Steps of a compression made side by side, each in a process of its own (worker.py)."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from nlpctl.compression.strategies.base import Step
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.errors import NlpctlError
from nlpctl.runners.compress.worker import GRACE, StepProcess


@dataclass(frozen=True)
class Made:
    """How a step ended; `error` None: as it should. `goes_on`: its folder had been begun before."""

    step: Step
    error: NlpctlError | None
    seconds: float
    goes_on: bool


class Makers:
    """As many processes as `runtimes`, which say what each may use. Use it as a context: they end with it."""

    def __init__(self, recipe: Recipe, source: str, output: Path, runtimes: Sequence[RuntimeSection]):
        several = len(runtimes) > 1
        self._processes = [
            StepProcess(
                dataclasses.replace(recipe, runtime=each), source, output, log_of(output, i) if several else None
            )
            for i, each in enumerate(runtimes)
        ]
        self._output = output
        self._idle = list(self._processes)
        self._busy: dict[str, StepProcess] = {}  # by the folder of the step
        self._done: SimpleQueue[tuple[Step, BaseException | None, float, bool]] = SimpleQueue()
        # The kernel ends a process with the thread that started it: these threads last as long as the processes.
        self._threads = ThreadPoolExecutor(len(runtimes))
        self._futures: list[Future[None]] = []
        self._stack = ExitStack()

    @property
    def size(self) -> int:
        return len(self._processes)

    @property
    def running(self) -> frozenset[str]:
        """The folders that are being made."""
        return frozenset(self._busy)

    def __enter__(self) -> Makers:
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
        process = self._idle.pop()
        self._busy[step.folder] = process
        self._futures.append(self._threads.submit(self._make, process, step, seconds))

    def wait(self) -> Made:
        """The next step that ends. What is no error of nlpctl's is raised."""
        step, error, seconds, goes_on = self._done.get()
        self._idle.append(self._busy.pop(step.folder))
        if error is not None and not isinstance(error, NlpctlError):
            raise error
        return Made(step, error, seconds, goes_on)

    def _make(self, process: StepProcess, step: Step, seconds: float | None) -> None:
        started, goes_on, error = time.monotonic(), (self._output / step.folder).exists(), None
        try:
            process.make(step, seconds)
        except BaseException as failed:  # nobody must wait for ever
            error = failed
        self._done.put((step, error, time.monotonic() - started, goes_on))


def log_of(output: Path, number: int) -> Path:
    """Where the process of a worker writes to, where there are several."""
    return output / f"worker-{number}.log"


def slowdown(runtimes: Sequence[RuntimeSection]) -> float:
    """How many times as long a step takes as alone: how many of them share the cores, or a card."""
    if runtimes[0].device == "gpu":
        return float(max(Counter(each.devices for each in runtimes).values()))
    return float(len(runtimes))
