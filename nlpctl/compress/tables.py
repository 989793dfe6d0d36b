"""The cells of the compression tables as text: for the terminal, report.md and report.html."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nlpctl.compress.relative_speed import RelativeSpeed, RelativeSpeeds
from nlpctl.compress.scores import Failure, Metric, Row, TestScore
from nlpctl.compress.selection import Aim, ordered, within
from nlpctl.errors import NlpctlError
from nlpctl.report.model import Number, Section, Table

# The result of a compression, for its reports and for the caller.

@dataclass(frozen=True)
class CompressResult:
    """The output folder, the table, the failures with reasons, and the best row, also on test data; the
    speeds of all rows on one scale.

    `failed`: the first error, if nothing that was asked for could be made.
    """

    folder: Path
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    metric: Metric
    aim: Aim
    reference: Row
    best: Row
    test: TestScore | None
    paces: RelativeSpeeds
    failed: NlpctlError | None = None

    def is_uncompressed(self, row: Row) -> bool:
        """Whether a row is the uncompressed network, in whatever engine and precision."""
        return row.candidate == self.reference.candidate



PARTS = ("engine", "precision", "compression")  # fields of Pace whose product is its `whole`
_OF_CANDIDATES = (
    "*: the best; !: loses more than allowed, or may (--sure). Scores are on dev, computed by the engine of the row. "
    "Speeds are of the engine alone, on dev rows batched by length. Disk: the graph, in MB of 1024 x 1024 bytes. "
    "Alike: the share of dev rows with the same decision as the uncompressed model."
)
_OF_THE_MACHINE = "Timed on {}, one after the other, while no candidate was made."
_OF_PARTS = (
    "engine x precision x compression. Engine: the uncompressed fp32 graph in the engine of the row. Compression: the "
    "row's network, pruned or distilled, in fp32 against the uncompressed one. Precision: its graph in 8 bits or bf16 "
    "against fp32."
)
_OF_THE_REST = (
    "Points, 95 %: the interval of the difference in points, from resampled dev rows. p50: the median time of a batch, "
    "of each the fastest round. Memory: the peak of the process, with Paddle where its engine needs it, in MB of 1024 "
    "x 1024 bytes. Difference: the largest absolute difference of any output from the uncompressed model."
)


def tables(result: CompressResult) -> tuple[tuple[Table, str], ...]:
    """Tables of all rows, in one order, and what their figures say: scores and speeds, where the speed comes from, and
    the rest."""
    rows = ordered(result.rows, result.aim, result.paces)

    def table(title: str, heads: list[str], cells: Callable[[Row, CompressResult], list[str]]) -> Table:
        lines = [[_marked(row, result), row.way, *map(Number, cells(row, result))] for row in rows]
        return Table(["candidate", "engine", *heads], lines, title)

    sizes = result.aim.batch_sizes
    speeds = [head for size in sizes for head in (f"samples/s, {size}", "times", "spread")]
    parts = [head for size in sizes for head in (f"times {result.reference.way}, {size}", *PARTS)]
    latencies = [f"p50 ms, {size}" for size in sizes]
    return (
        (
            table("All candidates", [result.metric.name, "points", *speeds, "disk MB", "alike"], _cells),
            f"{_OF_CANDIDATES} {_OF_THE_MACHINE.format(platform.node())} {_of_times(result)}",
        ),
        (
            table("Where the speed comes from", parts, _split_cells),
            f"Times {result.reference.way} = {_OF_PARTS}",
        ),
        (
            table("Certainty, latency, memory, outputs",
                  ["points, 95 %", *latencies, "memory MB", "difference"], _more_cells),
            _OF_THE_REST,
        ),
    )  # fmt: skip


def table_sections(result: CompressResult) -> list[Section]:
    """`tables` as sections of a report."""
    return [Section(table.title, [replace(table, title=""), meaning]) for table, meaning in tables(result)]


def _cells(row: Row, result: CompressResult) -> list[str]:
    drop = result.metric.drop(row.score, result.reference.score)
    speeds = [
        cell
        for size in result.aim.batch_sizes
        for pace in [result.paces.of(row, size)]
        for cell in (f"{pace.samples_per_second:,.0f}", times_text(pace.times), spread_text(pace))
    ]
    return [f"{row.score:.4f}", points_text(drop), *speeds, f"{row.size_mb:,.1f}", f"{row.agreement:.2%}"]


def _split_cells(row: Row, result: CompressResult) -> list[str]:
    """The last three of a batch size multiply to the first."""
    paces = [result.paces.of(row, size) for size in result.aim.batch_sizes]
    parts = [part for pace in paces for part in (pace.whole, *(getattr(pace, name) for name in PARTS))]
    return ["-" if part is None else times_text(part) for part in parts]


def _more_cells(row: Row, result: CompressResult) -> list[str]:
    latencies = [milliseconds(result.paces.of(row, size).p50_ms) for size in result.aim.batch_sizes]
    difference = "-" if row.difference is None else f"{row.difference:.2g}"
    return [points_range(row), *latencies, f"{row.peak_mb:,.0f}", difference]


def _of_times(result: CompressResult) -> str:
    """The meaning of `times` and `spread`."""
    by_way: dict[str, list[str]] = {}
    for size, name in result.paces.baselines.items():
        by_way.setdefault(name.partition(", ")[2], []).append(str(size))
    baselines = " and ".join(f"{way} (batch {', '.join(sizes)})" for way, sizes in by_way.items())
    told = f"Times: the multiple of the samples/s of the fastest uncompressed model that decides alike: {baselines}."
    if not result.paces.rounds:
        return f"{told} Every row was compared with the uncompressed model alone, at a time of its own."
    return (
        f"{told} It is the median of {result.paces.rounds} last rounds, in which the best rows took turns, and spread "
        "its quartiles; a row without one was compared with the uncompressed model alone."
    )


def _marked(row: Row, result: CompressResult) -> str:
    """The name of a candidate with its mark: * the best, ! a score below the limit."""
    allowed = within(row, result.reference, result.metric, result.aim)
    return ("* " if row == result.best else "" if allowed else "! ") + row.candidate


def line(row: Row, reference: Row, metric: Metric) -> str:
    """A progress line for one row, with its speed at the largest batch size."""
    speed = max(row.speeds, key=lambda each: each.batch_size)
    drop = points_text(metric.drop(row.score, reference.score))
    return (
        f"{row.name}: {metric.name} {row.score:.4f} ({drop}), {speed.times:.2f} times {reference.way} (batch "
        f"{speed.batch_size}), {row.size_mb:,.1f} MB"
    )


def points_text(drop: float) -> str:
    """The difference to the reference score in points: "+0.12"."""
    return f"{-drop + 0:+.2f}"


def points_range(row: Row) -> str:
    """The 95 % interval of the difference in points: "-0.92 to +0.34"; "-" if it is not known."""
    if row.drops is None:
        return "-"
    return f"{points_text(row.likely_drop(0.975))} to {points_text(row.likely_drop(0.025))}"


def times_text(times: float) -> str:
    """A multiple: 0.06, 2.41, 13.6."""
    return f"{times:.1f}" if times >= 10 else f"{times:.2f}"


def spread_text(pace: RelativeSpeed) -> str:
    """The quartiles of `times`: "2.36-2.47"; "-" if the row did not take part in the last round."""
    if pace.low is None or pace.high is None:
        return "-"
    return f"{times_text(pace.low)}-{times_text(pace.high)}"


def milliseconds(value: float) -> str:
    """Three significant digits: 0.0412, 9.31, 128."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
