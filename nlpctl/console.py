"""Console output: results on stdout, everything else on stderr.

In a multi-process run every rank runs the same code; results and notes come from rank 0 only, while
warnings and errors of the other ranks go to their own logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TextIO

from nlpctl.errors import NlpctlError, Problem
from nlpctl.names import counted

PLAIN_PROGRESS_SECONDS = 10.0

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


def result(text: str) -> None:
    """Write `text` and a newline to stdout (rank 0 only)."""
    if is_main_rank():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def print_json(value: Any) -> None:
    """Write `value` to stdout as one readable JSON document (rank 0 only)."""
    result(json.dumps(value, ensure_ascii=False, indent=2))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table to stdout: drawn on a terminal, aligned plain text in a pipe (rank 0 only)."""
    if not is_main_rank():
        return
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(title, columns, cells)
    else:
        sys.stdout.write(plain_table(title, columns, cells))
    sys.stdout.flush()


def note(message: str) -> None:
    """Write a progress note to stderr (rank 0 only)."""
    if is_main_rank():
        _line(message)


def warn(message: str) -> None:
    """Write a warning to stderr."""
    _line(f"{_paint('warning:', _YELLOW)} {message}")


def error(problem: NlpctlError | Problem | str) -> None:
    """Write errors to stderr: one block per problem."""
    problems = problem.problems if isinstance(problem, NlpctlError) else (problem,)
    for each in problems:
        _line(f"{_paint('error:', _RED)} {each}")


@contextlib.contextmanager
def progress(total: int | None, description: str, unit: str = "rows") -> Iterator[Progress]:
    """Show the progress of `description` on stderr: a bar on a terminal, else a line about every ten seconds.

    `total` is the number of expected rows, None if unknown. Ranks other than 0 show nothing.
    """
    if not is_main_rank():
        yield _Silent()
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
            self._write(f"{told}, {self._rate(now)}")

    def finish(self) -> None:
        """The closing line: count, duration, rate."""
        now = self._clock()
        self._write(f"{counted(self._done, self._unit)} in {now - self._started:.1f} s, {self._rate(now)}")

    def _rate(self, now: float) -> str:
        return f"{self._done / max(now - self._started, 1e-9):,.1f} {self._unit}/s"

    def _write(self, text: str) -> None:
        self._stream.write(f"{self._description}: {text}\n")
        self._stream.flush()


def plain_table(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """The table as aligned text; Chinese characters count as two columns wide."""
    lines = [list(columns), *[list(row) for row in cells]]
    widths = [max(display_width(line[i]) for line in lines) for i in range(len(columns))]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    text = [title] if title else []
    for line in ruled:
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(line, widths, strict=True)]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)


def display_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _line(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _paint(text: str, colour: str) -> str:
    return f"{colour}{text}{_RESET}" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else text


def _rich_table(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # importing rich takes 50 ms, so only for terminals
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title) if title else None, title_justify="left")
    for column in columns:
        drawn.add_column(Text(column), overflow="fold")
    for row in cells:
        drawn.add_row(*[Text(cell) for cell in row])  # Text: "[x]" in a cell must not be read as markup
    Console(file=sys.stdout).print(drawn)


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
        yield _RichBar(bar, bar.add_task(description, total=total, rate=""), unit)


class _Silent:
    def advance(self, count: int = 1) -> None:
        pass
