"""best/: the chosen candidate as a separate export that records its engine and precision."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from nlpctl.compression.plan.scores import Row
from nlpctl.files import staged_dir
from nlpctl.layout import EXPORT_MANIFEST, REPORTS
from nlpctl.models.confidence import Calibration, write_calibration
from nlpctl.models.export_folder import Check, Chosen, ExportManifest, Graph, read_manifest, write_manifest


def write_best(row: Row, best: Path) -> None:
    """Write or replace the export `best` atomically: the graph of the row's candidate and the files it needs.

    Its export.json names the chosen engine and precision, and the results of the graph on dev. UserError if the
    candidate's folder is damaged.
    """
    folder = Path(row.folder)
    manifest = read_manifest(folder)
    graph = next(each for each in manifest.graphs if _runs(each, row))
    check = Check(row.engine, row.precision, row.difference, row.agreement)
    checked = dataclasses.replace(graph, checks=(check,))
    left_out = {EXPORT_MANIFEST, *REPORTS, *_files_of_others(manifest, graph)}
    with staged_dir(best) as staged:
        for path in folder.iterdir():
            if path.is_file() and path.name not in left_out:
                shutil.copyfile(path, staged / path.name)
        if row.calibration is not None:
            write_calibration(staged, Calibration.from_json(row.calibration))
        chosen = Chosen(row.engine, row.precision)
        write_manifest(staged, dataclasses.replace(manifest, graphs=(checked,), rows=row.rows, chosen=chosen))


def _runs(graph: Graph, row: Row) -> bool:
    """Whether the row was measured on `graph`."""
    format = "onnx" if row.engine == "onnxruntime" else "paddle"
    kept = row.precision if row.precision == "int8" else "fp32"
    return (graph.format, graph.precision, graph.method) == (format, kept, row.method)


def _files_of_others(manifest: ExportManifest, graph: Graph) -> set[str]:
    """The files of the other graphs, including the lists of variable names that Paddle writes."""
    files = {name for each in manifest.graphs if each.files != graph.files for name in each.files}
    return files | {f"{name}.info" for name in files}
