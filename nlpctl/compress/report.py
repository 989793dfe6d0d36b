"""The reports of a compression: report.json for programs, report.md and report.html for people."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlpctl.compress.page import compress_page
from nlpctl.compress.relative_speed import RelativeSpeed
from nlpctl.compress.scores import OWN, Row
from nlpctl.compress.selection import Aim, contenders, ordered, within
from nlpctl.compress.tables import CompressResult, points_text, spread_text, table_sections, times_text
from nlpctl.engines.timing import conditions
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.report.markdown import markdown_page
from nlpctl.report.model import BulletList, Number, Part, Report, Section, Table

FORMAT = 2
JSON, MARKDOWN, HTML = "report.json", "report.md", "report.html"


def write_reports(result: CompressResult, source: str, task: str) -> None:
    """Write all three into the folder of the compression. `source`: the model, as the user gave it."""
    content = report(result, source, task)
    write_json_atomic(result.folder / JSON, content)
    write_text_atomic(result.folder / MARKDOWN, markdown(result, source, content["conditions"]))
    write_text_atomic(result.folder / HTML, compress_page(result, source, content["conditions"]))


def report(result: CompressResult, source: str, task: str) -> dict[str, Any]:
    """The content of report.json. Rows have the order of the table; "best" and "reference" name one row each."""
    return {
        "format": FORMAT,
        "source": source,
        "task": task,
        "metric": asdict(result.metric),
        "aim": asdict(result.aim),
        "reference": result.reference.name,
        "best": result.best.name,
        "indistinct": [row.name for row in _indistinct(result)],
        "baselines": {str(size): name for size, name in result.paces.baselines.items()},
        "last_rounds": result.paces.rounds,
        "rows": [_entry(row, result) for row in ordered(result.rows, result.aim, result.paces)],
        "failures": [asdict(failure) for failure in result.failures],
        "test": None if result.test is None else asdict(result.test),
        "conditions": {**conditions(), "machine": platform.node()},
    }


def _entry(row: Row, result: CompressResult) -> dict[str, Any]:
    figures = {name: value for name, value in row.report.items() if isinstance(value, int | float)}
    figures |= {f"{OWN}.{name}": value for name, value in row.report.get(OWN, {}).items()}
    folder = Path(row.folder)
    values = {
        "name": row.name,
        **asdict(row),
        "report": figures,
        "speeds": [asdict(result.paces.of(row, size)) for size in result.aim.batch_sizes],
        "drop": result.metric.drop(row.score, result.reference.score),
        "drop_interval": None if row.drops is None else [row.likely_drop(0.025), row.likely_drop(0.975)],
        "allowed": within(row, result.reference, result.metric, result.aim),
    }
    del values["drops"]
    if folder.is_relative_to(result.folder):
        values["folder"] = str(folder.relative_to(result.folder))
    return values


def summary(result: CompressResult) -> str:
    """Two sentences about the best candidate: what it gains, and from where."""
    best, aim, reference = result.best, result.aim, result.reference
    if result.is_uncompressed(best):
        return f"No candidate is better than the uncompressed model in {best.way}{_surely(aim)}."
    drop = result.metric.drop(best.score, reference.score)
    points = (
        "as the uncompressed model" if abs(drop) < 0.005 else f"{abs(drop):.2f} points {_way(drop)} the uncompressed"
    )
    paces = [result.paces.of(best, size) for size in aim.batch_sizes]
    speeds = " and ".join(f"{_headline(pace)} at batch {pace.batch_size}" for pace in paces)
    sizes = f"{best.size_mb:,.1f} MB in place of {reference.size_mb:,.1f}"
    wholes = "; ".join(f"batch {pace.batch_size} {_split(pace)}" for pace in paces)
    return (
        f"{best.name}: {result.metric.name} {best.score:.4f} on dev, {points}; {speeds} the samples/s of the fastest "
        f"uncompressed; {sizes}. Times {reference.way} = engine x precision x compression: {wholes}."
    )


def _headline(pace: RelativeSpeed) -> str:
    """The gain with its spread: "2.41 times (2.36-2.47)"."""
    spread = "" if pace.low is None else f" ({spread_text(pace)})"
    return f"{times_text(pace.times)} times{spread}"


def _split(pace: RelativeSpeed) -> str:
    """A factor and its parts: "13.6 = 4.20 x 1.54 x 2.10"."""
    parts = [part for part in (pace.engine, pace.precision, pace.compression) if part is not None]
    return " = ".join([times_text(pace.whole), *([" x ".join(map(times_text, parts))] if parts else [])])


def tied(result: CompressResult) -> str:
    """A sentence about rows that nothing tells from the best; "" if there are none."""
    others = [row.name for row in _indistinct(result) if row != result.best]
    if not others:
        return ""
    return (
        f"Neither speed nor score tells it from {'; '.join(others)}. Of these the simplest was taken (uncompressed, "
        "then without training, then of fewer parts), of equally simple ones the better score."
    )


def too_few(result: CompressResult) -> str:
    """A sentence where dev is too small to tell the allowed loss from chance; "" where it suffices, or nothing is lost.

    From the width of the interval of the best row, or of the least certain one where the uncompressed model is best.
    """
    most = result.aim.max_drop
    others = [row for row in result.rows if row.drops is not None and not result.is_uncompressed(row)]
    if not others or not most:
        return ""
    known = [row for row in others if row == result.best] or others
    half = max(row.likely_drop(0.975) - row.likely_drop(0.025) for row in known) / 2
    rows = result.reference.rows
    if half <= most:
        return ""
    needed = math.ceil(rows * (half / most) ** 2)
    return f"{rows:,} dev rows cannot tell a loss of {most:g} points from chance; it takes about {needed:,}."


def _indistinct(result: CompressResult) -> list[Row]:
    """The rows that the best was chosen from as the simplest, itself included."""
    return contenders(result.rows, result.reference, result.metric, result.aim, result.paces)


def _way(drop: float) -> str:
    return "below" if drop > 0 else "above"


def markdown(result: CompressResult, source: str, conditions: dict[str, Any]) -> str:
    """The text of report.md."""
    aim = result.aim
    allowed = f"at most {aim.max_drop:g} points below the uncompressed model{_surely(aim)}; among these, {_aimed(aim)}"
    remarks = [remark for remark in (tied(result), too_few(result)) if remark]
    last: list[Part] = []
    if result.test is not None:
        last += _test_table(result)
    if result.failures:
        failures = [f"{each.name}: {' '.join(each.reason.split())}" for each in result.failures]
        last += ["Not in the table:", BulletList(failures)]
    last.append(", ".join(f"{name} {value}" for name, value in conditions.items()) + ".")
    sections = [Section("", [*remarks, f"Target: {allowed}."]), *table_sections(result), Section("", last)]
    lead = f"**Best: {summary(result)}**"
    return markdown_page(Report(f"Compression of {source}", lead, sections), aligned=True)


def _test_table(result: CompressResult) -> list[Part]:
    test = result.test
    drop = Number(points_text(result.metric.drop(test.chosen, test.reference)))
    rows = [
        [result.reference.name, Number(f"{test.reference:.4f}"), None, None],
        [result.best.name, Number(f"{test.chosen:.4f}"), drop, Number(f"{test.agreement:.2%}")],
    ]
    told = f"On test, which was not used for the choice ({test.rows:,} rows):"
    return [told, Table(["", result.metric.name, "points", "alike"], rows)]


def _surely(aim: Aim) -> str:
    return "" if aim.sure is None else f", in {aim.sure:.0%} of resampled dev splits"


def _aimed(aim: Aim) -> str:
    return {
        "throughput": f"most samples per second at batch {aim.batch_size}",
        "latency": f"lowest latency at batch {aim.batch_size}",
        "size": "smallest size on disk",
    }[aim.target]
