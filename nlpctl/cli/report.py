"""`nlpctl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.output import Json, LanguageOption, give


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write; default: RUN/report.html.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing file.")] = False,
    language: LanguageOption = None,
    json: Json = False,
) -> None:
    """Write a run as one HTML page that works offline.

    Curves of loss, learning rate and dev scores, score tables, confusion matrix, the worst errors, the recipe, the
    manifest. Training writes the page at its end. For a running, failed or stopped run it shows what is available.

    Examples:

      nlpctl report outputs/quickstart

      nlpctl report outputs/quickstart -o quickstart.html
    """
    from nlpctl.runs.report import write_report

    written = write_report(run, output, overwrite=overwrite)
    give({"report": written})
    console.result(str(written))
