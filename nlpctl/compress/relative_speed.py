"""The speeds of a table on one scale, and where they come from. Imports no Paddle.

Every row is told as a multiple of one baseline per batch size: the fastest engine and precision of the uncompressed
network that decides as it does. So a speed-up is what compression adds to what the engines give anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import ClassVar

from nlpctl.compress.scores import Row
from nlpctl.documents import Document

Seconds = Mapping[str, Mapping[int, Sequence[float]]]  # by name of the row and batch size: seconds of every batch


@dataclass(frozen=True)
class LastRound:
    """The rounds in which the best rows took turns, each row once in a round. `samples`: the number of timed inputs.

    `failed`: the names of rows that failed, which take part in no further round.
    """

    samples: int
    rounds: tuple[Seconds, ...]
    failed: tuple[str, ...] = ()

    def turns(self, name: str, size: int) -> list[Sequence[float]]:
        """The seconds of every batch of a row, in each round that it took part in."""
        return [round[name][size] for round in self.rounds if name in round]

    def fastest(self, name: str, size: int) -> list[float]:
        """The fastest time of every batch; [] if the row did not take part."""
        return [min(seconds) for seconds in zip(*self.turns(name, size), strict=True)]

    def ratios(self, one: str, other: str, size: int) -> list[float]:
        """By how much `one` was faster than `other` in each round of both."""
        both = [round for round in self.rounds if one in round and other in round]
        return [sum(round[other][size]) / sum(round[one][size]) for round in both]


@dataclass(frozen=True)
class StoredRounds(Document):
    """last-round.json of `nlpctl compress`: a LastRound, so that the same command need not time it again. `key`: of the
    rows and how they are timed."""

    FORMAT: ClassVar[int | None] = 1

    key: str
    samples: int
    rounds: tuple[Seconds, ...]
    failed: tuple[str, ...] = ()


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
    """The speeds of all rows; `baselines`: the name of the row that is 1, by batch size."""

    baselines: Mapping[int, str]
    rows: Mapping[str, Mapping[int, RelativeSpeed]]
    rounds: int

    def of(self, row: Row, batch_size: int) -> RelativeSpeed:
        return self.rows[row.name][batch_size]


@dataclass(frozen=True)
class _Cost:
    """Seconds of a pass over all samples, divided by their number, and the median time of a batch."""

    per_sample: float
    p50_ms: float


def paces_of(rows: Sequence[Row], reference: Row, alike: float, last: LastRound | None = None) -> RelativeSpeeds:
    """The speeds of `rows`, from the last round, else from each row's own rounds with the reference.

    `reference`: the uncompressed network in fp32, one of the rows. `alike`: the least share of equal decisions of a
    baseline.
    """
    baselines, found = {}, {row.name: dict[int, RelativeSpeed]() for row in rows}
    for size in (speed.batch_size for speed in reference.speeds):
        costs = _costs(rows, reference, size, last)
        same = [row for row in rows if row.candidate == reference.candidate and row.agreement >= alike]
        baseline = min(same, key=lambda row: costs[row.name].per_sample)
        baselines[size] = baseline.name
        for row in rows:
            found[row.name][size] = _pace(row, rows, reference, baseline, size, costs, last)
    return RelativeSpeeds(baselines, found, 0 if last is None else len(last.rounds))


def _costs(rows: Iterable[Row], reference: Row, size: int, last: LastRound | None) -> dict[str, _Cost]:
    """The cost of every row: of one that took part in the last round by the median of its ratios to the reference
    there, of another by the ratio that it had in its own rounds."""
    speed = reference.speed(size)
    start = _Cost(1 / speed.samples_per_second, speed.p50_ms)
    if last is not None and (fastest := last.fastest(reference.name, size)):
        start = _Cost(sum(fastest) / last.samples, 1000 * median(fastest))
    costs = {}
    for row in rows:
        costs[row.name] = _Cost(start.per_sample / row.speed(size).times, start.p50_ms / row.speed(size).p50_times)
        if last is not None and (ratios := last.ratios(row.name, reference.name, size)):
            latency = 1000 * median(last.fastest(row.name, size))
            costs[row.name] = _Cost(start.per_sample / median(ratios), latency)
    return costs


def _pace(
    row: Row,
    rows: Sequence[Row],
    reference: Row,
    baseline: Row,
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
    in_engine = _same(rows, reference.candidate, row.engine, reference.precision)
    network = _same(rows, network_of(row), row.engine, reference.precision)
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


def network_of(row: Row) -> str:
    """The candidate that holds the fp32 graphs of a row's network."""
    return row.candidate.partition("+")[0]


def _same(rows: Iterable[Row], candidate: str, engine: str, precision: str) -> Row | None:
    wanted = (candidate, engine, precision)
    return next((row for row in rows if (row.candidate, row.engine, row.precision) == wanted), None)


def finalists(rows: Sequence[Row], reference: Row, allowed: Sequence[Row]) -> list[Row]:
    """The rows of the last round, in the order of `rows`.

    These are the uncompressed network in every way, the fastest way of every candidate at each batch size (of those in
    `allowed`, where one is), and the fp32 graphs of their networks in the same engines, to tell what each part gives.
    """
    chosen = [row for row in rows if row.candidate == reference.candidate]
    for candidate in dict.fromkeys(row.candidate for row in rows):
        of_candidate = [row for row in rows if row.candidate == candidate]
        good = [row for row in of_candidate if row in allowed] or of_candidate
        for size in (speed.batch_size for speed in reference.speeds):
            best = max(good, key=lambda row: row.speed(size).times)
            chosen += [best, _same(rows, network_of(best), best.engine, reference.precision) or best]
    names = {row.name for row in chosen}
    return [row for row in rows if row.name in names]


def write_last_round(file: Path, key: str, last: LastRound) -> None:
    """Store the rounds so far. `key` identifies the rows and how they are timed."""
    StoredRounds(key, last.samples, last.rounds, last.failed).save(file)


def read_last_round(file: Path, key: str) -> LastRound | None:
    """The stored rounds; None if there are none, the file is damaged, or its key differs."""
    stored = StoredRounds.load_if_valid(file)
    if stored is None or stored.key != key:
        return None
    return LastRound(stored.samples, stored.rounds, stored.failed)
