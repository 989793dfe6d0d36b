"""A process that makes the folders of a compression.

Quantisers change Paddle's mode, its names and its random state, an engine may end its process, and each takes memory:
all of that stays there. Where a step fails the process is given up, and the next step gets a new one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from nlpctl.compression.plan.steps import Step
from nlpctl.config.schema import Recipe
from nlpctl.errors import EXIT_INTERRUPTED, Interrupted, NlpctlError, RunFailed
from nlpctl.files import STAGING_PREFIX, remove_leftovers, writing
from nlpctl.runners.compress.workbench import Workbench
from nlpctl.runtime.child import listen_for_interrupts, undisturbed
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.orphans import die_with_parent
from nlpctl.runtime.process import set_up_process

FREE_SPACE = "free some space; then the same command goes on"
GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is told to end


class TimeIsUp(RunFailed):
    """A step was ended because it took longer than it was given."""


class StepProcess:
    """Makes steps in another process. Use it as a context."""

    def __init__(self, recipe: Recipe, source: str, output: Path):
        self._arguments = (recipe, source, output)
        self._output = output
        self._process: Any = None
        self._connection: Connection | None = None

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
            answer = self._asked(step, seconds)
        except BaseException:
            self._end(hurry=True)
            remove_leftovers(self._output / step.kind)  # of a process that could not do so itself
            raise
        if step.trains or answer is not None:
            self._end()
        if answer is not None:
            raise answer

    def _asked(self, step: Step, seconds: float | None) -> NlpctlError | None:
        if self._process is None or not self._process.is_alive():
            self._start()
        self._connection.send(step)
        if not self._connection.poll(seconds):
            raise TimeIsUp(f"was ended after {seconds:.0f} s", step.name, "the same command goes on: a longer --budget")
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(GRACE)
            raise RunFailed(f"its process ended ({_ended(self._process.exitcode)})", step.name) from None

    def _start(self) -> None:
        self._end()
        context = multiprocessing.get_context("spawn")  # a fork would share what this process has imported
        self._connection, child = context.Pipe()
        arguments = (child, os.getpid(), self._temporary.name, *self._arguments)
        self._process = context.Process(target=_serve, args=arguments)
        with undisturbed():
            self._process.start()
        child.close()

    def _end(self, hurry: bool = False) -> None:
        """End the process; with `hurry` in the middle of a step, as Ctrl-C would."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if hurry and process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
        with contextlib.suppress(OSError, BrokenPipeError):
            self._connection.send(None)
        try:
            process.join(GRACE)
        finally:  # a second Ctrl-C
            if process.is_alive():
                process.kill()
                process.join()
            self._connection.close()


def _serve(connection: Connection, parent: int, temporary: str, recipe: Recipe, source: str, output: Path) -> None:
    """The process: makes what it is sent, and says None or what went wrong."""
    die_with_parent(parent)
    tempfile.tempdir = temporary
    os.dup2(2, 1)  # what the user's own function prints is no result
    os.setsid()  # a terminal's Ctrl-C reaches the parent alone, which passes it on once
    try:
        listen_for_interrupts(_leave)
        bench = Workbench(recipe, set_up_process(recipe), source, output)
        while (step := connection.recv()) is not None:
            connection.send(_made(bench, step))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _made(bench: Workbench, step: Step) -> NlpctlError | None:
    try:
        bench.make(step)
    except Interrupted:
        raise KeyboardInterrupt from None
    except NlpctlError as error:
        return error
    except Exception as error:  # a library's own: it costs this step alone
        return RunFailed(f"{type(error).__name__}: {error}", step.name)
    return None


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C outside the loop of a training, which saves a checkpoint (runtime/interrupt.py): nothing is lost.

    No exception: C++ that calls Python, as while onnx is imported, would end the process with a traceback.
    """
    os._exit(EXIT_INTERRUPTED)


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit {code}"
