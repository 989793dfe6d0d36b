"""`nlpctl ensemble`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import flags_of
from nlpctl.cli.output import Json, give, score_tables, tell_trained


def ensemble(
    ctx: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs or model folders; a folder of folds or seeds stands for its runs."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Run directory of the ensemble.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing run.")] = False,
    json: Json = False,
) -> None:
    """Make one model of several, whose answers are averaged.

    The result is a run with a model like any other, as slow as all of its members together: eval, predict, serve,
    export and compress take it, and `compress --strategy distill` teaches a small network by it.

    Examples:

      nlpctl ensemble outputs/folds -o outputs/ensemble

      nlpctl ensemble outputs/seed1 outputs/seed2 outputs/seed3 -o outputs/ensemble
    """
    from nlpctl.experiments.ensemble import ensemble as make_ensemble

    made = make_ensemble(models, output, overwrite=overwrite, command=sys.argv, given=flags_of(ctx))
    if json:
        give(made.to_json())
        return
    score_tables(made.metrics)
    console.note(f"model of {len(made.members)} networks")
    tell_trained(made.run, made.recipe, made.metrics)
