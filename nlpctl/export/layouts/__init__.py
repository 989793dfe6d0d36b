"""Exports arranged as other servers want their models, a module each.

A module of LAYOUTS has

    FORMAT: str
        of the graphs that it takes
    write_repository(export: Path, manifest: ExportManifest, repository: Path, name: str) -> None
        fill the empty folder `repository` with the model called `name`; `export` is a complete export
    is_repository(folder: Path) -> bool
        whether it was written by write_repository, and may be replaced
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
