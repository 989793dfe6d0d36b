"""Two engines timed in alternating rounds: a speed-up that other load on the machine distorts little."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from nlpctl import console
from nlpctl.compress.relative_speed import LastRound, Seconds, finalists, write_last_round
from nlpctl.compress.scores import Row, Speed
from nlpctl.errors import Interrupted, NlpctlError
from nlpctl.inference.timed_process import TimedProcess
from nlpctl.names import counted
from nlpctl.runtime.machine import memory_sizes

SETTLED = 1.02  # a smaller relative gain counts as none


@dataclass(frozen=True)
class Timing:
    """How candidates are timed: `rows` of dev at each batch size, in rounds that alternate with the reference, after
    one warm-up round. Timing ends when two rounds brought no faster time, or after `rounds` rounds; no round starts
    after `seconds`."""

    batch_sizes: tuple[int, ...] = (1, 32)
    rows: int = 128
    rounds: int = 12
    seconds: float = 30.0


def timed_in_turns(process: TimedProcess, reference: TimedProcess, timing: Timing) -> tuple[Speed, ...]:
    """The speed of an open candidate relative to the open reference. The reference alone is timed once."""
    both = (reference,) if process is reference else (reference, process)
    rounds: dict[int, list[tuple[list[float], list[float]]]] = {size: [] for size in timing.batch_sizes}
    history: list[list[float]] = []
    started = time.monotonic()
    for round in range(timing.rounds + 1):
        for size in timing.batch_sizes:
            seconds = [each.seconds(size) for each in both]
            if round:
                rounds[size].append((seconds[0], seconds[-1]))
        if round:
            history.append([sum(batches) for turns in rounds.values() for batches in fastest(turns)])
            if is_settled(history) or time.monotonic() - started > timing.seconds:
                break
    return tuple(speed_of(size, turns, process.opened.features) for size, turns in rounds.items())


def fastest(turns: Sequence[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    """The fastest time of every batch, for the reference and the candidate. `turns`: the times of each round."""
    theirs, mine = ([min(seconds) for seconds in zip(*rounds, strict=True)] for rounds in zip(*turns, strict=True))
    return theirs, mine


def is_settled(history: Sequence[Sequence[float]]) -> bool:
    """Whether the last two rounds brought no notably faster time. `history`: the fastest times after each round."""
    return len(history) > 2 and all(
        before <= now * SETTLED for before, now in zip(history[-3], history[-1], strict=True)
    )


def speed_of(size: int, turns: Sequence[tuple[list[float], list[float]]], features: int) -> Speed:
    """`turns`: per round the seconds of each batch of the reference, and of the candidate."""
    theirs, mine = fastest(turns)
    p50 = median(mine)
    return Speed(size, features / sum(mine), 1000 * p50, sum(theirs) / sum(mine), median(theirs) / p50)


# The last round of a compression: its best rows timed in turns, so that one table compares them with each other.
#
# Each row was timed before in turns with the reference alone, at another time and under another load. Here all take
# part in every round. The rounds are stored one by one, and an interrupted command continues with the next.


T = TypeVar("T")

FEWEST, MOST = 7, 12  # rounds; more only while something becomes faster
SECONDS = 120.0  # no round beyond the fewest starts after them
TURN = 0.2  # seconds of a row in each round, at least: one pass of a small network takes 50 ms, as wide as its jitter
STARTING = 6.0  # seconds to start a process and import Paddle
DIGITS = 7  # of the stored seconds
SHARE = 0.8  # of the available memory may be used
MB = 1024 * 1024


@dataclass(frozen=True)
class Field:
    """The rows of a last round: `always` take part in every round (the uncompressed network), `others` in groups, if
    there is not enough memory for all processes at once."""

    always: tuple[Row, ...]
    others: tuple[Row, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*self.always, *self.others)

    def seconds(self, samples: int) -> float:
        """The expected time of the fewest rounds."""
        passes = sum(max(TURN, samples / speed.samples_per_second) for row in self.rows for speed in row.speeds)
        return sum(STARTING + row.load_seconds for row in self.rows) + (FEWEST + 1) * passes


def field_of(rows: Sequence[Row], reference: Row, allowed: Sequence[Row]) -> Field:
    """The rows of the table that take part (see `finalists`), the reference first."""
    chosen = [reference, *(row for row in finalists(rows, reference, allowed) if row != reference)]
    same = tuple(row for row in chosen if row.candidate == reference.candidate)
    return Field(same, tuple(row for row in chosen if row not in same))


def play(
    field: Field, opened: Callable[[Row], TimedProcess], file: Path, key: str, kept: LastRound | None
) -> LastRound:
    """Time the rows in turns, and store the rounds in `file` under `key`; `kept`: the rounds that are stored already.

    A row that fails is left out, with a warning, also when the command is repeated; RunFailed if one of the
    uncompressed network fails.
    """
    last = kept or LastRound(0, ())
    able = replace(field, others=tuple(row for row in field.others if row.name not in last.failed))
    for group in groups(able, room_mb()):
        done = sum(1 for round in last.rounds if all(row.name in round for row in group))
        if done < FEWEST:
            last = _rounds(field, group, opened, file, key, last, done)
    return last


def is_complete(field: Field, last: LastRound | None) -> bool:
    """Whether every row took part in enough rounds, or failed."""
    if last is None:
        return False
    able = [row for row in field.rows if row.name not in last.failed]
    return all(sum(1 for round in last.rounds if row.name in round) >= FEWEST for row in able)


def groups(field: Field, room: float) -> list[tuple[Row, ...]]:
    """The rows that are timed together: all, if their processes fit into `room` MB, and the uncompressed ones in
    each."""
    found, left = [list(field.always)], 0.0
    for row in field.others:
        if len(found[-1]) == len(field.always):
            left = room - sum(each.peak_mb for each in field.always)
        elif row.peak_mb > left:
            found.append(list(field.always))
            left = room - sum(each.peak_mb for each in field.always)
        found[-1].append(row)
        left -= row.peak_mb
    return [tuple(rows) for rows in found]


def room_mb() -> float:
    """The MB that processes may take."""
    sizes = memory_sizes()
    return float("inf") if sizes is None else SHARE * sizes["MemAvailable"] / MB


def _rounds(
    field: Field,
    group: Sequence[Row],
    opened: Callable[[Row], TimedProcess],
    file: Path,
    key: str,
    last: LastRound,
    done: int,
) -> LastRound:
    console.note(f"the last round: {counted(len(group), 'rows')} of the table timed in turns")
    sizes = tuple(speed.batch_size for speed in group[0].speeds)
    with ExitStack() as stack:
        processes: dict[str, TimedProcess] = {}
        for row in group:
            process = stack.enter_context(opened(row))
            if _tried(row, field, process.open) is not None:
                processes[row.name] = process
        first = processes[field.always[0].name].opened
        assert first is not None
        last = replace(last, samples=first.features)
        history: list[list[float]] = []
        started = time.monotonic()
        for number in range(MOST - done + 1):
            round = _round(field, group, processes, sizes, backwards=bool(number % 2))
            if not number:  # engines prepare their kernels
                continue
            failed = [row.name for row in group if row.name not in processes and row.name not in last.failed]
            last = replace(last, rounds=(*last.rounds, round), failed=(*last.failed, *failed))
            write_last_round(file, key, last)
            history.append([sum(last.fastest(name, size)) for name in processes for size in sizes])
            late = time.monotonic() - started > SECONDS
            if done + number >= FEWEST and (
                late or is_settled([each for each in history if len(each) == len(history[-1])])
            ):
                break
    return last


def _round(
    field: Field, group: Sequence[Row], processes: dict[str, TimedProcess], sizes: Sequence[int], backwards: bool
) -> Seconds:
    """One pass of every row at every batch size; every other round goes backwards. A row that fails is dropped."""
    found: dict[str, dict[int, list[float]]] = {row.name: {} for row in group if row.name in processes}
    for size in sizes:
        for row in reversed(group) if backwards else group:
            process = processes.get(row.name)
            seconds = None if process is None else _tried(row, field, functools.partial(process.seconds, size, TURN))
            if seconds is None:
                processes.pop(row.name, None)
                found.pop(row.name, None)
            else:
                found[row.name][size] = [round(each, DIGITS) for each in seconds]
    return found


def _tried(row: Row, field: Field, ask: Callable[[], T]) -> T | None:
    """The answer of a row's process; None, with a warning, if it fails. The uncompressed network must not fail."""
    try:
        return ask()
    except NlpctlError as error:
        if row in field.always or isinstance(error, Interrupted):
            raise
        console.warn(f"{row.name} is left out of the last round: {error}")
        return None
