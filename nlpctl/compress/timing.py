"""How candidates are timed, and how their speeds become one scale. Imports neither Paddle nor NumPy.

1. `time_against_reference`: when a candidate is scored, it takes turns with the uncompressed network. Other load on the
   machine then slows both, and distorts their ratio little.
2. `time_last_round`: at the end the best rows of the table take turns with each other, since the comparisons of step 1
   were made at different times and under different load. Its rounds are stored one by one; an interrupted command
   continues with the next.
3. `relative_speeds`: every row as a multiple of one baseline per batch size, the fastest engine and precision of the
   uncompressed network that decides as it does. So a speed-up is what compression adds to what the engines give anyway.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import TYPE_CHECKING, ClassVar, TypeVar

from nlpctl import console
from nlpctl.compress.scores import CandidateScore, Speed, Stored, Timed, stored_under
from nlpctl.documents import left_out
from nlpctl.errors import Interrupted, NlpctlError
from nlpctl.names import counted
from nlpctl.report.model import MB
from nlpctl.runtime.machine import memory_sizes, physical_cores

if TYPE_CHECKING:
    from nlpctl.inference.timed_process import TimedProcess

T = TypeVar("T")

TOLERANCE = 1.02  # a smaller relative gain counts as none

# Of the last round:
MIN_ROUNDS, MAX_ROUNDS = 7, 12  # rounds; more than the fewest only while something becomes faster
MAX_SECONDS = 120.0  # no round beyond the fewest starts after them
MIN_PASS = 0.2  # seconds of a row in each round: one pass of a small network takes 50 ms, as wide as its jitter
STARTUP_SECONDS, WITH_PADDLE = 1.0, 2.0  # seconds to start a process, and one that imports Paddle without PaddleNLP
DIGITS = 7  # of the stored seconds
MEMORY_SHARE = 0.8  # of the available memory may be used


# -- 1. A candidate in turns with the reference. ---------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """How candidates are timed: `rows` of dev at each batch size, in rounds that alternate with the reference, after
    one warm-up round. Timing ends when two rounds brought no faster time, or after `rounds` rounds; no round starts
    after `seconds`."""

    batch_sizes: tuple[int, ...] = (1, 32)
    rows: int = 128
    rounds: int = 12
    seconds: float = 30.0


def time_against_reference(process: TimedProcess, reference: TimedProcess, timing: Timing) -> tuple[Speed, ...]:
    """The speed of an open candidate relative to the open reference. The reference alone is timed once."""
    both = (reference,) if process is reference else (reference, process)
    rounds: dict[int, list[tuple[list[float], list[float]]]] = {size: [] for size in timing.batch_sizes}
    history: list[list[float]] = []
    started = time.monotonic()
    for number in range(timing.rounds + 1):
        for size in timing.batch_sizes:
            seconds = [each.seconds(size) for each in both]
            if number:  # round 0 warms up
                rounds[size].append((seconds[0], seconds[-1]))
        if number:
            history.append([sum(batches) for turns in rounds.values() for batches in fastest_batches(turns)])
            if is_settled(history) or time.monotonic() - started > timing.seconds:
                break
    return tuple(speed_from_rounds(size, turns) for size, turns in rounds.items())


def fastest_batches(turns: Sequence[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    """The fastest time of every batch, for the reference and the candidate. `turns`: the times of each round."""
    reference, candidate = (
        [min(seconds) for seconds in zip(*rounds, strict=True)] for rounds in zip(*turns, strict=True)
    )
    return reference, candidate


def is_settled(history: Sequence[Sequence[float]]) -> bool:
    """Whether the last two rounds brought no notably faster time. `history`: the fastest times after each round."""
    return len(history) > 2 and all(
        before <= now * TOLERANCE for before, now in zip(history[-3], history[-1], strict=True)
    )


def speed_from_rounds(size: int, turns: Sequence[tuple[list[float], list[float]]]) -> Speed:
    """The speed at batch size `size`. `turns`: per round the seconds of each batch of the reference, and of the
    candidate."""
    reference, candidate = fastest_batches(turns)
    p50 = median(candidate)
    return Speed(size, size / fmean(candidate), 1000 * p50, sum(reference) / sum(candidate), median(reference) / p50)


# -- 2. The last round: the best rows in turns with each other. ------------------------------------

RoundSeconds = Mapping[str, Mapping[int, Sequence[float]]]  # by name of the row and batch size: seconds of every batch


@dataclass(frozen=True)
class LastRound:
    """The rounds in which the best rows took turns, each row once in a round.

    `failed`: the names of rows that failed, which take part in no further round. `timed`: the last of the rounds; None:
    by an earlier version.
    """

    rounds: tuple[RoundSeconds, ...]
    failed: tuple[str, ...] = ()
    timed: Timed | None = None

    def fastest(self, name: str, size: int) -> list[float]:
        """The fastest time of every batch; [] if the row did not take part."""
        turns = [round[name][size] for round in self.rounds if name in round]
        return [min(seconds) for seconds in zip(*turns, strict=True)]

    def ratios(self, one: str, other: str, size: int) -> list[float]:
        """By how much `one` was faster than `other` in each round of both."""
        both = [round for round in self.rounds if one in round and other in round]
        return [sum(round[other][size]) / sum(round[one][size]) for round in both]


@dataclass(frozen=True)
class Finalists:
    """The rows of a last round: `uncompressed`, the network in its engines and precisions, take part in every round,
    `others` in groups, if there is not enough memory for all processes at once."""

    uncompressed: tuple[CandidateScore, ...]
    others: tuple[CandidateScore, ...]

    @property
    def rows(self) -> tuple[CandidateScore, ...]:
        return (*self.uncompressed, *self.others)

    def seconds(self, samples: int, rounds: int = MIN_ROUNDS) -> float:
        """The expected time of so many rounds."""
        return sum(turns_of_a_row(row, samples, rounds) for row in self.rows)


def turns_of_a_row(row: CandidateScore, samples: int, rounds: int = MIN_ROUNDS) -> float:
    """The seconds of a row in so many rounds; `samples`: the number of timed inputs, repeated up to one batch."""
    passes = sum(max(MIN_PASS, max(samples, each.batch_size) / each.samples_per_second) for each in row.speeds)
    start = STARTUP_SECONDS if row.engine == "onnxruntime" else WITH_PADDLE
    return (start + row.load_seconds) / physical_cores() + (rounds + 1) * passes  # all processes begin at once


def usual_seconds(turns: Callable[[int], float]) -> float:
    """The time that a last round usually takes: half-way between the fewest rounds and as many as MAX_SECONDS allow,
    since one of the rows mostly becomes faster for a while. `turns`: the seconds of a number of rounds."""
    fewest = turns(MIN_ROUNDS)
    return (fewest + max(fewest, min(turns(MAX_ROUNDS), MAX_SECONDS))) / 2


def choose_finalists(
    rows: Sequence[CandidateScore], reference: CandidateScore, allowed: Sequence[CandidateScore]
) -> Finalists:
    """The rows of the last round, in the order of `rows`, but the reference first.

    These are the uncompressed network in every engine and precision, the fastest of every candidate at each batch size
    (of its rows in `allowed`, those whose loss is, where one is), and the fp32 graphs of their networks in the same
    engines, to tell what each part gives.
    """
    chosen = [row for row in rows if row.candidate == reference.candidate]
    for candidate in dict.fromkeys(row.candidate for row in rows):
        of_candidate = [row for row in rows if row.candidate == candidate]
        good = [row for row in of_candidate if row in allowed] or of_candidate
        for size in (speed.batch_size for speed in reference.speeds):
            best = max(good, key=lambda row: row.speed(size).times)
            chosen += [best, _find_row(rows, network_of(best), best.engine, reference.precision) or best]
    names = {row.name for row in chosen}
    ordered = [reference, *(row for row in rows if row.name in names and row != reference)]
    return Finalists(
        tuple(row for row in ordered if row.candidate == reference.candidate),
        tuple(row for row in ordered if row.candidate != reference.candidate),
    )


def time_last_round(
    finalists: Finalists,
    open_process: Callable[[CandidateScore], TimedProcess],
    file: Path,
    key: str,
    stored: LastRound | None,
) -> LastRound:
    """Time the rows in turns, and store the rounds in `file` under `key`; `stored`: the rounds that are there already.

    A row that fails is left out, with a warning, also when the command is repeated; RunFailed if one of the
    uncompressed network fails.
    """
    last = stored or LastRound(())
    able = replace(finalists, others=tuple(row for row in finalists.others if row.name not in last.failed))
    for group in groups(able, available_mb()):
        done = sum(1 for round in last.rounds if all(row.name in round for row in group))
        if done < MIN_ROUNDS:
            last = _time_group(finalists, group, open_process, file, key, last, done)
    return last


def is_complete(finalists: Finalists, last: LastRound | None) -> bool:
    """Whether every row took part in enough rounds, or failed."""
    if last is None:
        return False
    able = [row for row in finalists.rows if row.name not in last.failed]
    return all(sum(1 for round in last.rounds if row.name in round) >= MIN_ROUNDS for row in able)


def groups(finalists: Finalists, available: float) -> list[tuple[CandidateScore, ...]]:
    """The rows that are timed together: all, if their processes fit into `available` MB, and the uncompressed ones in
    each."""
    rows_of_groups, left = [list(finalists.uncompressed)], 0.0
    for row in finalists.others:
        if len(rows_of_groups[-1]) == len(finalists.uncompressed):
            left = available - sum(each.peak_mb for each in finalists.uncompressed)
        elif row.peak_mb > left:
            rows_of_groups.append(list(finalists.uncompressed))
            left = available - sum(each.peak_mb for each in finalists.uncompressed)
        rows_of_groups[-1].append(row)
        left -= row.peak_mb
    return [tuple(rows) for rows in rows_of_groups]


def available_mb() -> float:
    """The MB that processes may take."""
    sizes = memory_sizes()
    return float("inf") if sizes is None else MEMORY_SHARE * sizes["MemAvailable"] / MB


def _time_group(
    finalists: Finalists,
    group: Sequence[CandidateScore],
    open_process: Callable[[CandidateScore], TimedProcess],
    file: Path,
    key: str,
    last: LastRound,
    done: int,
) -> LastRound:
    """Open a process for each row of `group`, and time rounds until nothing becomes faster; `done` are there."""
    console.note(f"the last round: {counted(len(group), 'rows')} of the table timed in turns")
    sizes, timed = tuple(speed.batch_size for speed in group[0].speeds), Timed.now()
    with ExitStack() as stack:
        # All begin at once, since each imports for seconds. Nothing is timed before all are open.
        begun = [(row, stack.enter_context(open_process(row))) for row in group]
        processes: dict[str, TimedProcess] = {}
        for row, process in begun:
            if _result_or_left_out(row, finalists, process.open) is not None:
                processes[row.name] = process
        last = replace(last, timed=timed)
        history: list[list[float]] = []
        started = time.monotonic()
        for number in range(MAX_ROUNDS - done + 1):
            turn = f"pass {done + number}, at most {MAX_ROUNDS}" if number else "warming up"
            console.doing(f"the last round: {turn}")
            round = _time_round(finalists, group, processes, sizes, backwards=bool(number % 2))
            if not number:  # engines prepare their kernels
                continue
            failed = [row.name for row in group if row.name not in processes and row.name not in last.failed]
            last = replace(last, rounds=(*last.rounds, round), failed=(*last.failed, *failed))
            write_last_round(file, key, last)
            history.append([sum(last.fastest(name, size)) for name in processes for size in sizes])
            late = time.monotonic() - started > MAX_SECONDS
            # A row that failed makes the lists of times shorter; only those of the same rows can be compared.
            if done + number >= MIN_ROUNDS and (
                late or is_settled([each for each in history if len(each) == len(history[-1])])
            ):
                break
    return last


def _time_round(
    finalists: Finalists,
    group: Sequence[CandidateScore],
    processes: dict[str, TimedProcess],
    sizes: Sequence[int],
    backwards: bool,
) -> RoundSeconds:
    """One pass of every row at every batch size; every other round goes backwards, so that no row always follows the
    same one. A row that fails is dropped from `processes`."""
    seconds_by_row: dict[str, dict[int, list[float]]] = {row.name: {} for row in group if row.name in processes}
    for size in sizes:
        for row in reversed(group) if backwards else group:
            process = processes.get(row.name)
            if process is None:
                continue
            seconds = _result_or_left_out(row, finalists, functools.partial(process.seconds, size, MIN_PASS))
            if seconds is None:
                del processes[row.name], seconds_by_row[row.name]
            else:
                seconds_by_row[row.name][size] = [round(each, DIGITS) for each in seconds]
    return seconds_by_row


def _result_or_left_out(row: CandidateScore, finalists: Finalists, ask: Callable[[], T]) -> T | None:
    """The answer of a row's process; None, with a warning, if it fails. The uncompressed network must not fail."""
    try:
        return ask()
    except NlpctlError as error:
        if row in finalists.uncompressed or isinstance(error, Interrupted):
            raise
        console.warn(f"{row.name} is left out of the last round: {error}")
        return None


@dataclass(frozen=True)
class StoredRounds(Stored):
    """last-round.json of `nlpctl compress`: a LastRound. `key`: of the rows and how they are timed."""

    FORMAT: ClassVar[int | None] = 1

    rounds: tuple[RoundSeconds, ...]
    failed: tuple[str, ...] = ()
    timed: Timed | None = left_out()


def write_last_round(file: Path, key: str, last: LastRound) -> None:
    """Store the rounds so far. `key` identifies the rows and how they are timed."""
    StoredRounds(key, last.rounds, last.failed, last.timed).save(file)


def read_last_round(file: Path, key: str) -> LastRound | None:
    """The stored rounds; None if there are none, the file is damaged, or its key differs."""
    stored = stored_under(key, StoredRounds, file)
    return None if stored is None else LastRound(stored.rounds, stored.failed, stored.timed)


# -- 3. All speeds on one scale. -------------------------------------------------------------------


@dataclass(frozen=True)
class RelativeSpeed:
    """The speed of a row at one batch size.

    `times`: the multiple of the baseline's samples per second, `p50_times` of its latency; `low` and `high`: the
    quartiles of `times` over the rounds of the last round, None for a row that did not take part. `whole`: the multiple
    of the uncompressed network in the reference's engine and precision, the product of `engine` (that network in this
    row's engine), `compression` (the row's network, if it is another one, in the same precision) and `precision` (what
    is left: 8 bits or bf16); these are None if a row is missing.
    """

    batch_size: int
    samples_per_second: float
    p50_ms: float
    times: float
    p50_times: float
    low: float | None
    high: float | None
    whole: float
    engine: float | None
    precision: float | None
    compression: float | None


@dataclass(frozen=True)
class RelativeSpeeds:
    """The speeds of all rows; `baselines`: the name of the row that is 1, by batch size. `timed`: the last round, or
    without one the row that was timed last; None: by an earlier version."""

    baselines: Mapping[int, str]
    rows: Mapping[str, Mapping[int, RelativeSpeed]]
    rounds: int
    timed: Timed | None

    def speed(self, row: CandidateScore, batch_size: int) -> RelativeSpeed:
        return self.rows[row.name][batch_size]


@dataclass(frozen=True)
class _Cost:
    """Seconds of a pass over all samples, divided by their number, and the median time of a batch."""

    per_sample: float
    p50_ms: float


def relative_speeds(
    rows: Sequence[CandidateScore], reference: CandidateScore, min_agreement: float, last: LastRound | None = None
) -> RelativeSpeeds:
    """The speeds of `rows`, from the last round, else from each row's own rounds with the reference.

    `reference`: the uncompressed network in fp32, one of the rows. `min_agreement`: the least share of decisions, 0 to
    1, in which a baseline agrees with it.
    """
    baselines, speeds = {}, {row.name: dict[int, RelativeSpeed]() for row in rows}
    for size in (speed.batch_size for speed in reference.speeds):
        costs = _costs(rows, reference, size, last)
        same = [row for row in rows if row.candidate == reference.candidate and row.agreement >= min_agreement]
        baseline = min(same, key=lambda row: costs[row.name].per_sample)
        baselines[size] = baseline.name
        for row in rows:
            speeds[row.name][size] = _relative_speed(row, rows, reference, baseline, size, costs, last)
    if last is not None:
        return RelativeSpeeds(baselines, speeds, len(last.rounds), last.timed)
    latest = max((row.timed for row in rows if row.timed is not None), key=attrgetter("date"), default=None)
    return RelativeSpeeds(baselines, speeds, 0, latest)


def _costs(
    rows: Iterable[CandidateScore], reference: CandidateScore, size: int, last: LastRound | None
) -> dict[str, _Cost]:
    """The cost of every row: of one that took part in the last round by the median of its ratios to the reference
    there, of another by the ratio that it had in its own rounds."""
    speed = reference.speed(size)
    start = _Cost(1 / speed.samples_per_second, speed.p50_ms)
    fastest = [] if last is None else last.fastest(reference.name, size)
    samples = size * len(fastest)
    if fastest:
        start = _Cost(sum(fastest) / samples, 1000 * median(fastest))
    costs = {}
    for row in rows:
        costs[row.name] = _Cost(start.per_sample / row.speed(size).times, start.p50_ms / row.speed(size).p50_times)
        if last is not None and (ratios := last.ratios(row.name, reference.name, size)):
            per_sample, fastest = start.per_sample / median(ratios), last.fastest(row.name, size)
            # The median batch as a share of all batches, and not its own time: the fastest batches may be of other
            # rounds than the ratio, and would tell another speed under load.
            share = median(fastest) / sum(fastest)
            costs[row.name] = _Cost(per_sample, 1000 * share * per_sample * samples)
    return costs


def _relative_speed(
    row: CandidateScore,
    rows: Sequence[CandidateScore],
    reference: CandidateScore,
    baseline: CandidateScore,
    size: int,
    costs: Mapping[str, _Cost],
    last: LastRound | None,
) -> RelativeSpeed:
    cost = costs[row.name]
    times = costs[baseline.name].per_sample / cost.per_sample
    ratios = [] if last is None else last.ratios(row.name, baseline.name, size)
    low = high = None
    if len(ratios) > 1:
        lower, _, upper = quantiles(ratios, n=4, method="inclusive")
        low, high = min(lower, times), max(upper, times)
    # From the reference to the row in three steps, each of which changes one thing: engine, network, precision.
    in_engine = _find_row(rows, reference.candidate, row.engine, reference.precision)
    network = _find_row(rows, network_of(row), row.engine, reference.precision)
    parts = [costs[each.name].per_sample for each in (reference, in_engine, network, row) if each is not None]
    engine, compression, precision = (
        (before / after for before, after in zip(parts, parts[1:], strict=False))
        if len(parts) == 4
        else (None, None, None)
    )
    return RelativeSpeed(
        batch_size=size,
        samples_per_second=1 / cost.per_sample,
        p50_ms=cost.p50_ms,
        times=times,
        p50_times=costs[baseline.name].p50_ms / cost.p50_ms,
        low=low,
        high=high,
        whole=costs[reference.name].per_sample / cost.per_sample,
        engine=engine,
        precision=precision,
        compression=compression,
    )


def network_of(row: CandidateScore) -> str:
    """The candidate that holds the fp32 graphs of a row's network."""
    return row.candidate.partition("+")[0]


def _find_row(rows: Iterable[CandidateScore], candidate: str, engine: str, precision: str) -> CandidateScore | None:
    wanted = (candidate, engine, precision)
    return next((row for row in rows if (row.candidate, row.engine, row.precision) == wanted), None)
