"""best/: the chosen candidate as an export of its own, which says how it is to be run."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from nlpctl.compression.plan.scores import Row
from nlpctl.files import staged_dir
from nlpctl.layout import EXPORT_MANIFEST
from nlpctl.models.export_folder import REPORTS, Check, Chosen, ExportManifest, Graph, read_manifest, write_manifest


def write_best(row: Row, best: Path) -> None:
    """Write or replace the export `best`: of the row's candidate the graph it runs, and what a graph needs.

    Its export.json names engine and precision as chosen, and holds what the graph made of the dev rows. Whole or not
    at all. UserError where the candidate's folder is damaged.
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
        chosen = Chosen(row.engine, row.precision)
        write_manifest(staged, dataclasses.replace(manifest, graphs=(checked,), rows=row.rows, chosen=chosen))


def _runs(graph: Graph, row: Row) -> bool:
    """Whether `graph` is the one that the row was measured on."""
    format = "onnx" if row.engine == "onnxruntime" else "paddle"
    kept = row.precision if row.precision == "int8" else "fp32"
    return (graph.format, graph.precision, graph.method) == (format, kept, row.method)


def _files_of_others(manifest: ExportManifest, graph: Graph) -> set[str]:
    """Those of the other graphs, with the names of variables that Paddle writes beside a graph."""
    files = {name for each in manifest.graphs if each.files != graph.files for name in each.files}
    return files | {f"{name}.info" for name in files}
