"""report.json and report.md: the rows of the comparison, and the differences between graphs and network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nlpctl.data.sample_rows import ComparedRows
from nlpctl.engines.parity import Parity
from nlpctl.export.verify import FP32_AGREEMENT, GraphDifference, RefusedGraph, fp32_tolerance
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.layout import EXPORT_REPORT
from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.report.language import say, say_counted, say_each
from nlpctl.report.markdown import markdown_page
from nlpctl.report.model import MB, BulletList, Number, Part, Report, Section, Table
from nlpctl.runtime.process import ProcessSetup

MAX_LISTED_CHANGES = 20  # rows with a changed decision, listed in the report


def write_report(
    folder: Path,
    manifest: ExportManifest,
    rows: ComparedRows,
    for_int8: ComparedRows | None,
    parity: Parity,
    findings: Sequence[GraphDifference],
    refused: Sequence[RefusedGraph],
    setup: ProcessSetup,
) -> None:
    """Write both files, for people and for scripts; checksums do not cover them. `for_int8`: the rows that graphs in 8
    bits were calibrated on."""
    task = parity.task
    report = {
        "task": manifest.task,
        "source": manifest.source,
        "rows": {
            "count": len(rows.examples),
            "from": rows.origin,
            "real": rows.real,
            "decisions": parity.distinct_decisions,
        },
        "calibration": None if for_int8 is None else {"count": len(for_int8.examples), "from": for_int8.origin},
        "shapes": parity.shapes,
        "tolerance": {
            "fp32_difference": fp32_tolerance(task, setup),
            "fp32_agreement": FP32_AGREEMENT,
            "int8_agreement": task.int8_agreement,
        },
        "graphs": [_graph(folder, graph, findings) for graph in manifest.graphs],
        "refused": [_refused(each) for each in refused],
        "versions": dict(manifest.versions),
    }
    write_json_atomic(folder / EXPORT_REPORT, report)
    write_text_atomic(folder / "report.md", markdown_of(report))


def _graph(folder: Path, graph: Graph, findings: Sequence[GraphDifference]) -> dict[str, Any]:
    mine = [each for each in findings if each.graph.files == graph.files]
    return {
        "files": list(graph.files),
        "bytes": sum((folder / name).stat().st_size for name in graph.files),
        "format": graph.format,
        "precision": graph.precision,
        "method": graph.method,
        "checks": [
            {
                "engine": each.engine,
                "precision": each.precision,
                "largest_difference": each.difference.largest,
                "relative_difference": each.difference.relative,
                "agreement": each.difference.agreement,
                "changed": len(each.difference.changed),
                "first_changed_rows": list(each.difference.changed[:MAX_LISTED_CHANGES]),
            }
            for each in mine
        ],
    }


def _refused(each: RefusedGraph) -> dict[str, Any]:
    graph = each.graph
    return {
        "files": list(graph.files),
        "format": graph.format,
        "precision": graph.precision,
        "method": graph.method,
        "reason": each.reason,
    }


def markdown_of(report: dict[str, Any]) -> str:
    """The text of report.md."""
    rows = report["rows"]
    made_up = "" if rows["real"] else say(" No real row could be read, so answers on real text may differ more often.")
    lengths = [length for _, length in report["shapes"]]
    batches = [size for size, _ in report["shapes"]]
    lead = say(
        "Task {}. Compared with the network on {} ({}), in batches of {} to {} rows and {} to {} tokens.{}",
        report["task"], say_counted(rows["count"], "rows"), rows["from"],
        min(batches), max(batches), min(lengths), max(lengths), made_up,
    )  # fmt: skip
    columns = [say("graph"), "MB", *say_each("engine", "precision", "largest difference", "same decisions")]
    columns.append(say("different decisions"))
    cells = [
        [
            graph["files"][0],
            Number(f"{graph['bytes'] / MB:,.1f}"),
            check["engine"],
            check["precision"],
            Number(f"{check['largest_difference']:.2g}"),
            Number(f"{check['agreement']:.2%}"),
            Number(check["changed"]),
        ]
        for graph in report["graphs"]
        for check in graph["checks"]
    ]
    tolerance = report["tolerance"]
    parts: list[Part] = [
        Table(columns, cells),
        say(
            "Tolerance: in fp32 a difference of {:.0e} (of the largest output, where that is above 1), in int8 {:.0%} "
            "same decisions. bf16 and fp16 are for information; Paddle computes the fp32 graph in them.",
            tolerance["fp32_difference"],
            tolerance["int8_agreement"],
        ),
    ]
    if report["calibration"] is not None:
        count, origin = report["calibration"]["count"], report["calibration"]["from"]
        parts.append(say("Graphs in 8 bits are calibrated on {} ({}).", say_counted(count, "rows"), origin))
    if report["refused"]:
        parts += [say("Left out:"), BulletList([f"{each['files'][0]}: {each['reason']}" for each in report["refused"]])]
    title = say("Export of {}", report["source"])
    return markdown_page(Report(title, lead, [Section("", parts)]), aligned=True, tight=True)
