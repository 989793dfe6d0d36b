"""`nlpctl export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl.cli.options import load_command_recipe
from nlpctl.config.located import located
from nlpctl.runtime import console


def export(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Run directory, model folder, or the recipe of a run.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write; default: RUN/export.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FILE", help="Rows to compare on; default: those of the run's dev or test."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many rows are compared.")] = 256,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
) -> None:
    """Write a trained model as graphs that answer without its code.

    Examples:

      nlpctl export outputs/quickstart
    """
    recipe = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.runners.export import export as run_export
    from nlpctl.runners.trained import find_trained_model

    with located(recipe):
        source = find_trained_model(recipe)
        result = run_export(recipe, source, output=output, overwrite=overwrite, data=data, rows=rows)
    for graph in result.manifest.graphs:
        for check in graph.checks:
            console.note(
                f"{graph.files[0]}: {check.engine} {check.precision}, largest difference {check.difference:.2g}, "
                f"{check.agreement:.2%} decided alike"
            )
    console.result(str(result.folder))
