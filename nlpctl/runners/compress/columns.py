"""The cells of the compression table as text: for the terminal, report.md and report.html."""

from __future__ import annotations

from nlpctl.compression.plan.scores import Metric, Row
from nlpctl.compression.plan.selection import Aim, within
from nlpctl.runners.compress.result import CompressResult

NAMES = 2  # number of text columns; the others are numeric


def columns(metric: str, aim: Aim) -> list[str]:
    """The column heads."""
    speeds = [head for size in aim.batch_sizes for head in (f"samples/s, {size}", "times", "p50 ms")]
    return ["candidate", "engine", metric, "points", *speeds, "disk MB", "memory MB", "difference", "alike"]


def cells(row: Row, result: CompressResult) -> list[str]:
    """One line of the table; * marks the best, ! a score below the limit."""
    drop = result.metric.drop(row.score, result.reference.score)
    mark = "* " if row == result.best else "" if within(row, result.reference, result.metric, result.aim) else "! "
    speeds = [
        cell
        for size in result.aim.batch_sizes
        for speed in [row.speed(size)]
        for cell in (f"{speed.samples_per_second:,.0f}", f"{speed.times:.2f}", milliseconds(speed.p50_ms))
    ]
    return [
        mark + row.candidate,
        row.way,
        f"{row.score:.4f}",
        points_text(drop),
        *speeds,
        f"{row.size_mb:,.1f}",
        f"{row.peak_mb:,.0f}",
        "-" if row.difference is None else f"{row.difference:.2g}",
        f"{row.agreement:.2%}",
    ]


def line(row: Row, reference: Row, metric: Metric) -> str:
    """A progress line for one row, with its speed at the largest batch size."""
    speed = max(row.speeds, key=lambda each: each.batch_size)
    drop = points_text(metric.drop(row.score, reference.score))
    return (
        f"{row.name}: {metric.name} {row.score:.4f} ({drop}), {speed.times:.2f} times as fast (batch "
        f"{speed.batch_size}), {row.size_mb:,.1f} MB"
    )


def points_text(drop: float) -> str:
    """The difference to the reference score in points: "+0.12"."""
    return f"{-drop + 0:+.2f}"


def milliseconds(value: float) -> str:
    """Three significant digits: 0.0412, 9.31, 128."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
