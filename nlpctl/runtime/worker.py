"""Python subprocesses: start, requests, end and exit status. None outlives its parent.

`run_python` runs code or a module once. A `Worker` answers requests until it is ended; worker_pool.py has several of
them do a list of jobs. After SIGKILL or a second Ctrl-C no code of the parent runs that could end them; the kernel does
(nlpctl/parent.py).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from nlpctl import console
from nlpctl.errors import EXIT_INTERRUPTED, Interrupted, NlpctlError, RunFailed, UserError
from nlpctl.parent import die_with_parent, python_until_parent_ends

_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "nlpctl"


@dataclass(frozen=True)
class Answer:
    """Stdout, stderr and exit code of a Python process; the code is None after a timeout."""

    output: str
    errors: str
    code: int | None

    @property
    def failure(self) -> str:
        """The failure: the last line that names an error, else the last line, else the exit status; "" if it
        succeeded."""
        if self.code == 0:
            return ""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        naming = [line for line in lines if "Error:" in line or "error:" in line]
        return (naming or lines or [how_ended(self.code)])[-1]


def run_python(*arguments: str, environ: dict[str, str] | None = None, seconds: float | None = None) -> Answer:
    """Run `python ARGUMENTS` to its end, with the same module search path. After `seconds` it is killed."""
    env = {**os.environ, **(environ or {}), "PYTHONPATH": module_path(), "PYTHONIOENCODING": "utf-8"}
    command = python_until_parent_ends(*arguments)
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=env, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode("utf-8", errors="replace").strip()
        return Answer(output, f"no answer within {seconds:g} s", None)
    output, errors = (stream.decode("utf-8", errors="replace").strip() for stream in (done.stdout, done.stderr))
    return Answer(output, errors, done.returncode)


def module_path() -> str:
    """PYTHONPATH that gives a new process the same modules as this one."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def how_ended(code: int | None) -> str:
    """An exit code in words; None: the process still runs."""
    if code is None:
        return "not yet"
    return f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


class ProcessEnded(RunFailed):
    """The process of a worker has ended, killed or crashed."""


class WorkerLost(ProcessEnded):
    """Its machine is gone, or cannot be reached: what it had begun may succeed elsewhere."""


class WorkerKilled(ProcessEnded):
    """It was killed on a machine that still answers: perhaps for lack of memory, which it may need elsewhere too."""


class NoRoom(RunFailed):
    """A worker cannot be had now: all places are taken."""


class RemoteProcess(Protocol):
    """A process that answers requests: a `Worker` here, or a `RayWorker` on another machine (ray_cluster.py)."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def start(self) -> None:
        """Separate from __init__, so that the holder can end it if Ctrl-C comes during the start.

        Elsewhere: NoRoom, WorkerLost; UserError if its machine lacks something.
        """
        ...

    @property
    def alive(self) -> bool: ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        ...

    def ask(
        self,
        request: Any,
        where: str,
        hint: str = "",
        seconds: float | None = None,
        callback: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Send a request and return the answer. Errors of the process are raised here; library errors as RunFailed.

        `where` and `hint` are for the message if the process dies (ProcessEnded). TimeoutError after `seconds`.
        `callback` answers what the process asks back by `call_parent`.
        """
        ...

    def end(self, interrupt: bool = False) -> None:
        """End the process: after its current request, or with `interrupt` like Ctrl-C; after a while by force."""
        ...


class Channel(Protocol):
    """The way to a process that answers requests; a `Connection` is one. EOFError or OSError: it has ended."""

    def send(self, content: Any, /) -> None: ...

    def poll(self, seconds: float | None, /) -> bool:
        """Whether something comes within `seconds`; None: however long it takes."""
        ...

    def recv(self) -> Any: ...


def converse(
    channel: Channel,
    request: Any,
    seconds: float | None,
    callback: Callable[[Any], Any] | None,
) -> Any:
    """What the process answers, as `outcome` made it; the rest as of `RemoteProcess.ask`. EOFError: it has ended."""
    with contextlib.suppress(OSError):  # it has ended, and may have sent the reason
        channel.send(request)
    while True:
        with _channel_errors():
            comes = channel.poll(seconds)
        if not comes:
            raise TimeoutError
        with _channel_errors():
            answer = channel.recv()
        if callback is None or not isinstance(answer, _Question):
            return answer
        content = callback(answer.content)
        with _channel_errors():
            channel.send(content)


@contextlib.contextmanager
def _channel_errors() -> Iterator[None]:
    """EOFError for an OSError of the channel. One of `callback`, such as a full disk, stays what it is:
    the process has not ended."""
    try:
        yield
    except OSError as error:
        raise EOFError from error


class Worker:
    """A spawned process that answers requests (`RemoteProcess`). `end` must always be called."""

    def __init__(
        self,
        opened: Callable[..., Callable[[Any], Any]],
        *arguments: Any,
        grace: float,
        daemon: bool,
        name: str | None = None,
    ):
        """The process calls `opened(*arguments)` once, and calls its result with every request.

        `opened` must call `child_main` or `listen_for_interrupts`. `grace`: seconds to stop before the process is
        killed. `daemon`: it ends with this process even without `end`, and must not start processes itself. `name`:
        where its user may look, such as its log; by default its number.
        """
        self._grace, self._name = grace, name
        context = multiprocessing.get_context("spawn")  # a fork would inherit Paddle, which does not survive it
        self.channel, self._child = context.Pipe()
        served = (self._child, os.getpid(), opened, arguments)
        self._process = context.Process(target=_main, args=served, daemon=daemon)

    def start(self) -> None:
        with undisturbed():
            self._process.start()
        self._child.close()

    @property
    def name(self) -> str:
        return self._name or f"worker process {self.pid}"

    @property
    def pid(self) -> int | None:
        """None until it is started."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def ask(
        self,
        request: Any,
        where: str,
        hint: str = "",
        seconds: float | None = None,
        callback: Callable[[Any], Any] | None = None,
    ) -> Any:
        try:
            answer = converse(self.channel, request, seconds, callback)
        except EOFError:
            raise ProcessEnded(f"its process ended ({how_ended(self.code())})", where, hint) from None
        return value_of(answer, where)

    def code(self) -> int | None:
        """The exit code, once the process has ended; it is waited for, but not for ever."""
        self._process.join(self._grace)
        return self._process.exitcode

    def end(self, interrupt: bool = False) -> None:
        if self.pid is None:
            return
        if interrupt:
            self.send_signal(signal.SIGINT)
        # Two threads of a pool may end it at once; TypeError: the other one closed the channel in the middle of this.
        with contextlib.suppress(OSError, TypeError):
            self.channel.send(None)
        try:
            self._process.join(self._grace)
        finally:  # a second Ctrl-C
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            with contextlib.suppress(OSError):
                self.channel.close()


@dataclass(frozen=True)
class _Failed:
    """Wraps a library's error, whose class the parent may not be able to import."""

    reason: str


@dataclass(frozen=True)
class _Question:
    """What the process asks in the middle of a request."""

    content: Any


_to_parent: Connection | None = None  # of this process, if it is a worker's


def call_parent(content: Any) -> Any:
    """In the process of a worker: what the `callback` of the current request says; None when the process is to end."""
    assert _to_parent is not None
    _to_parent.send(_Question(content))
    return _to_parent.recv()


def _main(connection: Connection, parent: int, opened: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The main function of the process."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]
    with contextlib.suppress(KeyboardInterrupt):
        try:
            _serve(connection, parent, opened, arguments)
        finally:  # an interrupt that comes while the process ends would print a traceback
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _serve(connection: Connection, parent: int, opened: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Answer requests until the parent ends."""
    global _to_parent
    _to_parent = connection
    die_with_parent(parent)
    os.dup2(2, 1)  # output of user functions must not mix with results on stdout
    try:
        answer = outcome(opened, *arguments)
        if isinstance(answer, NlpctlError | _Failed):
            connection.send(answer)
            return
        while (request := connection.recv()) is not None:
            _send(connection, outcome(answer, request))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the parent has ended, or was interrupted too
        return


def value_of(answer: Any, where: str) -> Any:
    """The value of an `outcome` from another process; an error is raised."""
    if isinstance(answer, _Failed):
        raise RunFailed(answer.reason, where)
    if isinstance(answer, NlpctlError):
        raise answer
    return answer


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `call`, or its exception in a form that can be sent."""
    try:
        return call(*arguments)
    except Interrupted:
        raise KeyboardInterrupt from None
    except NlpctlError as error:  # a subclass, which may be built from other arguments, cannot be unpickled
        return (UserError if isinstance(error, UserError) else RunFailed)(problems=error.problems)
    except Exception as error:
        return _Failed(f"{type(error).__name__}: {error}")


def _send(connection: Connection, answer: Any) -> None:
    """Send an answer, or the reason why it cannot be sent."""
    try:
        connection.send(answer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:  # raised before anything is written
        connection.send(_Failed(f"{type(answer).__name__} cannot be sent to another process: {error}"))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Start processes inside this context: Ctrl-C is delayed until its end, and in the new processes until they call
    `listen_for_interrupts`. A terminal's Ctrl-C reaches them too, and during imports it would print a traceback.
    """
    start_resource_tracker()  # it starts with the first process, and unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _safe_path():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_resource_tracker() -> None:
    """Start multiprocessing's process that removes what others leave behind, if it does not run.

    It does so in silence: a worker that Ctrl-C ends at once leaves semaphores, such as those of queues to data workers,
    or of the bars in Paddle's quantisers, and "leaked semaphore objects" would look like a mistake.
    """
    with _safe_path():
        before = os.environ.get("PYTHONWARNINGS")
        os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [before, "ignore:resource_tracker:UserWarning"]))
        try:
            resource_tracker.ensure_running()
        finally:
            os.environ.pop("PYTHONWARNINGS")
            if before is not None:
                os.environ["PYTHONWARNINGS"] = before


_starting = threading.RLock()


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """What multiprocessing starts in this context gets parent.SAFE_PATH, as a variable: it takes no options. The new
    process removes it. One thread at a time: another would remove the variable before this one's process has it.
    """
    with _starting:
        set_by_user = _SAFE_PATH in os.environ  # hers stays, in the new processes too
        os.environ.setdefault(_SAFE_PATH, _OURS)
        try:
            yield
        finally:
            if not set_by_user:
                os.environ.pop(_SAFE_PATH, None)


def child_main(log: Path | None = None) -> None:
    """What a worker calls first that the user never sees: a terminal's Ctrl-C reaches only the parent, which passes it
    on once and then ends this process at once, without a traceback. `log`: where its output goes (`log_to`).

    Its work must be safe to break off: what it writes gets its name when it is complete, and a training loop takes the
    signal itself, to save a checkpoint (runtime/interrupt.py).
    """
    os.setsid()
    listen_for_interrupts(_leave)
    if log is not None:
        log_to(log)
    else:
        console.share_terminal()


def _leave(number: int, frame: FrameType | None) -> None:
    # No exception: raised inside C++ that calls Python, e.g. during `import onnx`, it would abort with a traceback.
    os._exit(EXIT_INTERRUPTED)


def log_to(log: Path) -> None:
    """Append what this process and its libraries write from now on, on either stream, to the file."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), 2)
    os.dup2(2, 1)


def listen_for_interrupts(handler: Callable[[int, FrameType | None], object] = signal.default_int_handler) -> None:
    """Handle Ctrl-C by `handler` from now on; a delayed one is delivered now."""
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def is_alive(process: int) -> bool:
    """Whether `process` still runs; a zombie does not."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
