"""A compression as one HTML page: the score against the speed, and the table of all candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nlpctl.compress.scores import Row
from nlpctl.compress.tables import CompressResult, points_text, table_sections, times_text
from nlpctl.errors import UserError
from nlpctl.files import json_of
from nlpctl.layout import COMPRESS
from nlpctl.models.export_folder import POINT
from nlpctl.report.model import BulletList, Figure, KeyFigures, Number, Report, Section, SideBySide, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, scatter
from nlpctl.runs.runs import RunRecord


def compress_page(result: CompressResult, source: str, conditions: Mapping[str, Any]) -> str:
    """The text of the page. `conditions`: those of the measurement."""
    failed = [f"{each.name}: {each.reason}" for each in result.failures]
    sections = [
        Section("Best", [KeyFigures(_best(result)), *_test(result)]),
        Section("Score against speed", [_plots(result)]),
        *table_sections(result),
        Section("Not in the table", [BulletList(failed)] if failed else []),
        Section("Conditions", [Table(["what", "value"], [[name, str(value)] for name, value in conditions.items()])]),
    ]
    return html_page(Report("Compression", source, sections))


def _best(result: CompressResult) -> dict[str, str]:
    best, reference = result.best, result.reference
    speeds = {
        f"times the fastest uncompressed, batch {size}": times_text(result.paces.of(best, size).times)
        for size in result.aim.batch_sizes
    }
    return {
        best.way: best.candidate,
        f"{result.metric.name} on dev (uncompressed {reference.score:.4f})": f"{best.score:.4f}",
        **speeds,
        f"MB on disk (uncompressed {reference.size_mb:,.1f})": f"{best.size_mb:,.1f}",
    }


def _test(result: CompressResult) -> Iterator[Table]:
    test = result.test
    if test is None:
        return
    points = points_text(result.metric.drop(test.chosen, test.reference))
    rows = [
        [result.reference.name, Number(f"{test.reference:.4f}"), None, None],
        [result.best.name, Number(f"{test.chosen:.4f}"), Number(points), Number(f"{test.agreement:.2%}")],
    ]
    caption = f"on test, which was not used for the choice: {test.rows:,} rows"
    yield Table(["", result.metric.name, "points", "same decisions"], rows, caption)


def _plots(result: CompressResult) -> SideBySide:
    """One plot per batch size, the largest first; a colour per engine and precision."""
    reference, metric = result.reference, result.metric
    points = result.aim.max_drop * POINT
    least = reference.score - points if metric.greater_is_better else reference.score + points
    levels = {f"{result.aim.max_drop:g} points below the uncompressed": least}
    plots = []
    for size in sorted(result.aim.batch_sizes, reverse=True):
        series: dict[str, list[Dot]] = {}
        for row in result.rows:
            dot = Dot(result.paces.of(row, size).times, row.score, row.name, _label(row, size, result))
            series.setdefault(f"{row.engine} {row.precision}", []).append(dot)
        speed = f"times the samples/s of the fastest uncompressed, batch size {size}"
        plot = scatter(series, speed, metric.name, y_format=lambda value: f"{value:.4g}", levels=levels)
        plots.append(Figure(plot))
    return SideBySide(plots)


def _label(row: Row, size: int, result: CompressResult) -> str:
    if row == result.best:
        return f"best: {row.candidate}"
    if row.name == result.paces.baselines[size]:
        return f"uncompressed, {row.way}"
    return ""


def compression_of_run(content: Mapping[str, Any]) -> list[Table]:
    """The uncompressed model and the best, for the page of the run: `content` is that of report.json.

    KeyError or TypeError for anything else.
    """
    sizes = [int(speed["batch_size"]) for speed in content["rows"][0]["speeds"]]
    rows = [
        [
            entry["name"],
            float(entry["score"]),
            *[Number(times_text(speed["times"])) for speed in entry["speeds"]],
            Number(f"{entry['size_mb']:,.1f}"),
        ]
        for name in dict.fromkeys([content["reference"], content["best"]])
        for entry in content["rows"]
        if entry["name"] == name
    ]
    # reports of earlier versions compare with the reference
    one = "the fastest uncompressed" if "baselines" in content else content["reference"]
    speeds = [f"times {one}, batch {size}" for size in sizes]
    heads = ["", content["metric"]["name"], *speeds, "disk MB"]
    caption = f"the best of {len(content['rows'])} candidates; compress/report.html shows all"
    return [Table(heads, rows, caption)]


def read_compression(record: RunRecord) -> list[Table]:
    """The section on the run's compressed models; empty if there are none."""
    file = record.run.path / COMPRESS / "report.json"
    try:
        return compression_of_run(json_of(file)) if file.exists() else []
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        hint = "delete the file to see the rest, or call `nlpctl compress` again, which writes it anew"
        told = f"{type(error).__name__}: {error}"
        raise UserError(f"the compression cannot be read ({told})", where=str(file), hint=hint) from None
