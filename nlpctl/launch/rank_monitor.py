"""Watch launched ranks: relay rank 0, detect the first failure, stop all."""

from __future__ import annotations

import codecs
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from nlpctl import console
from nlpctl.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USER, Problem
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.ranks import PORT_TAKEN
from nlpctl.runtime.worker import is_alive

POLL_SECONDS = 0.05
SETTLE_SECONDS = 1.0  # seconds for the other ranks to report their errors after a first failure
TERM_SECONDS = 3.0  # from SIGTERM to SIGKILL
INTERRUPT_SECONDS = 10.0  # from the end of the first interrupted rank to SIGTERM for the others
SHOWN_LINES = 20


@dataclass(frozen=True)
class Ended:
    """A rank that ended: its exit code, None when it died without one (killed, crashed), and when (epoch seconds)."""

    rank: int
    code: int | None
    when: float
    where: str = ""  # " on node HOST", of several

    @property
    def blame(self) -> tuple[int, float, int]:
        """Sort key; the most likely cause comes first: a user's error, a crash, then the earliest failure.

        A user's error usually occurs on all ranks; rank 0's is already shown, so it comes first.
        """
        if self.code == EXIT_USER:
            return (0, 0.0, self.rank)
        return (1 if self.code is None else 2, self.when, self.rank)


def tell_failure(ended: Sequence[Ended], world: int, log: Callable[[int], tuple[str, Sequence[str]]]) -> int:
    """Show which of the processes that failed did so first, with its last lines; the exit code for the whole.

    `log`: where a rank's log is, and its last lines. Rank 0's lines were shown as they came.
    """
    # The others often fail only because the first one left a collective operation.
    first = min(ended, key=lambda each: each.blame)
    how = f"exit code {first.code}" if first.code is not None else "it was killed or crashed"
    where, lines = log(first.rank)
    console.error(Problem(f"process {first.rank} of {world}{first.where} failed ({how})", where))
    if first.rank != 0:
        for line in lines:
            console.note(line)
    return first.code if first.code in (EXIT_USER, EXIT_INTERRUPTED) else EXIT_FAILED


class RankMonitor:
    """Watches the ranks of one launch; leaving the context stops all that still run."""

    def __init__(
        self,
        launcher: subprocess.Popen[Any],
        nproc: int,
        exchange: Path,
        log_dir: Path,
    ):
        self._launcher, self._nproc, self._exchange, self._log_dir = launcher, nproc, exchange, log_dir
        self._log_starts = [_size(self._log(rank)) for rank in range(nproc)]  # a resumed run appends
        # Opened for writing too: so opening does not block, and the pipe has no end of file when rank 0 exits.
        self._pipe = os.open(exchange / "stdout", os.O_RDWR | os.O_NONBLOCK)
        self._stdout, self._stderr = Relay(sys.stdout), Relay(sys.stderr)
        self._log_read = self._log_starts[0]

    def __enter__(self) -> RankMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._end_all()
        finally:
            os.close(self._pipe)

    def until_end(self) -> int:
        """The overall exit code: see `launch`."""
        try:
            while True:
                self._relay()
                ended = self._ended()
                if any(each.code != 0 for each in ended):
                    return self._failed()
                if len(ended) == self._nproc:
                    self._wait(lambda: not self._running(), TERM_SECONDS)
                    return EXIT_OK
                stopped = self._launcher.poll() is not None
                if stopped and not self._wait(self._any_failed, SETTLE_SECONDS):
                    return self._lost()
        except KeyboardInterrupt:
            console.note("interrupted: all processes stop after a common step; Ctrl-C again to stop now")
            for rank in self._running():
                os.kill(self._process(rank), signal.SIGINT)
            self._wait(lambda: bool(self._ended()), STOP_SECONDS + TERM_SECONDS)
            self._wait(lambda: not self._running(), INTERRUPT_SECONDS)
            return EXIT_INTERRUPTED

    @property
    def port_taken(self) -> bool:
        """Whether the ranks could not meet, since another program has taken their port."""
        return (self._exchange / PORT_TAKEN).exists()

    def _failed(self) -> int:
        """Show the rank that failed first; the rest is ended on leaving the context."""
        self._wait(lambda: not self._running(), SETTLE_SECONDS)
        if self.port_taken:  # `launch` starts again
            return EXIT_FAILED
        failed = [each for each in self._ended() if each.code != 0]
        return tell_failure(failed, self._nproc, lambda rank: (str(self._log(rank)), self._last_lines(rank)))

    def _lost(self) -> int:
        """The launcher ended without any exit code of a rank, so they never started."""
        text = "".join(path.read_text(errors="replace") for path in sorted(self._exchange.glob("workerlog.*")))
        text = text or (self._exchange / "launcher.log").read_text(errors="replace")
        console.error(Problem(f"the processes could not start (exit code {self._launcher.returncode})"))
        for line in text.splitlines()[-SHOWN_LINES:]:
            console.note(line)
        return EXIT_FAILED

    def _ended(self) -> list[Ended]:
        found = []
        for rank in range(self._nproc):
            pid, code = self._exchange / f"{rank}.pid", self._exchange / f"{rank}.exit"
            alive = not pid.exists() or is_alive(int(pid.read_text()))  # before the code, which is written first
            if code.exists():
                found.append(Ended(rank, int(code.read_text()), code.stat().st_mtime))
            elif not alive:
                found.append(Ended(rank, None, time.time()))
        return found

    def _any_failed(self) -> bool:
        return any(each.code != 0 for each in self._ended())

    def _running(self) -> list[int]:
        started = [rank for rank in range(self._nproc) if (self._exchange / f"{rank}.pid").exists()]
        return [rank for rank in started if is_alive(self._process(rank))]

    def _process(self, rank: int) -> int:
        return int((self._exchange / f"{rank}.pid").read_text())

    def _end_all(self) -> None:
        for rank in self._running():
            _signal_group(self._process(rank), signal.SIGTERM)
        self._wait(lambda: not self._running(), TERM_SECONDS)
        self._launcher.kill()  # also stops ranks that have just started: see rank_main
        self._launcher.wait()
        for path in self._exchange.glob("*.pid"):
            _signal_group(int(path.read_text()), signal.SIGKILL)  # data loader workers too
        while self._running():
            time.sleep(POLL_SECONDS)
        self._relay()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Relay until `condition` holds or `seconds` are over; whether it held."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._relay()
        self._relay()
        return True

    def _relay(self) -> None:
        """Pass on what rank 0 wrote since the last time; waits up to POLL_SECONDS for more."""
        if select.select([self._pipe], [], [], POLL_SECONDS)[0]:
            while block := _read(self._pipe):
                self._stdout.write(block)
        if self._log(0).exists():
            with self._log(0).open("rb") as stream:
                stream.seek(self._log_read)
                self._stderr.write(stream.read())
                self._log_read = stream.tell()

    def _last_lines(self, rank: int) -> list[str]:
        with self._log(rank).open("rb") as stream:
            stream.seek(self._log_starts[rank])
            return stream.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]

    def _log(self, rank: int) -> Path:
        return self._log_dir / f"rank-{rank}.log"


class Relay:
    """Forwards bytes of a rank to a text stream; an incomplete character waits for its remaining bytes."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, block: bytes) -> None:
        if block:
            self._stream.write(self._decoder.decode(block))
            self._stream.flush()


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:
        return b""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _signal_group(process: int, number: signal.Signals) -> None:
    """Send `number` to the process group that `process` leads, its workers included; none left is no error."""
    try:
        os.killpg(process, number)
    except ProcessLookupError:
        pass
