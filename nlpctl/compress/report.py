"""The result of a compression and its reports: report.json for programs, report.md, report.html and the terminal.

All of them draw the same three tables (`tables`). The page of a run (`nlpctl report`, `nlpctl ui`) shows a few lines of
report.json (runs/report.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nlpctl.compress.result import (
    OF_ALTERNATIVES,
    CompressResult,
    alternatives_table,
    answer,
    format_points,
    format_points_range,
    reasons,
)
from nlpctl.compress.scores import USER_SCORE, CandidateScore
from nlpctl.compress.selection import ordered
from nlpctl.compress.timing import RelativeSpeed
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.inference.timed_process import conditions_table, timing_conditions
from nlpctl.layout import COMPRESS_REPORT
from nlpctl.models.export_folder import POINT
from nlpctl.report.language import later, say, say_each
from nlpctl.report.markdown import markdown_page
from nlpctl.report.model import (
    BulletList,
    Figure,
    KeyFigures,
    Number,
    Part,
    Report,
    Section,
    SideBySide,
    Table,
    format_ms,
    format_times,
)
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, scatter
from nlpctl.spelling import spelled

FORMAT = 2
JSON, MARKDOWN, HTML = COMPRESS_REPORT, "report.md", "report.html"
PARTS = ("engine", "precision", "compression")  # fields of RelativeSpeed whose product is its `whole`

_OF_CANDIDATES = later(
    "*: the best; !: loses more than allowed, or may (@[sure]). Scores are on dev, computed by the engine of the row. "
    "Speeds are of the engine alone, on dev rows batched by length. Disk: the graph, in MB of 1024 x 1024 bytes. "
    "Alike: the share of dev rows with the same decision as the uncompressed model."
)
_OF_THE_REST = later(
    "Points, 95 %: the interval of the difference in points, from resampled dev rows. p50: the median time of a batch "
    "at the samples/s of the first table. Memory: the peak of the process, with Paddle where its engine needs it. "
    "Embedding: what of the graph are tables of 1,024 rows or more that only look-ups read; both in MB of 1024 x 1024 "
    "bytes. Difference: the largest absolute difference of any output from the uncompressed model."
)


def write_reports(result: CompressResult, source: str) -> None:
    """Write all three into the folder of the compression. `source`: the model, as the user gave it."""
    content = report(result, source)
    write_json_atomic(result.folder / JSON, content)
    page = compress_page(result, source, content["conditions"])
    write_text_atomic(result.folder / MARKDOWN, markdown_page(page, aligned=True))
    write_text_atomic(result.folder / HTML, html_page(page))


# -- the tables ------------------------------------------------------------------------------------


def tables(result: CompressResult) -> tuple[tuple[Table, str], ...]:
    """Tables of all rows, in one order, and what their figures say: scores and speeds, where the speed comes from, and
    the rest."""
    rows = ordered(result.rows, result.objective, result.speeds)

    def make(title: str, heads: list[str], cells: Callable[[CandidateScore, CompressResult], list[str]]) -> Table:
        lines = [[_marked(row, result), row.choice_name, *map(Number, cells(row, result))] for row in rows]
        return Table([*say_each("candidate", "engine"), *heads], lines, title)

    sizes, of_reference = result.objective.batch_sizes, result.reference.choice_name
    speeds = [head for size in sizes for head in (say("samples/s, {}", size), *say_each("multiple|times", "spread"))]
    parts = [head for size in sizes for head in (say("times {}, {}", of_reference, size), *map(say, PARTS))]
    latencies = [say("p50 ms, {}", size) for size in sizes]
    more = [say("points, 95 %"), *latencies, *say_each("memory MB", "embedding MB", "difference")]
    timed, of_times = result.speeds.timed, _meaning_of_times(result)
    if timed is not None:
        of_machine = say("Timed on {}, one after the other, while no candidate was made.", timed.machine)
        of_times = say("{} {}", of_machine, of_times)
    of_parts = say(
        "Times {} = engine x precision x compression. Engine: the uncompressed fp32 graph in the engine of the row. "
        "Compression: the row's network, pruned or distilled, in fp32 against the uncompressed one. Precision: its "
        "graph in 8 bits or bf16 against fp32.",
        of_reference,
    )
    scores = [result.metric.name, say("points"), *speeds, *say_each("disk MB", "alike")]
    return (
        (
            make(say("All candidates"), scores, _cells),
            say("{} {}", spelled(say(_OF_CANDIDATES)), of_times),
        ),
        (make(say("Where the speed comes from"), parts, _part_cells), of_parts),
        (make(say("Certainty, latency, memory, outputs"), more, _more_cells), say(_OF_THE_REST)),
    )


def table_sections(result: CompressResult) -> list[Section]:
    """`tables` as sections of a report."""
    return [Section(table.title, [replace(table, title=""), meaning]) for table, meaning in tables(result)]


def _cells(row: CandidateScore, result: CompressResult) -> list[str]:
    speeds = [
        cell
        for speed in result.speed_at_sizes(row)
        for cell in (f"{speed.samples_per_second:,.0f}", format_times(speed.times), format_spread(speed))
    ]
    return [f"{row.score:.4f}", format_points(result.drop(row)), *speeds, f"{row.size_mb:,.1f}", f"{row.agreement:.2%}"]


def _part_cells(row: CandidateScore, result: CompressResult) -> list[str]:
    """The last three of a batch size multiply to the first."""
    speeds = result.speed_at_sizes(row)
    parts = [part for speed in speeds for part in (speed.whole, *(getattr(speed, name) for name in PARTS))]
    return ["-" if part is None else format_times(part) for part in parts]


def _more_cells(row: CandidateScore, result: CompressResult) -> list[str]:
    latencies = [format_ms(speed.p50_ms) for speed in result.speed_at_sizes(row)]
    embedding = "-" if row.embedding_mb is None else f"{row.embedding_mb:,.1f}"
    difference = "-" if row.difference is None else f"{row.difference:.2g}"
    return [format_points_range(row), *latencies, f"{row.peak_mb:,.0f}", embedding, difference]


def _meaning_of_times(result: CompressResult) -> str:
    """What the columns `times` and `spread` say."""
    sizes_by_way: dict[str, list[str]] = {}
    for size, name in result.speeds.baselines.items():
        sizes_by_way.setdefault(name.partition(", ")[2], []).append(str(size))
    ways = [say("{} (batch {})", way, say(", ").join(sizes)) for way, sizes in sizes_by_way.items()]
    meaning = say(
        "Times: the multiple of the samples/s of the fastest uncompressed model that decides alike: {}.",
        say(" and ").join(ways),
    )
    if not result.speeds.rounds:
        return say("{} Every row was compared with the uncompressed model alone, at a time of its own.", meaning)
    return say(
        "{} It is the median of {} last rounds, in which the best rows took turns, and spread its quartiles; a row "
        "without one was compared with the uncompressed model alone.",
        meaning,
        result.speeds.rounds,
    )


def _marked(row: CandidateScore, result: CompressResult) -> str:
    """The name of a candidate with its mark: * the best, ! a score below the limit."""
    return ("* " if row == result.best else "" if result.is_allowed(row) else "! ") + row.candidate


def format_spread(speed: RelativeSpeed) -> str:
    """The quartiles of `times`: "2.36-2.47"; "-" if the row did not take part in the last round."""
    if speed.low is None or speed.high is None:
        return "-"
    return f"{format_times(speed.low)}-{format_times(speed.high)}"


# -- report.json -----------------------------------------------------------------------------------


def report(result: CompressResult, source: str) -> dict[str, Any]:
    """The content of report.json. Rows have the order of the table; "best" and "reference" name one row each."""
    timed = result.speeds.timed  # when this command has timed nothing, an earlier one
    known = {} if timed is None else asdict(timed)
    conditions = {name: value for name, value in timing_conditions().items() if name not in ("date", "load")}
    return {
        "format": FORMAT,
        "source": source,
        "task": result.task,
        "metric": asdict(result.metric),
        "aim": asdict(result.objective),
        "reference": result.reference.name,
        "best": result.best.name,
        "indistinct": [row.name for row in result.indistinct],
        "alternatives": {what: row.name for what, row in result.alternatives.items()},
        "baselines": {str(size): name for size, name in result.speeds.baselines.items()},
        "last_rounds": result.speeds.rounds,
        "rows": [_entry(row, result) for row in ordered(result.rows, result.objective, result.speeds)],
        "failures": [
            {"candidate": failure.candidate, "way": failure.choice_name, "reason": failure.reason}
            for failure in result.failures
        ],
        "test": None if result.test is None else asdict(result.test),
        "conditions": known | conditions,
    }


def _entry(row: CandidateScore, result: CompressResult) -> dict[str, Any]:
    numbers = {name: value for name, value in row.report.items() if isinstance(value, int | float)}
    numbers |= {f"{USER_SCORE}.{name}": value for name, value in row.report.get(USER_SCORE, {}).items()}
    folder = Path(row.folder)
    values = {
        "name": row.name,
        **asdict(row),
        "report": numbers,
        "speeds": [asdict(speed) for speed in result.speed_at_sizes(row)],
        "drop": result.drop(row),
        "drop_interval": None if row.drops is None else [row.likely_drop(0.025), row.likely_drop(0.975)],
        "allowed": result.is_allowed(row),
    }
    del values["drops"]
    if folder.is_relative_to(result.folder):
        values["folder"] = str(folder.relative_to(result.folder))
    return values


# -- report.md and report.html ---------------------------------------------------------------------


def compress_page(result: CompressResult, source: str, conditions: Mapping[str, Any]) -> Report:
    """The answer, the score against the speed, and the tables. `conditions`: of the measurement, by name."""
    best, reference = result.best, result.reference
    figures = {
        best.choice_name: best.candidate,
        say("{} on dev (uncompressed {:.4f})", result.metric.name, reference.score): f"{best.score:.4f}",
        **{
            say("times the fastest uncompressed, batch {}", speed.batch_size): format_times(speed.times)
            for speed in result.speed_at_sizes(best)
        },
        say("MB on disk (uncompressed {:,.1f})", reference.size_mb): f"{best.size_mb:,.1f}",
    }
    failed = [say("{}: {}", failure.name, " ".join(failure.reason.split())) for failure in result.failures]
    why: list[Part] = [KeyFigures(figures), BulletList(reasons(result))]
    sections = [
        Section(say("What to take"), [*why, alternatives_table(result), say(OF_ALTERNATIVES)]),
        Section(say("Score against speed"), [_plots(result)]),
        *table_sections(result),
        Section(say("Not in the table"), [BulletList(failed)] if failed else []),
        Section(say("Conditions"), [conditions_table(conditions)]),
    ]
    return Report(say("Compression of {}", source), answer(result), sections)


def _plots(result: CompressResult) -> SideBySide:
    """One plot per batch size, the largest first; a colour per engine and precision."""
    reference, metric = result.reference, result.metric
    points = result.objective.max_drop * POINT
    least = reference.score - points if metric.greater_is_better else reference.score + points
    levels = {say("{:g} points below the uncompressed", result.objective.max_drop): least}
    plots = []
    for size in sorted(result.objective.batch_sizes, reverse=True):
        series: dict[str, list[Dot]] = {}
        for row in result.rows:
            label = ""
            if row == result.best:
                label = say("best: {}", row.candidate)
            elif row.name == result.speeds.baselines[size]:
                label = say("uncompressed, {}", row.choice_name)
            dot = Dot(result.speeds.speed(row, size).times, row.score, row.name, label)
            series.setdefault(f"{row.engine} {row.precision}", []).append(dot)
        speed = say("times the samples/s of the fastest uncompressed, batch size {}", size)
        plot = scatter(series, speed, metric.name, y_format=lambda value: f"{value:.4g}", levels=levels)
        plots.append(Figure(plot))
    return SideBySide(plots)
