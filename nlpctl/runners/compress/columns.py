"""The cells of the compression tables as text: for the terminal, report.md and report.html."""

from __future__ import annotations

from nlpctl.compression.plan.one_scale import Pace
from nlpctl.compression.plan.scores import Metric, Row
from nlpctl.compression.plan.selection import Aim, within
from nlpctl.runners.compress.result import CompressResult

NAMES = 2  # number of text columns; the others are numeric


def columns(metric: str, aim: Aim) -> list[str]:
    """The column heads of the candidates."""
    speeds = [head for size in aim.batch_sizes for head in (f"samples/s, {size}", "times", "spread", "p50 ms")]
    return ["candidate", "engine", metric, "points", *speeds, "disk MB", "memory MB", "difference", "alike"]


def cells(row: Row, result: CompressResult) -> list[str]:
    """One line of the table; * marks the best, ! a score below the limit."""
    drop = result.metric.drop(row.score, result.reference.score)
    speeds = [
        cell
        for size in result.aim.batch_sizes
        for pace in [result.paces.of(row, size)]
        for cell in (
            f"{pace.samples_per_second:,.0f}",
            times_text(pace.times),
            spread_text(pace),
            milliseconds(pace.p50_ms),
        )
    ]
    return [
        marked(row, result),
        row.way,
        f"{row.score:.4f}",
        points_text(drop),
        *speeds,
        f"{row.size_mb:,.1f}",
        f"{row.peak_mb:,.0f}",
        "-" if row.difference is None else f"{row.difference:.2g}",
        f"{row.agreement:.2%}",
    ]


def split_columns(result: CompressResult) -> list[str]:
    """The column heads of the second table: where the speed comes from."""
    heads = [f"times {result.reference.way}, {{}}", "engine", "precision", "compression"]
    return ["candidate", "engine", *[head.format(size) for size in result.aim.batch_sizes for head in heads]]


def split_cells(row: Row, result: CompressResult) -> list[str]:
    """One line of the second table; the last three of a batch size multiply to the first."""
    paces = [result.paces.of(row, size) for size in result.aim.batch_sizes]
    parts = [part for pace in paces for part in (pace.whole, pace.engine, pace.precision, pace.compression)]
    return [marked(row, result), row.way, *["-" if part is None else times_text(part) for part in parts]]


def marked(row: Row, result: CompressResult) -> str:
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


def times_text(times: float) -> str:
    """A multiple: 0.06, 2.41, 13.6."""
    return f"{times:.1f}" if times >= 10 else f"{times:.2f}"


def spread_text(pace: Pace) -> str:
    """The quartiles of `times`: "2.36-2.47"; "-" if the row did not take part in the last round."""
    if pace.low is None or pace.high is None:
        return "-"
    return f"{times_text(pace.low)}-{times_text(pace.high)}"


def milliseconds(value: float) -> str:
    """Three significant digits: 0.0412, 9.31, 128."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
