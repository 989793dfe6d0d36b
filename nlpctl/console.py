"""Console output: results on stdout, everything else on stderr.

In a multi-process run every rank runs the same code; results and notes come from rank 0 only, while
warnings and errors of the other ranks go to their own logs. With NLPCTL_PROGRESS=json every line on stderr is a JSON
object (docs/json.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import math
import os
import re
import signal
import sys
import textwrap
import threading
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
DRAWING_SECONDS = 0.1
TICK_SECONDS = 1.0
BAR_COLUMNS = 20
MOST_MARKS = 400  # of a Pace
MOST_PROBLEMS = 20  # so many are all shown
FIRST_PROBLEMS = 10  # of more, as of thousands of wrong entries, so many
STANDARD_OUTPUT = "standard output"
PROGRESS = "NLPCTL_PROGRESS"  # "json": a program reads standard error

_RED, _YELLOW, _RESET = "\033[31m", "\033[33m", "\033[0m"
_TO_THE_END = "\033[K"  # clears the rest of a line
_CHINESE, _OPENS, _CLOSES = "\u2e80-\u2fff\u3040-\u9fff\uf900-\ufaff", "（《“「【", "，。；：、）》”」】！？"
# What stays on one line: a word, or a Chinese character, with the signs that open before it and close behind it.
_UNBROKEN = re.compile(rf"\s+|[{_OPENS}]*(?:[{_CHINESE}]|[^\s{_CHINESE}{_OPENS}{_CLOSES}]+)[{_CLOSES}]*|.")


def set_up_streams() -> None:
    """Make every text printable: a pipe or file gets UTF-8, a terminal of another encoding gets "?". On a terminal,
    what is written from here on comes above a progress bar; without this call there is none."""
    _replace_closed()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, _AboveTheBar) or not hasattr(stream, "reconfigure"):  # a test's or notebook's stand-in
            continue
        if stream.isatty():
            stream.flush()
            setattr(sys, name, _AboveTheBar(stream.buffer, stream.encoding, "replace", line_buffering=True))
        else:
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def share_terminal() -> None:
    """Of a process that was started by one with a bar: what it writes comes above that, and it has none of its own."""
    set_up_streams()
    _bar.of_another = _can_draw()


class _AboveTheBar(io.TextIOWrapper):
    """A terminal. Loggers keep the stream that they find when they are made, so it is there from the start."""

    def write(self, text: str) -> int:
        with _bar.taken_off():
            if text:
                _bar.may_be_drawn = text.endswith("\n")  # print() writes a line and its end apart
            return super().write(text)


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


def locale_name() -> str:
    """The locale of messages in lower case, such as zh_cn.utf-8; "" if none is set."""
    return next(filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "").lower()


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


def note_at_once(message: str) -> None:
    """A note past the streams: of a signal handler, which must not re-enter one that is being written to."""
    line = _event("note", message=message) if json_lines() else message
    start = f"\r{_TO_THE_END}" if _can_draw() else ""  # in place of a bar, of this process or of another
    os.write(2, f"{start}{line}\n".encode())


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


class Pace:
    """The speed of what is counted, in the last half of the time so far: other programs come and go. The first piece is
    left out, which may prepare what comes after it."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float]] = []

    def mark(self, seconds: float, done: float) -> None:
        """So many are done after so many seconds."""
        if self._marks and done <= self._marks[-1][1]:
            return
        self._marks.append((seconds, done))
        if len(self._marks) > MOST_MARKS:
            self._marks = self._marks[::2]

    def seconds_each(self) -> float | None:
        """None before the second mark."""
        if len(self._marks) < 2:
            return None
        (first, _), (last, done) = self._marks[0], self._marks[-1]
        begun, before = next(mark for mark in reversed(self._marks[:-1]) if mark[0] <= (first + last) / 2)
        return (last - begun) / (done - before)


class Progress:
    """Something that is counted: `done` of `total` (None if unknown), and how long it took. A sink shows it.

    What takes longer than others, such as long rows, is worth more: `worth` is what is done in pieces of the usual
    size, and comes to `total`, too. The time left goes by it.
    `about`: what a bar shows besides. `within`: what it is a part of. `part`: what goes on as a part of it now.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        sink: ProgressSink,
        *,
        begun: int = 0,
        left: Callable[[int], float | None] | None = None,
        within: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`begun`: how many were done before. `left`: the seconds left after so many, where the rate alone does not
        tell."""
        self.what, self.total, self.unit, self.begun, self.done = what, total, unit, begun, begun
        self.worth = float(begun)
        self.about = ""
        self.within = within
        self.part: Progress | None = None
        if within is not None:
            within.part = self
        self._given_left, self._clock = left, clock
        self._started, self._pace = clock(), Pace()
        self._sink = sink
        sink.start(self)

    def advance(
        self,
        count: int = 1,
        about: str | None = None,
        figures: Mapping[str, Any] | None = None,
        worth: float | None = None,
    ) -> None:
        """`count` more are done, which are `worth` so many (by default: as many). `about`: for a bar; `figures`: for an
        event."""
        self.done += count
        self.worth += count if worth is None else worth
        self._pace.mark(self.seconds(), self.worth)
        self.about = self.about if about is None else about
        self._sink.advance(self, figures or {})
        if self.within is not None:  # its time left changes, too
            self.within.advance(0)

    def report(
        self, done: int, line: str, *, lasting: bool = False, figures: Mapping[str, Any] | None = None
    ) -> None:
        """So many are `done`: `line`, or where events are wanted one with `figures`. A bar says itself what is not
        `lasting`."""
        self.worth += done - self.done
        self.done = done
        self._pace.mark(self.seconds(), self.worth)
        self._sink.report(self, line, lasting, figures or {})

    def tell_left(self, left: Callable[[int], float | None]) -> None:
        """From now on these are the seconds left after so many."""
        self._given_left = left

    def finish(self) -> None:
        """All is done that will be done; not called where an error ends it."""
        self._sink.finish(self)

    def now(self) -> float:
        """Seconds by the clock."""
        return self._clock()

    def seconds(self) -> float:
        """Seconds since it began here."""
        return self._clock() - self._started

    def rate(self) -> str:
        """How many a second are done here, in words; "" if they are too few."""
        rate = (self.done - self.begun) / max(self.seconds(), 1e-9)
        return f"{rate:,.1f} {self.unit}/s" if rate >= 0.05 else ""

    def left(self) -> float | None:
        """The seconds left, as given or at its pace so far; None if that is unknown."""
        if self._given_left is not None:
            return self._given_left(self.done)
        if self.total is None or self.worth <= self.begun:
            return None
        each = self._pace.seconds_each()
        each = self.seconds() / (self.worth - self.begun) if each is None else each
        return each * max(0.0, self.total - self.worth)

    def all_left(self) -> list[tuple[str, float]]:
        """The seconds left, under "", and of what it is a part of, under the names; without what is not known."""
        left = self.left()
        told = [] if left is None else [("", left)]
        whole = self.within
        while whole is not None:
            left = whole.left()
            told += [] if left is None else [(whole.what, left)]
            whole = whole.within
        return told

    def left_in_words(self) -> str:
        """Such as "0m40s left (sweep: 12m10s)", with what it is a part of; "" if nothing is known."""
        return _left_in_words(self.all_left())


def _left_in_words(told: Sequence[tuple[str, float]], passed: float = 0.0) -> str:
    """What `all_left` has told so many seconds ago."""
    left = [(what, duration(max(0.0, seconds - passed))) for what, seconds in told]
    return " ".join(f"({what}: {time_left})" if what else f"{time_left} left" for what, time_left in left)


class ProgressSink:
    """Shows the lines that are given to `report`, and nothing of its own."""

    def start(self, progress: Progress) -> None: ...

    def advance(self, progress: Progress, figures: Mapping[str, Any]) -> None: ...

    def report(self, progress: Progress, line: str, lasting: bool, figures: Mapping[str, Any]) -> None:
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

    def advance(self, progress: Progress, figures: Mapping[str, Any]) -> None:
        if progress.now() - self._last_line < PLAIN_PROGRESS_SECONDS:
            return
        self._last_line = progress.now()
        state, left = counted(progress.done, progress.unit), progress.left()
        if progress.total:
            total = counted(progress.total, progress.unit)
            state = f"{progress.done:,}/{total} ({progress.done / progress.total:.0%})"
        time_left = f"{duration(left)} left" if left is not None and left > 0 else ""
        self._write(progress, ", ".join(filter(None, (state, progress.about, progress.rate(), time_left))))

    def finish(self, progress: Progress) -> None:
        number = counted(progress.done, progress.unit)
        self._write(progress, ", ".join(filter(None, (f"{number} in {progress.seconds():.1f} s", progress.rate()))))

    def _write(self, progress: Progress, text: str) -> None:
        with _bar.taken_off():
            self._stream.write(visible(f"{progress.what}: {text}") + "\n")
            self._stream.flush()


class EventSink(ProgressSink):
    """JSON events (docs/json.md): at the start and the end, each line that is reported, and else one a second at most.
    """

    def start(self, progress: Progress) -> None:
        self._last = progress.now()
        self._write(progress, "started")

    def advance(self, progress: Progress, figures: Mapping[str, Any]) -> None:
        if progress.now() - self._last >= JSON_PROGRESS_SECONDS:
            self._last = progress.now()
            self._write(progress, "progress", **({"figures": figures} if figures else {}))

    def report(self, progress: Progress, line: str, lasting: bool, figures: Mapping[str, Any]) -> None:
        self._last = progress.now()
        self._write(progress, "progress", figures=figures)

    def finish(self, progress: Progress) -> None:
        self._write(progress, "finished")

    def _write(self, progress: Progress, kind: str, **more: Any) -> None:
        counts = {"what": progress.what, "unit": progress.unit, "done": progress.done, "total": progress.total}
        left = 0.0 if kind == "finished" else progress.left()
        seconds = {"seconds": round(progress.seconds(), 3), "left": None if left is None else round(left, 3)}
        _write_event(kind, **counts, **seconds, **more)


class _Bar:
    """The last line of a terminal: the innermost of what goes on. It is taken off before anything else is written, and
    drawn again when something advances, and every second, so that also in a long step its time goes on."""

    def __init__(self) -> None:
        self.may_be_drawn = True
        self.of_another = False  # another process draws it on this terminal
        self._shown, self._drawn = False, 0.0
        self._progress: Progress | None = None  # what it shows, until that has ended
        self._left: list[tuple[str, float]] = []  # `all_left` of it, when it advanced
        self._advanced = 0.0  # when that was
        self.renew_threads()

    def renew_threads(self) -> None:
        """In a process that was forked, which has none: neither the one that held the lock, nor the one that ticks."""
        self._lock = threading.RLock()  # workers' threads write, too
        self._ticks = False

    @contextlib.contextmanager
    def taken_off(self) -> Iterator[None]:
        """Inside the context the terminal is at the beginning of a line, and nothing is drawn."""
        with self._lock:
            if self._shown or (self.of_another and self.may_be_drawn):
                self._shown, self._drawn = False, 0.0
                self._write("\r" + _TO_THE_END)
            yield

    def draw(self, progress: Progress, at_once: bool = False) -> None:
        """Draw it, ten times a second at most, but for `at_once`."""
        while progress.part is not None:
            progress = progress.part
        with self._lock:
            if self.may_be_drawn and (at_once or progress.now() - self._drawn >= DRAWING_SECONDS):
                self._progress, self._left = progress, progress.all_left()
                self._drawn = self._advanced = progress.now()
                self._show()
                if not self._ticks:
                    self._ticks = True
                    threading.Thread(target=self._tick, daemon=True).start()

    def end(self) -> None:
        """What it shows has ended, or another part of it may go on."""
        with self.taken_off():
            self._progress = None

    def _tick(self) -> None:
        # A signal that comes to this thread would not end what the main one waits for.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            time.sleep(TICK_SECONDS)
            with self._lock:
                if self._progress is None:
                    self._ticks = False
                    return
                if self.may_be_drawn:
                    self._show()

    def _show(self) -> None:
        assert self._progress is not None
        self._shown = True
        left = _left_in_words(self._left, round(self._progress.now() - self._advanced))
        self._write("\r" + visible(_bar_line(self._progress, left, _columns() - 1)) + _TO_THE_END)

    def _write(self, text: str) -> None:
        # Not by the stream, whose lock a process that is forked at this moment would find taken for ever.
        with contextlib.suppress(OSError):  # a terminal that has gone is told by what else is written
            os.write(2, text.encode(sys.stderr.encoding or "utf-8", "replace"))


_bar = _Bar()
os.register_at_fork(after_in_child=_bar.renew_threads)


def _columns() -> int:
    """The width of the terminal that standard error is."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


def _bar_line(progress: Progress, left: str, width: int) -> str:
    """Such as: train ━━━━━─────────────── 30/120 in 0m23s  1m10s left  epoch 0.75  loss 0.4312"""
    count = f"{progress.done:,}/{progress.total:,}" if progress.total else counted(progress.done, progress.unit)
    count += f" in {duration(progress.seconds())}"
    told = "  ".join(filter(None, (count, left, progress.about or progress.rate())))
    if not progress.total:
        return shortened(f"{progress.what}  {told}", width)
    # Terminals of these languages may give box-drawing signs two columns: the line would break, and stay.
    narrow = (sys.stderr.encoding or "").lower().startswith("utf") and not locale_name().startswith(("zh", "ja", "ko"))
    full, empty = "━─" if narrow else "=-"
    columns = min(BAR_COLUMNS, max(5, width - display_width(f"{progress.what}  {told}")))
    done = round(columns * min(1.0, progress.done / progress.total))
    return shortened(f"{progress.what} {full * done}{empty * (columns - done)} {told}", width)


class BarSink(ProgressSink):
    """A bar on a terminal. `lines`: at its end a line stays, which says how many there were and how long that took."""

    def __init__(self, lines: bool):
        self._lines = lines

    def start(self, progress: Progress) -> None:
        _bar.draw(progress, at_once=True)

    def advance(self, progress: Progress, figures: Mapping[str, Any]) -> None:
        _bar.draw(progress)

    def report(self, progress: Progress, line: str, lasting: bool, figures: Mapping[str, Any]) -> None:
        if lasting:
            note(line)
        _bar.draw(progress)

    def finish(self, progress: Progress) -> None:
        _bar.draw(progress, at_once=True)
        if self._lines:
            LineSink(sys.stderr).finish(progress)

    def close(self) -> None:
        _bar.end()


_going_on: list[Progress] = []  # the innermost last


@contextlib.contextmanager
def progress(
    total: int | None,
    what: str,
    unit: str = "rows",
    *,
    begun: int = 0,
    left: Callable[[int], float | None] | None = None,
    lines: bool = True,
) -> Iterator[Progress]:
    """Show the progress of `what` on stderr: a bar on a terminal, else lines, or events with NLPCTL_PROGRESS=json.

    `total`: the number of `unit` to expect, None if unknown. `begun`, `left`: as of `Progress`. `lines`: False if a log
    gets none but those that are reported. Ranks other than 0 show nothing. Within another one, it is a part of that.
    """
    sink = ProgressSink()
    if is_main_rank():
        log = LineSink(sys.stderr) if lines else ProgressSink()
        sink = EventSink() if json_lines() else BarSink(lines) if _draws() else log
    within = _going_on[-1] if _going_on else None
    counting = Progress(what, total, unit, sink, begun=begun, left=left, within=within)
    _going_on.append(counting)
    try:
        yield counting
        counting.finish()
    finally:
        _going_on.remove(counting)
        sink.close()
        if within is not None:
            within.part = None
            within.advance(0)


def doing(what: str) -> None:
    """What goes on now, for the bar of the innermost progress."""
    if _going_on:
        _going_on[-1].advance(0, what)


@contextlib.contextmanager
def part_of(what: str, after: float) -> Iterator[None]:
    """Inside the context what goes on is a part of `what`, which another process shows, and which then takes `after`
    seconds more."""

    def left(done: int) -> float | None:
        own = None if whole.part is None else whole.part.left()
        return None if own is None else own + after

    whole = Progress(what, None, "steps", ProgressSink(), left=left)
    _going_on.append(whole)
    try:
        yield
    finally:
        _going_on.remove(whole)


def _draws() -> bool:
    """Whether this process draws a bar."""
    return _can_draw() and not _bar.of_another


def _can_draw() -> bool:
    """Whether standard error is a terminal on which a line can be drawn anew, and all that is written comes above it:
    not where a program of the user's own calls nlpctl."""
    return isinstance(sys.stderr, _AboveTheBar) and os.environ.get("TERM") != "dumb"


def duration(seconds: float) -> str:
    """A time in words: 0m40s, 1h02m."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{rest:02d}s"


def display(path: str | Path) -> str:
    """`path` as a message shows it: relative to the current directory when it lies below."""
    absolute, here = os.path.abspath(path), os.getcwd()
    return os.path.relpath(absolute, here) if absolute.startswith(here + os.sep) else absolute


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


def wrapped(text: str, width: int) -> list[str]:
    """`text` as lines of at most `width` columns, as textwrap.wrap; one in Chinese may also end between its characters,
    but not before a sign that closes."""
    if text.isascii():
        return textwrap.wrap(text, width)
    lines = [""]
    for piece in _UNBROKEN.findall(" ".join(text.split())):
        if lines[-1] and display_width((lines[-1] + piece).rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return [line.rstrip() for line in lines]


def _write_message(kind: str, message: str, line: str) -> None:
    """Write `line`, or where events are wanted one of this kind with `message`."""
    if json_lines():
        _write_event(kind, message=message)
    else:
        _line(line)


def _write_event(kind: str, **content: Any) -> None:
    _line(_event(kind, **content))


def _event(kind: str, **content: Any) -> str:
    event = {"event": kind, "time": round(time.time(), 3), **content}
    return visible(json.dumps(json_ready(event), ensure_ascii=False, allow_nan=False))


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
        with _bar.taken_off():
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
    except OSError as error:
        if not _dropping:
            raise
        if error.errno in (errno.EPIPE, errno.EIO):  # the reader has gone: the buffer would fail at the end again
            sys.stderr = open(os.devnull, "w", encoding="utf-8")


def _paint(text: str, colour: str) -> str:
    return f"{colour}{text}{_RESET}" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else text
