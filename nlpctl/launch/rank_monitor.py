"""The ranks of one command: processes that start together, compute together, and end together.

    run_ranks(ranks, ...)     starts them, relays rank 0, tells which one failed first, ends all of them
      RankProcess             one rank on the machine where it runs: its process, its log, its exit code

`ranks` are processes of this machine (launch.py), or kept by actors of a Ray cluster (ray_launch.py). A rank that is
lost is not started again, unlike a worker of a pool: the others wait for its gradients, so all of them end with it.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

from nlpctl import console
from nlpctl.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USER, Problem, RunFailed
from nlpctl.parent import python_until_parent_ends
from nlpctl.runtime.interrupt import STOP_SECONDS, sigterm_interrupts
from nlpctl.runtime.ranks import EXCHANGE, PORT_TAKEN, RANK, exit_note
from nlpctl.runtime.worker import module_path

PORTS = 3  # how often ranks start whose port other programs take
SETTLE_SECONDS = 1.0  # for the other ranks to report their errors after a first failure
TERM_SECONDS = 3.0  # from SIGTERM to SIGKILL
INTERRUPT_SECONDS = 10.0  # from the end of the first interrupted rank to SIGTERM for the others
SHOWN_LINES = 20
_SHOWN_BYTES = 65_536  # of the log's end, in which these lines are
_CHUNK = 32 << 20  # bytes of a log that a poll reads at most


@dataclass(frozen=True)
class RankStatus:
    """What a rank has written since it was last asked, and how it ended.

    `log`: its stderr, and its stdout unless it is rank 0, whose stdout is `output`. `code`: its exit code, minus the
    number of the signal that killed it; None while it runs. `age`: for how many seconds it has been over. `unread`: it
    has written more, which the next poll gives.
    """

    log: bytes
    output: bytes
    code: int | None
    age: float
    unread: bool
    port_taken: bool  # it could not meet the others, since another program has taken their port


class RankProcess:
    """One rank on this machine: `python ARGUMENTS` with the variables in `environment`.

    `folder`: of this rank alone, where it leaves notes for this process. `log`: is appended to.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path):
        self._arguments, self._folder, self._log_path = arguments, folder, log
        more = {EXCHANGE: str(folder), "PYTHONPATH": module_path(), "PYTHONIOENCODING": "utf-8"}
        self._environment = {**environment, **more}
        # The process belongs to a thread of its own, which starts it and waits for its end. There no handler of a
        # signal can raise KeyboardInterrupt, after which nobody would know of a process that was just started. And the
        # end is seen at once: others often fail within a few milliseconds, because this one has left.
        self._thread = threading.Thread(target=self._start_and_wait, daemon=True)
        self._started: Future[None] = Future()
        self._starting = threading.Lock()  # held by the thread meanwhile
        self._cancelled = False  # do not start it any more
        self._process: subprocess.Popen[bytes] | None = None
        self._end: tuple[int, float] | None = None  # the code, and when (seconds since 1970)

    def start(self) -> None:
        """Separate from __init__, so that the holder can end it (`kill`) if Ctrl-C comes during the start."""
        self._thread.start()
        self._started.result()

    def _start_and_wait(self) -> None:
        # The kernel ends the process with the thread that started it (parent.py): this one stays until it has ended.
        try:
            with self._starting:
                if self._cancelled:
                    return
                self._process = self._new_process()
        except Exception as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        try:
            # It stays a zombie until `kill`, so that the number of its process group, in which data workers may go on,
            # is given to no other.
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            # Whoever started this process has it ignore SIGCHLD, or other code of it waits for all children: the code
            # is lost, and Popen would say 0. A rank that comes to its end by itself has noted it.
            self._send_to_group(signal.SIGKILL)  # now, as long as the number is surely its own
            self._end = self._noted() or (-signal.SIGKILL, time.time())
            self._process.wait()
            return
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._end = code, time.time()

    def _new_process(self) -> subprocess.Popen[bytes]:
        (self._folder / PORT_TAKEN).unlink(missing_ok=True)  # of an earlier start
        output_path = self._folder / "output"
        with self._log_path.open("ab") as log, output_path.open("wb") as output:
            # They stay open: what the rank writes is read also where someone removes or renames its files meanwhile.
            self._log, self._output = self._reader(self._log_path), self._reader(output_path)
            self._log.seek(0, os.SEEK_END)
            # Until Python and the command line can answer Ctrl-C, it waits: they would print a traceback. What else is
            # blocked here is not to be blocked there, such as all signals in the threads of Ray.
            before = signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT})
            try:
                return subprocess.Popen(
                    python_until_parent_ends(*self._arguments),
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output if self._environment[RANK] == "0" else log,
                    stderr=log,
                    start_new_session=True,  # it is ended with its data workers; a terminal's Ctrl-C is passed on once
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _reader(self, path: Path) -> BinaryIO:
        stream = path.open("rb")
        weakref.finalize(self, stream.close)  # `poll` is called also after `kill`
        return stream

    @property
    def running(self) -> bool:
        return self._process is not None and self._end is None

    def poll(self) -> RankStatus:
        end = self._noted() or self._end  # before the last lines are read
        age = 0.0 if end is None else time.time() - end[1]
        port_taken = (self._folder / PORT_TAKEN).exists()
        log, output = self._log.read(_CHUNK), self._output.read(_CHUNK)
        unread = _CHUNK in (len(log), len(output))
        return RankStatus(log, output, end and end[0], age, unread, port_taken)

    def _noted(self) -> tuple[int, float] | None:
        """The exit code that the rank has noted, and when. Threads of Paddle may keep it from ending a while longer."""
        assert self._process is not None
        note = self._folder / exit_note(self._process.pid)
        try:
            return int(note.read_text()), note.stat().st_mtime
        except FileNotFoundError:
            return None

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs; not to its data workers."""
        if self.running and self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, where SIGCHLD is ignored
                os.kill(self._process.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to the rank and its data workers, unless it is about to leave."""
        if self.running and self._noted() is None:
            self._send_to_group(signal.SIGTERM)

    def kill(self) -> None:
        """End what is left of the rank, its data workers included, and wait for the rank."""
        with self._starting:
            self._cancelled = True
        if self._process is None or self._process.returncode is not None:
            return
        self._send_to_group(signal.SIGKILL)
        self._thread.join()
        self._process.wait()

    def _send_to_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def end_processes(processes: Iterable[RankProcess]) -> None:
    """End all that run: in order, and after TERM_SECONDS by force."""
    processes = list(processes)
    try:
        for process in processes:
            process.terminate()
        until = time.monotonic() + TERM_SECONDS
        while any(process.running for process in processes) and time.monotonic() < until:
            time.sleep(0.01)
    finally:  # also at another Ctrl-C
        for process in processes:
            process.kill()


class Ranks(Protocol):
    """The ranks of one launch, wherever they run."""

    poll_seconds: float  # between two polls
    settle_seconds: float  # after a first failure, until the others have told what they know of it

    def start(self) -> None:
        """Start all, with a port that is free now. May be called again after `stop`."""
        ...

    def poll(self, ranks: Sequence[int]) -> Iterator[tuple[int, RankStatus]]:
        """The status of each of `ranks`. RunFailed: a machine is lost."""
        ...

    def interrupt(self) -> None:
        """Send SIGINT to all that run."""
        ...

    def stop(self) -> None:
        """End all that still run (`end_processes`). Raises nothing for a machine that is lost."""
        ...

    def place(self, rank: int) -> str:
        """Where a rank runs, in messages: " on HOST" of several machines, or ""."""
        ...


def run_ranks(ranks: Ranks, world: int, log_dir: Path | None, output: TextIO | None = None) -> int:
    """Start the `world` ranks and wait until all of them have ended.

    Returns 0 when all ended well, 130 when interrupted, else the exit code (1 or 2) of the rank that failed first; its
    last lines are shown. `log_dir`: where their logs are; None: nowhere, and rank 0 says itself what fails. `output`:
    gets what rank 0 writes to stdout, by default our own. Its stderr arrives on ours.

    RunFailed if a machine is lost, or if other programs take the port at which the ranks are to meet, PORTS times.
    """
    for _ in range(PORTS):
        with sigterm_interrupts():
            code = _RankMonitor(ranks, world, log_dir, output or sys.stdout).until_end()
        if code is not None:
            return code
        console.note("the port of the processes was taken: all of them start again, with another port")
    hint = "start it again; PORT_RANGE=20000:30000 in the environment names the ports to take"
    message = f"the processes could not meet: other programs took their port {PORTS} times"
    raise RunFailed(message, str(log_dir or ""), hint)


@dataclass(frozen=True)
class _Ended:
    """A rank that ended: its exit code, minus the number of the signal that killed it, and when (time.time())."""

    rank: int
    code: int
    when: float

    @property
    def blame(self) -> tuple[int, float, int]:
        """Sort key: the most likely cause comes first. The others often fail only because one left a collective.

        A user's error usually occurs on all ranks; rank 0's is already shown, so it comes first. Then one that was
        killed or crashed, but for SIGABRT, by which gloo ends a process whose partner is gone; then the earliest.
        """
        if self.code == EXIT_USER:
            return (0, 0.0, self.rank)
        return (1 if self.code < 0 and self.code != -signal.SIGABRT else 2, self.when, self.rank)


class _RankMonitor:
    """Watches the ranks from one start to their end."""

    def __init__(self, ranks: Ranks, world: int, log_dir: Path | None, output: TextIO):
        self._ranks, self._world, self._log_dir = ranks, world, log_dir
        self._ended: dict[int, _Ended] = {}
        self._last_lines = [b""] * world
        self._stdout, self._stderr = _Relay(output), _Relay(sys.stderr)
        self._port_taken = False

    def until_end(self) -> int | None:
        """The exit code, as of `run_ranks`; None if the ranks could not meet, since their port was taken."""
        try:
            self._ranks.start()
            code = self._watch()
        finally:
            self._ranks.stop()
        with contextlib.suppress(RunFailed):
            self._take_in_new()  # what they said as they ended
        return code

    def _watch(self) -> int | None:
        try:
            while not self._all_ended() and not self._failed():
                self._poll()
            if failed := self._failed():
                of_user = any(each.code == EXIT_USER for each in failed)
                self._wait(self._all_ended, SETTLE_SECONDS if of_user else self._ranks.settle_seconds)
        except KeyboardInterrupt:
            console.note("interrupted: all processes stop after a common step; Ctrl-C again to stop now")
            self._ranks.interrupt()
            self._wait(lambda: bool(self._ended), STOP_SECONDS + TERM_SECONDS)
            self._wait(self._all_ended, INTERRUPT_SECONDS)
            return EXIT_INTERRUPTED
        if not self._failed():
            return EXIT_OK
        if self._port_taken:
            return None
        if self._log_dir is None and 0 in self._ended and self._ended[0].code > 0:
            return self._ended[0].code  # it has said why
        return self._tell_failure()

    def _failed(self) -> list[_Ended]:
        return [each for each in self._ended.values() if each.code != EXIT_OK]

    def _all_ended(self) -> bool:
        return len(self._ended) == self._world

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Poll until `condition` holds, or `seconds` are over."""
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until:
            self._poll()

    def _poll(self) -> None:
        self._take_in_new()
        time.sleep(self._ranks.poll_seconds)

    def _take_in_new(self) -> None:
        """Relay what rank 0 has written, and note which ranks have ended. Of these all that they wrote is read."""
        ranks = [rank for rank in range(self._world) if rank not in self._ended]
        while ranks:
            unread = []
            for rank, status in self._ranks.poll(ranks):
                self._last_lines[rank] = (self._last_lines[rank] + status.log)[-_SHOWN_BYTES:]
                if rank == 0:
                    self._stderr.write(status.log)
                    self._stdout.write(status.output)
                self._port_taken |= status.port_taken
                if status.code is not None:
                    self._ended.setdefault(rank, _Ended(rank, status.code, time.time() - status.age))
                    if status.unread:
                        unread.append(rank)
            ranks = unread

    def _tell_failure(self) -> int:
        """Show which rank failed first, and its last lines; those of rank 0 were shown as they came."""
        first = min(self._failed(), key=lambda each: each.blame)
        how = f"exit code {first.code}" if first.code > 0 else "it was killed or crashed"
        where = "" if self._log_dir is None else str(self._log_dir / log_name(first.rank))
        message = f"process {first.rank} of {self._world}{self._ranks.place(first.rank)} failed ({how})"
        console.error(Problem(message, where))
        if first.rank != 0:
            for line in self._last_lines[first.rank].decode(errors="replace").splitlines()[-SHOWN_LINES:]:
                console.note(line)
        return first.code if first.code in (EXIT_USER, EXIT_INTERRUPTED) else EXIT_FAILED


def log_name(rank: int) -> str:
    """The file of a rank's log in the folder of logs."""
    return f"rank-{rank}.log"


class _Relay:
    """Forwards bytes of a rank to a text stream; an incomplete character waits for its remaining bytes."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, block: bytes) -> None:
        if block:
            self._stream.write(self._decoder.decode(block))
            self._stream.flush()
