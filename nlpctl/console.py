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
from typing import Any, Protocol, TextIO

from nlpctl.errors import NlpctlError, Problem
from nlpctl.names import counted

PLAIN_PROGRESS_SECONDS = 10.0
JSON_PROGRESS_SECONDS = 1.0
MOST_PROBLEMS = 20  # all are shown; of more, as of thousands of wrong entries, FIRST_PROBLEMS
FIRST_PROBLEMS = 10
STANDARD_OUTPUT = "standard output"
PROGRESS = "NLPCTL_PROGRESS"  # "json": a program reads standard error

_RED, _YELLOW, _RESET = "\033[31m", "\033[33m", "\033[0m"


class Progress(Protocol):
    """What `progress` yields."""

    def advance(self, count: int = 1) -> None:
        """Count `count` more rows (or steps) as done."""
        ...


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


def settle_streams() -> None:
    """Drop what stdout or stderr cannot take, on a full disk or where no one reads: Python would try again at its end,
    and end with a code of its own."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


# What a terminal obeys in place of showing it: C0 but line breaks and tabs, DEL, C1, and what turns the direction of
# writing. A text from elsewhere (data, a file name, a label) could clear the screen, set its title, or hide a line.
_ORDERS = {code: f"\\x{code:02x}" for code in range(0x20) if chr(code) not in "\n\t"}
# In JSON these stand unescaped, and \u009b is right there too.
_ORDERS |= {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F)}
_ORDERS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    """`text` with what a terminal would obey written out, such as \\x1b for ESC."""
    return text.translate(_ORDERS)


def gives_results() -> bool:
    """Whether results are written to stdout by this process: by rank 0, and unless a program gets them otherwise."""
    return is_main_rank() and not _given_otherwise


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
    """Write a progress note to stderr (rank 0 only)."""
    if is_main_rank():
        _tell("note", message, visible(message))


def warn(message: str) -> None:
    """Write a warning to stderr."""
    if _warnings is not None:
        _warnings.append(message)
    _tell("warning", message, f"{_paint('warning:', _YELLOW)} {visible(message)}")


def error(problem: NlpctlError | Problem | str) -> None:
    """Write errors to stderr: one block per problem. Of more than MOST_PROBLEMS the first, and each remedy once."""
    problems = problem.problems if isinstance(problem, NlpctlError) else (problem,)
    shown = problems if len(problems) <= MOST_PROBLEMS else problems[:FIRST_PROBLEMS]
    for place, each in enumerate(shown):
        if len(shown) < len(problems) and any(each.hint == later.hint for later in shown[place + 1 :]):
            each = dataclasses.replace(each, hint="")
        _tell("error", str(each), f"{_paint('error:', _RED)} {visible(str(each))}")
    if len(shown) < len(problems):
        note(f"and {len(problems) - len(shown):,} more problems")


_warnings: list[str] | None = None  # of this process, while somebody keeps them
_given_otherwise = False  # whether results are given to a program, and not written for people


@contextlib.contextmanager
def for_a_program() -> Iterator[list[str]]:
    """Inside the context, results are not written, and warnings are kept in the list too."""
    global _warnings, _given_otherwise
    before = _warnings, _given_otherwise
    _warnings, _given_otherwise = [], True
    try:
        yield _warnings
    finally:
        _warnings, _given_otherwise = before


def json_lines() -> bool:
    """Whether the lines on stderr are to be JSON objects."""
    return os.environ.get(PROGRESS) == "json"


class Course:
    """The course of something that is counted: a line of text at each step, or an event where events are wanted."""

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        begun: int = 0,
        clock: Callable[[], float] = time.monotonic,
        left: Callable[[int], float | None] | None = None,
    ):
        """`total`: how many there are, None if unknown. `begun`: how many were done before. `left`: the seconds left
        after so many, where the rate alone does not tell."""
        self._what, self._total, self._unit, self._clock, self._given = what, total, unit, clock, left
        self._begun = self._done = begun
        self._started = clock()
        self._event("started")

    def left(self, done: int) -> float | None:
        """The seconds left after `done`, as given or at the rate so far; None if that is unknown."""
        if self._given is not None:
            return self._given(done)
        if self._total is None or done <= self._begun:
            return None
        return (self._clock() - self._started) / (done - self._begun) * (self._total - done)

    def tell(self, done: int, line: str, **figures: Any) -> None:
        """`line`, or the event that `done` are done, with `figures`."""
        self._done = done
        if json_lines():
            self._event("progress", figures=figures)
        else:
            note(line)

    def finish(self) -> None:
        self._event("finished")

    def _event(self, kind: str, **more: Any) -> None:
        if not (json_lines() and is_main_rank()):
            return
        seconds, left = self._clock() - self._started, self.left(self._done)
        course = {"what": self._what, "unit": self._unit, "done": self._done, "total": self._total}
        _write_event(kind, **course, seconds=round(seconds, 3), left=None if left is None else round(left, 3), **more)


class JsonProgress(Course):
    """Progress as events, one a second at most."""

    _last = 0.0

    def advance(self, count: int = 1) -> None:
        self._done += count
        if self._clock() - self._last >= JSON_PROGRESS_SECONDS:
            self._last = self._clock()
            self._event("progress")


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: a path is a text, and a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


@contextlib.contextmanager
def progress(total: int | None, description: str, unit: str = "rows") -> Iterator[Progress]:
    """Show the progress of `description` on stderr: a bar on a terminal, else a line about every ten seconds.

    With NLPCTL_PROGRESS=json: an event at the start, at the end, and a second at most between.

    `total` is the number of expected rows, None if unknown. Ranks other than 0 show nothing.
    """
    if not is_main_rank():
        yield _Silent()
    elif json_lines():
        events = JsonProgress(description, total, unit)
        yield events
        events.finish()
    elif sys.stderr.isatty():
        with _rich_progress(total, description, unit) as bar:
            yield bar
    else:
        plain = PlainProgress(total, description, unit, sys.stderr)
        yield plain
        plain.finish()


class PlainProgress:
    """Progress as plain lines, for logs and pipes."""

    def __init__(
        self,
        total: int | None,
        description: str,
        unit: str,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._description, self._unit = total, description, unit
        self._stream, self._clock = stream, clock
        self._done = 0
        self._started = self._last_line = clock()

    def advance(self, count: int = 1) -> None:
        self._done += count
        now = self._clock()
        if now - self._last_line >= PLAIN_PROGRESS_SECONDS:
            self._last_line = now
            told = counted(self._done, self._unit)
            if self._total:
                told = f"{self._done:,}/{counted(self._total, self._unit)} ({self._done / self._total:.0%})"
            self._write(f"{told}, {self._rate(now)}{self._left(now)}")

    def finish(self) -> None:
        """The closing line: count, duration, rate."""
        now = self._clock()
        self._write(f"{counted(self._done, self._unit)} in {now - self._started:.1f} s, {self._rate(now)}")

    def _left(self, now: float) -> str:
        """The time left at the rate so far."""
        if not self._total or not 0 < self._done < self._total:
            return ""
        return f", {duration((now - self._started) / self._done * (self._total - self._done))} left"

    def _rate(self, now: float) -> str:
        return f"{self._done / max(now - self._started, 1e-9):,.1f} {self._unit}/s"

    def _write(self, text: str) -> None:
        self._stream.write(visible(f"{self._description}: {text}") + "\n")
        self._stream.flush()


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


def _tell(kind: str, message: str, line: str) -> None:
    """Write `line`, or the event of this kind with `message`."""
    if json_lines():
        _write_event(kind, message=message)
    else:
        _line(line)


def _write_event(kind: str, **content: Any) -> None:
    event = {"event": kind, "time": round(time.time(), 3), **content}
    _line(visible(json.dumps(plain(event), ensure_ascii=False, allow_nan=False)))


_dropping = False  # whether what nobody can read is dropped


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


class _RichBar:
    def __init__(self, bar: Any, task: Any, unit: str):
        self._bar, self._task, self._unit = bar, task, unit

    def advance(self, count: int = 1) -> None:
        self._bar.advance(self._task, count)
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, rate=f"{speed:,.1f} {self._unit}/s" if speed else "")


@contextlib.contextmanager
def _rich_progress(total: int | None, description: str, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(file=sys.stderr)) as bar:
        yield _RichBar(bar, bar.add_task(visible(description), total=total, rate=""), unit)


class _Silent:
    def advance(self, count: int = 1) -> None:
        pass
