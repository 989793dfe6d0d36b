"""Exports in the layout of other programs. Those of weights.py hold the network's weights (hugging_face.py), those of
LAYOUTS the graphs of an export, for another server, one module each.

A module of LAYOUTS has

    FORMAT: str
        the format of the graphs that it needs
    holds(precision: str) -> bool
        whether it takes graphs of a precision such as fp32, int8 or int8-dynamic
    write_repository(export: Path, manifest: ExportManifest, repository: Path, name: str) -> None
        fill the empty folder `repository` with the model `name`; `export` is a complete export
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

LAYOUTS: dict[str, str] = {
    "triton": "nlpctl.export.layouts.triton",
    "paddle-serving": "nlpctl.export.layouts.paddle_serving",
}


def layout(name: str) -> ModuleType:
    """The module of a layout; KeyError for another name."""
    return import_module(LAYOUTS[name])
