"""The reports of a compression: report.json for programs, report.md and report.html for people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlpctl.compression.plan.one_scale import Pace
from nlpctl.compression.plan.scores import OWN, Row
from nlpctl.compression.plan.selection import Aim, contenders, ordered, within
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.runners.compress.columns import (
    NAMES,
    cells,
    columns,
    points_text,
    split_cells,
    split_columns,
    spread_text,
    times_text,
)
from nlpctl.runners.compress.result import CompressResult
from nlpctl.runners.pages.compress import compress_page
from nlpctl.runners.timing import conditions

FORMAT = 2
JSON, MARKDOWN, HTML = "report.json", "report.md", "report.html"

HOW = (
    "Scores are on dev, computed by the engine of the row. Speeds are of the engine alone, on dev rows batched by "
    "length; the fastest round of every batch counts. Difference: the largest absolute difference of any output. "
    "Alike: the share of dev rows with the same decision as the uncompressed model. Disk: the graph. Memory: the peak "
    "of the process, Paddle included. Both in MB of 1024 x 1024 bytes."
)


def how(result: CompressResult) -> str:
    """The meaning of the figures."""
    return f"{HOW} {_of_times(result)}"


def _of_times(result: CompressResult) -> str:
    """The meaning of `times` and `spread`."""
    by_row: dict[str, list[str]] = {}
    for size, name in result.paces.baselines.items():
        by_row.setdefault(name.partition(", ")[2], []).append(str(size))
    baselines = " and ".join(f"{way} (batch {', '.join(sizes)})" for way, sizes in by_row.items())
    told = f"Times: the multiple of the samples/s of the fastest uncompressed model that decides alike: {baselines}."
    if not result.paces.rounds:
        return f"{told} Every row was compared with the uncompressed model alone, at a time of its own."
    return (
        f"{told} Spread: its quartiles in {result.paces.rounds} last rounds, in which the best rows took turns; `-`: a "
        "row that was compared with the uncompressed model alone."
    )


def split_how(result: CompressResult) -> str:
    """The meaning of the second table."""
    return (
        f"Times {result.reference.way} = engine x precision x compression. Engine: the uncompressed fp32 graph in the "
        "engine of the row. Compression: the row's network, pruned or distilled, in fp32 against the uncompressed one. "
        "Precision: its graph in 8 bits or bf16 against fp32."
    )


def write_reports(result: CompressResult, source: str, task: str) -> None:
    """Write all three into the folder of the compression. `source`: the model, as the user gave it."""
    content = report(result, source, task)
    write_json_atomic(result.folder / JSON, content)
    write_text_atomic(result.folder / MARKDOWN, markdown(result, source, content["conditions"]))
    write_text_atomic(
        result.folder / HTML, compress_page(result, source, (how(result), split_how(result)), content["conditions"])
    )


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
        "speeds": [asdict(result.paces.of(row, size)) for size in result.aim.batch_sizes],
        "drop": result.metric.drop(row.score, result.reference.score),
        "allowed": within(row, result.reference, result.metric, result.aim),
    }
    if folder.is_relative_to(result.folder):
        values["folder"] = str(folder.relative_to(result.folder))
    return values


def summary(result: CompressResult) -> str:
    """Two sentences about the best candidate: what it gains, and from where."""
    best, aim, reference = result.best, result.aim, result.reference
    if result.is_uncompressed(best):
        return f"No candidate is better than the uncompressed model in {best.way}."
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


def _headline(pace: Pace) -> str:
    """The gain with its spread: "2.41 times (2.36-2.47)"."""
    spread = "" if pace.low is None else f" ({spread_text(pace)})"
    return f"{times_text(pace.times)} times{spread}"


def _split(pace: Pace) -> str:
    """A factor and its parts: "13.6 = 4.20 x 1.54 x 2.10"."""
    parts = [part for part in (pace.engine, pace.precision, pace.compression) if part is not None]
    return " = ".join([times_text(pace.whole), *([" x ".join(map(times_text, parts))] if parts else [])])


def tied(result: CompressResult) -> str:
    """A sentence about rows that nothing tells from the best; "" if there are none."""
    others = [row.name for row in _indistinct(result) if row != result.best]
    if not others:
        return ""
    return (
        f"Neither speed nor score tells it from {'; '.join(others)}. Of these the simplest was taken: untouched, then "
        "without training, then of fewer parts."
    )


def _indistinct(result: CompressResult) -> list[Row]:
    """The rows that the best was chosen from as the simplest, itself included."""
    return contenders(result.rows, result.reference, result.metric, result.aim, result.paces)


def _way(drop: float) -> str:
    return "below" if drop > 0 else "above"


def markdown(result: CompressResult, source: str, told: dict[str, Any]) -> str:
    """The text of report.md."""
    aim = result.aim
    allowed = f"at most {aim.max_drop:g} points below the uncompressed model; among these, {_aimed(aim)}"
    heads, split = columns(result.metric.name, aim), split_columns(result)
    rows = ordered(result.rows, aim, result.paces)
    lines = [
        f"# Compression of {source}",
        "",
        f"**Best: {summary(result)}**",
        "",
        *([tied(result), ""] if tied(result) else []),
        f"Target: {allowed}. `*`: the best; `!`: loses more than allowed.",
        "",
        _line(heads),
        _line(["---"] * NAMES + ["---:"] * (len(heads) - NAMES)),
        *[_line(cells(row, result)) for row in rows],
        "",
        split_how(result),
        "",
        _line(split),
        _line(["---"] * NAMES + ["---:"] * (len(split) - NAMES)),
        *[_line(split_cells(row, result)) for row in rows],
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
    lines += [how(result), "", ", ".join(f"{name} {value}" for name, value in told.items()) + ".", ""]
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
