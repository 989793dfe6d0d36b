"""Another Python process: how it is started, asked and ended, and how it ended. None outlives the one that started it.

`run_python` runs code or a module once. A `Worker` answers what it is asked until it is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from nlpctl.errors import Interrupted, NlpctlError, RunFailed

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Answer:
    """What a Python process wrote to stdout and stderr, and its exit code: None where its time was up."""

    output: str
    errors: str
    code: int | None

    @property
    def failure(self) -> str:
        """How it failed: the last line that names an error, else the last there is, else its end; "" if it did not."""
        if self.code == 0:
            return ""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        naming = [line for line in lines if "Error:" in line or "error:" in line]
        return (naming or lines or [how_ended(self.code)])[-1]


def run_python(*arguments: str, environ: dict[str, str] | None = None, seconds: float | None = None) -> Answer:
    """Run `python ARGUMENTS` to its end, in a process that finds the same modules as this one."""
    env = {**os.environ, **(environ or {}), "PYTHONPATH": module_path(), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=env, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Answer("", f"no answer within {seconds:g} s", None)
    output, errors = (stream.decode("utf-8", errors="replace").strip() for stream in (done.stdout, done.stderr))
    return Answer(output, errors, done.returncode)


def module_path() -> str:
    """PYTHONPATH for a process that is to find the same modules as this one."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def how_ended(code: int | None) -> str:
    """An exit code in words; None: of a process that still runs."""
    if code is None:
        return "not yet"
    return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


class Worker:
    """A spawned process that answers what it is asked. Call `end` in any case."""

    def __init__(self, opened: Callable[..., Callable[[Any], Any]], *arguments: Any, grace: float, daemon: bool):
        """The process calls `opened(*arguments)`, and what that gives with each thing that it is asked.

        `opened` has to call `listen_for_interrupts`. `grace`: seconds for an end, after which the process is killed.
        `daemon`: it ends with this one even where `end` was not called, and may not start processes itself.
        """
        self._grace = grace
        context = multiprocessing.get_context("spawn")  # a fork would share what this process has imported
        self._connection, self._child = context.Pipe()
        served = (self._child, os.getpid(), opened, arguments)
        self._process = context.Process(target=_serve, args=served, daemon=daemon)

    def start(self) -> None:
        """Apart from __init__, so that who holds the worker can end it where Ctrl-C comes meanwhile."""
        with undisturbed():
            self._process.start()
        self._child.close()

    @property
    def pid(self) -> int | None:
        """None until it is started."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, asked: Any, where: str, hint: str = "", seconds: float | None = None) -> Any:
        """What the process answers. Where it fails, the error is raised here; one of a library as RunFailed.

        `where` and `hint` go into the message where the process ended. TimeoutError after `seconds`.
        """
        with contextlib.suppress(OSError):  # it has ended, and may have said why
            self._connection.send(asked)
        try:
            in_time = self._connection.poll(seconds)
            answer = self._connection.recv() if in_time else None
        except (EOFError, OSError):
            self._process.join(self._grace)
            raise RunFailed(f"its process ended ({how_ended(self._process.exitcode)})", where, hint) from None
        if not in_time:
            raise TimeoutError
        if isinstance(answer, _Failed):
            raise RunFailed(answer.reason, where)
        if isinstance(answer, NlpctlError):
            raise answer
        return answer

    def end(self, interrupt: bool = False) -> None:
        """End the process: after what it does now, or with `interrupt` as Ctrl-C would; in the end by force."""
        if self.pid is None:
            return
        if interrupt and self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)
        with contextlib.suppress(OSError):
            self._connection.send(None)
        try:
            self._process.join(self._grace)
        finally:  # a second Ctrl-C
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._connection.close()


@dataclass(frozen=True)
class _Failed:
    """A library's own error: it may not be known to the process that asked."""

    reason: str


def _serve(connection: Connection, parent: int, opened: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The process."""
    die_with_parent(parent)
    os.dup2(2, 1)  # what the user's own function prints is no result
    try:
        answer = _outcome(opened, *arguments)
        if isinstance(answer, NlpctlError | _Failed):
            connection.send(answer)
            return
        while (asked := connection.recv()) is not None:
            connection.send(_outcome(answer, asked))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the parent is gone, or was interrupted with us
        return


def _outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What `call` gives, or what went wrong."""
    try:
        return call(*arguments)
    except Interrupted:
        raise KeyboardInterrupt from None
    except NlpctlError as error:
        return error
    except Exception as error:
        return _Failed(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Start processes in the body: Ctrl-C waits for its end, and in these until they call `listen_for_interrupts`.

    A terminal's Ctrl-C reaches them too; while Python and modules are loaded it would be told by a traceback.
    """
    resource_tracker.ensure_running()  # multiprocessing starts it with the first process, and then takes signals again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen_for_interrupts(handler: Callable[[int, FrameType | None], object] = signal.default_int_handler) -> None:
    """From here on Ctrl-C calls `handler`; one that came since the process was started comes now."""
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process `parent`, which started it, is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def is_alive(process: int) -> bool:
    """Whether `process` still runs; one that ended but was not waited for yet does not."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
