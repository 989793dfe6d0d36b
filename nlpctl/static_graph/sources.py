"""Reading a static-graph source: which layout it has is told by what is in its files, not by their names."""

from __future__ import annotations

from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.static_graph.variables import StaticModel


def read_static(source: Path) -> StaticModel:
    """Read any source. The arrays stay valid, also those of an archive, whose temporary folder is gone again.

    Raises UserError when the format is unknown, or a file is damaged, unsafe or not what the program declares.
    """
    raise UserError("not written yet", where=str(source))
