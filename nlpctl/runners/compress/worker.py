"""A process that makes the folders of a compression.

Quantisers change Paddle's mode, its names and its random state, an engine may end its process, and each takes memory:
all of that stays there. Where a step fails the process is given up, and the next step gets a new one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from nlpctl.compression.strategies.base import Step
from nlpctl.config.schema import Recipe
from nlpctl.errors import EXIT_INTERRUPTED, RunFailed
from nlpctl.files import STAGING_PREFIX, remove_leftovers, writing
from nlpctl.runners.compress.workbench import Workbench
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.worker import Worker, listen_for_interrupts

FREE_SPACE = "free some space; then the same command goes on"
GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is told to end


class TimeIsUp(RunFailed):
    """A step was ended because it took longer than it was given."""


class StepProcess:
    """Makes steps in another process. Use it as a context."""

    def __init__(self, recipe: Recipe, source: str, output: Path):
        self._arguments = (recipe, source, output)
        self._output = output
        self._worker: Worker | None = None

    def __enter__(self) -> StepProcess:
        prefix = f"{STAGING_PREFIX}temporary-"  # the next command removes it where this one is killed
        with writing(self._output, FREE_SPACE):
            self._temporary = tempfile.TemporaryDirectory(None, prefix, self._output, ignore_cleanup_errors=True)
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._end()
        finally:
            self._temporary.cleanup()  # what a process left there that ended in the middle of a step

    def make(self, step: Step, seconds: float | None = None) -> None:
        """Make the folder of `step`. RunFailed or the error of the step where that fails; TimeIsUp after `seconds`.

        A training begins in a new process. KeyboardInterrupt ends the step, then goes on.
        """
        if step.trains:
            self._end()
        try:
            self._asked(step, seconds)
        except BaseException:
            self._end(interrupt=True)
            remove_leftovers(self._output / step.kind)  # of a process that could not do so itself
            raise
        if step.trains:
            self._end()

    def _asked(self, step: Step, seconds: float | None) -> None:
        if self._worker is None or not self._worker.alive:
            self._end()
            self._worker = Worker(_opened, self._temporary.name, *self._arguments, grace=GRACE, daemon=False)
            self._worker.start()
        try:
            self._worker.ask(step, step.name, seconds=seconds)
        except TimeoutError:
            hint = "the same command goes on: a longer --budget"
            raise TimeIsUp(f"was ended after {seconds:.0f} s", step.name, hint) from None

    def _end(self, interrupt: bool = False) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end(interrupt)


def _opened(temporary: str, recipe: Recipe, source: str, output: Path) -> Callable[[Step], None]:
    """In the process: what makes the steps."""
    tempfile.tempdir = temporary
    os.setsid()  # a terminal's Ctrl-C reaches the parent alone, which passes it on once
    listen_for_interrupts(_leave)
    return Workbench(recipe, set_up_process(recipe), source, output).make


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C outside the loop of a training, which saves a checkpoint (runtime/interrupt.py): nothing is lost.

    No exception: C++ that calls Python, as while onnx is imported, would end the process with a traceback.
    """
    os._exit(EXIT_INTERRUPTED)
