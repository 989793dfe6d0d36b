"""Console output: results on stdout, everything else on stderr.

In a multi-process run every rank runs the same code; results and notes come from rank 0 only, while
warnings and errors of the other ranks go to their own logs. With NLPCTL_PROGRESS=json every line on stderr is a JSON
object (docs/json.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from nlpctl.errors import NlpctlError, Problem
from nlpctl.names import counted
from nlpctl.spelling import spelled

PLAIN_PROGRESS_SECONDS = 10.0
JSON_PROGRESS_SECONDS = 1.0
MOST_PROBLEMS = 20  # so many are all shown
FIRST_PROBLEMS = 10  # of more, as of thousands of wrong entries, so many
STANDARD_OUTPUT = "standard output"
PROGRESS = "NLPCTL_PROGRESS"  # "json": a program reads standard error

_RED, _YELLOW, _RESET = "\033[31m", "\033[33m", "\033[0m"


def set_up_streams() -> None:
    """Make every text printable: a pipe or file gets UTF-8, a terminal of another encoding gets "?"."""
    _replace_closed()
    for stream in (sys.stdout, sys.stderr):
        if not hasattr(stream, "reconfigure"):  # a test's or notebook's stand-in
            continue
        if stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _replace_closed() -> None:
    """Open /dev/null in place of each standard stream that is closed (`nlpctl ... >&-`).

    Otherwise the next file that is opened would get its number, and be written into.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))


def is_main_rank() -> bool:
    """True in a single-process run and in rank 0 of several."""
    return os.environ.get("PADDLE_TRAINER_ID", "0") == "0"


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Write to stdout inside the context: an OSError then names it as its file."""
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def drop_unwritten() -> None:
    """Drop what stdout or stderr cannot take, on a full disk or where no one reads.

    Python would otherwise try again when it ends, fail again, and end with exit code 120 in place of ours.
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


# What a terminal obeys in place of showing it: C0 but line breaks and tabs, DEL, C1, and what turns the direction of
# writing. A text from elsewhere (data, a file name, a label) could clear the screen, set its title, or hide a line.
_CONTROLS = {code: f"\\x{code:02x}" for code in range(0x20) if chr(code) not in "\n\t"}
# In JSON these stand unescaped, and \u009b is right there too.
_CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F)}
_CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    """`text` with what a terminal would obey written out, such as \\x1b for ESC."""
    return text.translate(_CONTROLS)


def gives_results() -> bool:
    """Whether this process writes results to stdout: rank 0 does, unless a program gets them as JSON."""
    return is_main_rank() and not _program_reads


def for_stdout(text: str) -> str:
    """`text` as it is for a file or a pipe; `visible` for a terminal."""
    return visible(text) if sys.stdout.isatty() else text


def result(text: str, painted: bool = False) -> None:
    """Write `text` and a newline to stdout (rank 0 only). `painted`: it has colours; all else in it is `visible`."""
    if gives_results():
        with standard_output():
            sys.stdout.write((text if painted else for_stdout(text)) + "\n")
            sys.stdout.flush()


def note(message: str) -> None:
    """Write a progress note to stderr (rank 0 only). Options are marked as in spelling.py, in warnings too."""
    if is_main_rank():
        message = spelled(message)
        _write_message("note", message, visible(message))


def warn(message: str) -> None:
    """Write a warning to stderr."""
    message = spelled(message)
    if _warnings is not None:
        _warnings.append(message)
    _write_message("warning", message, f"{_paint('warning:', _YELLOW)} {visible(message)}")


def error(problem: NlpctlError | Problem) -> None:
    """Write errors to stderr: one block per problem. Of more than MOST_PROBLEMS the first, and each remedy once."""
    problems = problem.problems if isinstance(problem, NlpctlError) else (problem,)
    first = problems if len(problems) <= MOST_PROBLEMS else problems[:FIRST_PROBLEMS]
    for i, each in enumerate(first):
        # Of so many problems most have the same remedy; the last of them names it.
        if len(first) < len(problems) and any(each.hint == later.hint for later in first[i + 1 :]):
            each = dataclasses.replace(each, hint="")
        _write_message("error", str(each), f"{_paint('error:', _RED)} {visible(str(each))}")
    if len(first) < len(problems):
        note(f"and {len(problems) - len(first):,} more problems")


_warnings: list[str] | None = None  # the warnings of this process, inside of `for_a_program`
_program_reads = False  # whether a program gets the results as JSON, so that none are written for people


@contextlib.contextmanager
def for_a_program() -> Iterator[list[str]]:
    """Inside the context no result is written, and the list that it yields gets the warnings, which are written too."""
    global _warnings, _program_reads
    before = _warnings, _program_reads
    _warnings, _program_reads = [], True
    try:
        yield _warnings
    finally:
        _warnings, _program_reads = before


def json_lines() -> bool:
    """Whether the lines on stderr are to be JSON objects."""
    return os.environ.get(PROGRESS) == "json"


def json_ready(value: Any) -> Any:
    """`value` as JSON can hold it: a path is a text, and a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): json_ready(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_ready(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


class Progress:
    """Something that is counted: `done` of `total` (None if unknown), and how long it took. A sink shows it."""

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        sink: ProgressSink | None = None,
        *,
        begun: int = 0,
        left: Callable[[int], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`begun`: how many were done before. `left`: the seconds left after so many, where the rate alone does not
        tell. Without a `sink` only the lines given to `report` are shown, or events where these are wanted."""
        self.what, self.total, self.unit, self.begun, self.done = what, total, unit, begun, begun
        self._given_left, self._clock = left, clock
        self._started = clock()
        self._sink = sink or (EventSink() if json_lines() and is_main_rank() else ProgressSink())
        self._sink.start(self)

    def advance(self, count: int = 1) -> None:
        """`count` more are done."""
        self.done += count
        self._sink.advance(self)

    def report(self, done: int, line: str, **figures: Any) -> None:
        """So many are `done`: `line`, or where events are wanted one with `figures`."""
        self.done = done
        self._sink.report(self, line, figures)

    def finish(self) -> None:
        """All is done that will be done; not called where an error ends it."""
        self._sink.finish(self)

    def now(self) -> float:
        """Seconds by the clock."""
        return self._clock()

    def seconds(self) -> float:
        """Seconds since it began here."""
        return self._clock() - self._started

    def left(self, done: int | None = None) -> float | None:
        """The seconds left after `done` (by default: now), as given or at the rate so far; None if that is unknown."""
        done = self.done if done is None else done
        if self._given_left is not None:
            return self._given_left(done)
        if self.total is None or done <= self.begun:
            return None
        return self.seconds() / (done - self.begun) * (self.total - done)


class ProgressSink:
    """Shows the lines that are given to `report`, and nothing of its own."""

    def start(self, progress: Progress) -> None: ...

    def advance(self, progress: Progress) -> None: ...

    def report(self, progress: Progress, line: str, figures: Mapping[str, Any]) -> None:
        note(line)

    def finish(self, progress: Progress) -> None: ...

    def close(self) -> None:
        """Called at the end in any case, also after an error."""


class LineSink(ProgressSink):
    """A line about every ten seconds and one at the end, for logs and pipes."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def start(self, progress: Progress) -> None:
        self._last_line = progress.now()

    def advance(self, progress: Progress) -> None:
        if progress.now() - self._last_line < PLAIN_PROGRESS_SECONDS:
            return
        self._last_line = progress.now()
        state, left = counted(progress.done, progress.unit), progress.left()
        if progress.total:
            total = counted(progress.total, progress.unit)
            state = f"{progress.done:,}/{total} ({progress.done / progress.total:.0%})"
        time_left = f", {duration(left)} left" if left is not None and left > 0 else ""
        self._write(progress, f"{state}, {self._rate(progress)}{time_left}")

    def finish(self, progress: Progress) -> None:
        number = counted(progress.done, progress.unit)
        self._write(progress, f"{number} in {progress.seconds():.1f} s, {self._rate(progress)}")

    def _rate(self, progress: Progress) -> str:
        return f"{progress.done / max(progress.seconds(), 1e-9):,.1f} {progress.unit}/s"

    def _write(self, progress: Progress, text: str) -> None:
        self._stream.write(visible(f"{progress.what}: {text}") + "\n")
        self._stream.flush()


class EventSink(ProgressSink):
    """JSON events (docs/json.md): at the start and the end, each line that is reported, and else one a second at most.
    """

    _last = 0.0

    def start(self, progress: Progress) -> None:
        self._write(progress, "started")

    def advance(self, progress: Progress) -> None:
        if progress.now() - self._last >= JSON_PROGRESS_SECONDS:
            self._last = progress.now()
            self._write(progress, "progress")

    def report(self, progress: Progress, line: str, figures: Mapping[str, Any]) -> None:
        self._write(progress, "progress", figures=figures)

    def finish(self, progress: Progress) -> None:
        self._write(progress, "finished")

    def _write(self, progress: Progress, kind: str, **more: Any) -> None:
        counts = {"what": progress.what, "unit": progress.unit, "done": progress.done, "total": progress.total}
        left = progress.left()
        seconds = {"seconds": round(progress.seconds(), 3), "left": None if left is None else round(left, 3)}
        _write_event(kind, **counts, **seconds, **more)


class BarSink(ProgressSink):
    """A bar on a terminal."""

    def start(self, progress: Progress) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
        )
        self._bars = Bars(*columns, console=Console(file=sys.stderr))
        self._bars.start()
        self._task = self._bars.add_task(visible(progress.what), total=progress.total, rate="")

    def advance(self, progress: Progress) -> None:
        task = self._bars.tasks[0]
        self._bars.advance(self._task, progress.done - task.completed)
        speed = task.speed
        self._bars.update(self._task, rate=f"{speed:,.1f} {progress.unit}/s" if speed else "")

    def close(self) -> None:
        self._bars.stop()


@contextlib.contextmanager
def progress(total: int | None, what: str, unit: str = "rows") -> Iterator[Progress]:
    """Show the progress of `what` on stderr: a bar on a terminal, else lines, or events with NLPCTL_PROGRESS=json.

    `total`: the number of `unit` to expect, None if unknown. Ranks other than 0 show nothing.
    """
    sink = ProgressSink()
    if is_main_rank():
        sink = EventSink() if json_lines() else BarSink() if sys.stderr.isatty() else LineSink(sys.stderr)
    counting = Progress(what, total, unit, sink)
    try:
        yield counting
        counting.finish()
    finally:
        sink.close()


def duration(seconds: float) -> str:
    """A time in words: 0m40s, 1h02m."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{rest:02d}s"


def display_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def shortened(text: str, width: int) -> str:
    """`text`, or as much of it as fits into `width` columns."""
    taken = 0
    for end, char in enumerate(text):
        if taken + display_width(char) > width - 1:  # 1: for the sign that something is missing
            return text if display_width(text) <= width else f"{text[:end]}…"
        taken += display_width(char)
    return text


def _write_message(kind: str, message: str, line: str) -> None:
    """Write `line`, or where events are wanted one of this kind with `message`."""
    if json_lines():
        _write_event(kind, message=message)
    else:
        _line(line)


def _write_event(kind: str, **content: Any) -> None:
    event = {"event": kind, "time": round(time.time(), 3), **content}
    _line(visible(json.dumps(json_ready(event), ensure_ascii=False, allow_nan=False)))


_dropping = False  # inside of `unread_dropped`


@contextlib.contextmanager
def unread_dropped() -> Iterator[None]:
    """Inside the context a message that cannot be written is dropped, and no error: a service outlives its log."""
    global _dropping
    before, _dropping = _dropping, True
    try:
        yield
    finally:
        _dropping = before


def _line(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError as error:
        if not _dropping:
            raise
        if error.errno in (errno.EPIPE, errno.EIO):  # the reader has gone: the buffer would fail at the end again
            sys.stderr = open(os.devnull, "w", encoding="utf-8")


def _paint(text: str, colour: str) -> str:
    return f"{colour}{text}{_RESET}" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else text
