"""The reports of a compression: report.json for programs, report.md and report.html for people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlpctl.compression.plan.scores import OWN, Row
from nlpctl.compression.plan.selection import Aim, ordered, within
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.runners.compress.columns import NAMES, cells, columns, points_text
from nlpctl.runners.compress.result import CompressResult
from nlpctl.runners.pages.compress import compress_page
from nlpctl.runners.timing import conditions

FORMAT = 1
JSON, MARKDOWN, HTML = "report.json", "report.md", "report.html"

HOW = (
    "Scores are on dev, computed by the engine of the row. Speeds are of the engine alone, on dev rows batched by "
    "length; the fastest round of every batch counts. `times`: speed-up over the uncompressed model in fp32, measured "
    "in alternating rounds, not a ratio of two rows of this table. Difference: the largest absolute difference of any "
    "output; alike: the share of dev rows with the same decision as the uncompressed model. Disk: the graph; memory: "
    "the peak of the process, Paddle included; both in MB of 1024 x 1024 bytes."
)


def write_reports(result: CompressResult, source: str, task: str) -> None:
    """Write all three into the folder of the compression. `source`: the model, as the user gave it."""
    content = report(result, source, task)
    write_json_atomic(result.folder / JSON, content)
    write_text_atomic(result.folder / MARKDOWN, markdown(result, source, content["conditions"]))
    write_text_atomic(result.folder / HTML, compress_page(result, source, HOW, content["conditions"]))


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
        "rows": [_entry(row, result) for row in ordered(result.rows, result.aim)],
        "failures": [asdict(failure) for failure in result.failures],
        "test": None if result.test is None else asdict(result.test),
        "conditions": conditions(),
    }


def _entry(row: Row, result: CompressResult) -> dict[str, Any]:
    figures = {name: value for name, value in row.report.items() if isinstance(value, int | float)}
    figures |= {f"{OWN}.{name}": value for name, value in row.report.get(OWN, {}).items()}
    folder = Path(row.folder)
    values = {
        "name": row.name,
        **asdict(row),
        "report": figures,
        "drop": result.metric.drop(row.score, result.reference.score),
        "allowed": within(row, result.reference, result.metric, result.aim),
    }
    if folder.is_relative_to(result.folder):
        values["folder"] = str(folder.relative_to(result.folder))
    return values


def summary(result: CompressResult) -> str:
    """One sentence about the best candidate."""
    best, aim, reference = result.best, result.aim, result.reference
    drop = result.metric.drop(best.score, reference.score)
    points = (
        "as the uncompressed model" if abs(drop) < 0.005 else f"{abs(drop):.2f} points {_way(drop)} the uncompressed"
    )
    if best == reference:
        return f"No candidate is better than the uncompressed model in {best.way}."
    speeds = " and ".join(f"{best.speed(size).times:.1f} times at batch {size}" for size in aim.batch_sizes)
    sizes = f"{best.size_mb:,.1f} MB in place of {reference.size_mb:,.1f}"
    return f"{best.name}: {result.metric.name} {best.score:.4f} on dev, {points}; samples/s {speeds}; {sizes}."


def _way(drop: float) -> str:
    return "below" if drop > 0 else "above"


def markdown(result: CompressResult, source: str, told: dict[str, Any]) -> str:
    """The text of report.md."""
    aim = result.aim
    allowed = f"at most {aim.max_drop:g} points below the uncompressed model; among these, {_aimed(aim)}"
    heads = columns(result.metric.name, aim)
    lines = [
        f"# Compression of {source}",
        "",
        f"**Best: {summary(result)}**",
        "",
        f"Target: {allowed}. `*`: the best; `!`: loses more than allowed.",
        "",
        _line(heads),
        _line(["---"] * NAMES + ["---:"] * (len(heads) - NAMES)),
        *[_line(cells(row, result)) for row in ordered(result.rows, result.aim)],
        "",
    ]
    if result.test is not None:
        lines += _test_table(result)
    if result.failures:
        lines += [
            "Not in the table:",
            "",
            *[f"- {each.name}: {_one_line(each.reason)}" for each in result.failures],
            "",
        ]
    lines += [HOW, "", ", ".join(f"{name} {value}" for name, value in told.items()) + ".", ""]
    return "\n".join(lines)


def _test_table(result: CompressResult) -> list[str]:
    test = result.test
    drop = result.metric.drop(test.chosen, test.reference)
    return [
        f"On test, which was not used for the choice ({test.rows:,} rows):",
        "",
        _line(["", result.metric.name, "points", "alike"]),
        _line(["---", "---:", "---:", "---:"]),
        _line([result.reference.name, f"{test.reference:.4f}", "", ""]),
        _line([result.best.name, f"{test.chosen:.4f}", points_text(drop), f"{test.agreement:.2%}"]),
        "",
    ]


def _aimed(aim: Aim) -> str:
    return {
        "throughput": f"most samples per second at batch {aim.batch_size}",
        "latency": f"lowest latency at batch {aim.batch_size}",
        "size": "smallest size on disk",
    }[aim.target]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _one_line(text: str) -> str:
    return " ".join(text.split())
