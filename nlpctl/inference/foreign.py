"""Graph files that are not those which their export describes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.models.export_folder import ExportManifest

AGAIN = "export the model again: nlpctl export"


def check_graph(file: Path, manifest: ExportManifest, inputs: Collection[str], outputs: int) -> None:
    """UserError where a graph takes other `inputs`, or gives another number of `outputs`, than the export says."""
    expected = [spec.name for spec in manifest.inputs]
    if sorted(inputs) != sorted(expected):
        message = f"this graph takes {_listed(inputs)}, but its export feeds {_listed(expected)}"
        raise UserError(message, str(file), f"it is of another model: {AGAIN}")
    if outputs != len(manifest.outputs):
        message = f"this graph has {outputs} outputs, but its export reads {len(manifest.outputs)}"
        raise UserError(message, str(file), f"it is of another model: {AGAIN}")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
