"""The folder nlpctl/ next to a graph on another server: files that a client needs to encode inputs and read outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

from nlpctl.layout import EXPORT_MANIFEST, REPORTS
from nlpctl.models.export_folder import ExportManifest

OWN = "nlpctl"
_OF_GRAPHS = (".pdmodel", ".pdiparams", ".info", ".onnx")


def copy_own_files(export: Path, manifest: ExportManifest, folder: Path) -> None:
    """Copy config, tokenizer, labels and task of an export, without its graphs, to nlpctl/ in `folder`."""
    graphs = {name for graph in manifest.graphs for name in graph.files}
    target = folder / OWN
    target.mkdir(parents=True)
    for path in sorted(export.iterdir()):
        of_graph = path.name in graphs or path.suffix in _OF_GRAPHS
        if path.is_file() and not of_graph and path.name not in (EXPORT_MANIFEST, *REPORTS):
            shutil.copyfile(path, target / path.name)
