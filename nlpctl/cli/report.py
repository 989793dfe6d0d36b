"""`nlpctl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write; default: RUN/report.html.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of -o.")] = False,
) -> None:
    """Write a run as one HTML page that needs no network.

    Curves of loss, learning rate and dev scores, score tables, confusion matrix, the rows that the model is most wrong
    about, the recipe, the manifest. Training writes it when it has ended; of a run that goes on, failed or was
    stopped it shows what there is.

    Examples:

      nlpctl report outputs/quickstart

      nlpctl report outputs/quickstart -o quickstart.html
    """
    from nlpctl.runners.report import write_report

    console.result(str(write_report(run, output, overwrite=overwrite)))
