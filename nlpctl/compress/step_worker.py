"""A process that makes the folders of a compression.

Quantisers change Paddle's mode, names and random state, engines may crash, and each takes memory; a separate process
isolates all of this. After a failed step the process is discarded, and the next step gets a new one.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from nlpctl import console
from nlpctl.compress.step_executor import StepExecutor
from nlpctl.config.schema import Recipe
from nlpctl.errors import EXIT_INTERRUPTED, NlpctlError, RunFailed
from nlpctl.export.strategies import Step
from nlpctl.files import remove_leftovers_of, staging_prefix, writing
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.lock import LET_GO, wait_until_free
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.worker import RemoteProcess, listen_for_interrupts
from nlpctl.runtime.worker_slots import HERE

FREE_SPACE = "free some space, then run the same command again to continue"
GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is asked to stop


class TimeIsUp(RunFailed):
    """A step was stopped because it exceeded its time limit."""


class StepProcess:
    """Makes steps in another process. Use it as a context."""

    def __init__(
        self,
        recipe: Recipe,
        source: str,
        output: Path,
        log: Path | None = None,
        make: Callable[..., RemoteProcess] = HERE,
    ):
        """`log`: where standard error goes; None: where that of this process goes. `make`: takes what `Worker`
        takes."""
        self._arguments = (recipe, source, output, log)
        self._output, self._log, self._make = output, log, make
        self._worker: RemoteProcess | None = None
        self._stopped = False

    def __enter__(self) -> StepProcess:
        prefix = staging_prefix("temporary")  # if this command is killed, the next one removes it
        with writing(self._output, FREE_SPACE):
            self._temporary = tempfile.TemporaryDirectory(None, prefix, self._output, ignore_cleanup_errors=True)
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._end()
        finally:
            self._temporary.cleanup()  # leftovers of a process that died in the middle of a step

    def make(self, step: Step, seconds: float | None = None) -> None:
        """Make the folder of `step`. RunFailed or the step's own error if it fails; TimeIsUp after `seconds`. Of a
        process elsewhere also what its `start` raises, WorkerLost and WorkerKilled.

        A training begins in a new process. KeyboardInterrupt stops the step and is raised again.
        """
        if step.trains:
            self._end()
        try:
            self._asked(step, seconds)
        except BaseException as error:
            # After an error of the step itself its process waits for the next one, and can leave in order.
            self._end(interrupt=isinstance(error, TimeIsUp) or not isinstance(error, NlpctlError))
            remove_leftovers_of(self._output / step.folder)  # of a process that could not clean up itself
            raise
        if step.trains:
            self._end()

    def _asked(self, step: Step, seconds: float | None) -> None:
        def progress(so_far: float) -> None:
            console.note(f"{step.folder}: {so_far:.0f} s so far")

        if self._worker is None or not self._worker.alive:
            self._end()
            self._worker = self._make(_opened, self._temporary.name, *self._arguments, grace=GRACE)
            self._worker.start()
        if self._stopped:  # before there was a process to interrupt
            raise KeyboardInterrupt
        silent = step.trains and self._log is None  # it tells its progress itself
        try:
            self._worker.ask(step, step.name, seconds=seconds, progress=None if silent else progress)
        except TimeoutError:
            hint = "run the same command again to continue, with a longer --budget"
            raise TimeIsUp(f"was stopped after {seconds:.0f} s", step.name, hint) from None

    def interrupt(self) -> None:
        """Have the step that another thread makes end like Ctrl-C: `make` raises there."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """The same, at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        self._stopped = True
        worker = self._worker
        if worker is not None:
            worker.send_signal(number)

    def _end(self, interrupt: bool = False) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end(interrupt)


def _opened(
    temporary: str, recipe: Recipe, source: str, output: Path, log: Path | None = None
) -> Callable[[Step], None]:
    """Runs in the process: makes the steps."""
    if log is not None:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), 2)
        os.dup2(2, 1)
    tempfile.tempdir = temporary
    os.setsid()  # a terminal's Ctrl-C must reach only the parent, which passes it on once
    listen_for_interrupts(_leave)
    bench = StepExecutor(recipe, set_up_process(recipe), source, output)

    def make(step: Step) -> None:
        wait_until_free(output / step.folder, LET_GO)
        bench.make(step)

    return make


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C outside a training loop; inside, runtime/interrupt.py saves a checkpoint, so nothing is lost here.

    Not an exception: raised inside C++ that calls Python, e.g. during `import onnx`, it would abort with a traceback.
    """
    os._exit(EXIT_INTERRUPTED)
