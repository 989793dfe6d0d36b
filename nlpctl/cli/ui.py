"""`nlpctl ui`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl.cli.output import LanguageOption


def ui(
    folder: Annotated[Path, typer.Argument(metavar="[OUTPUTS]", help="A run, or a folder of runs.")] = Path("outputs"),
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0: any free port.")] = 8020,
    language: LanguageOption = None,
) -> None:
    """Show the runs of a folder in the browser: list, compare, look into, and try their models.

    A page per run has its curves, scores, slices and worst errors, as `nlpctl report` writes them, and a form whose
    text the model answers; the model is loaded at the first text. A page of a running run renews itself. Anyone who
    reaches the address can read the runs: with --host, only on a network that you trust.

    Examples:

      nlpctl ui

      nlpctl ui outputs/quickstart --port 0
    """
    from nlpctl.ui.ui import show_ui

    show_ui(folder, host, port)
