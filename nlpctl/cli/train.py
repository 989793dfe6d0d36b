"""`nlpctl train`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.envelope import Json, give
from nlpctl.cli.options import load_command_recipe
from nlpctl.cli.tables import score_tables
from nlpctl.config.located import located
from nlpctl.errors import UserError
from nlpctl.runtime.ranks import is_child


def train(
    ctx: typer.Context,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="Recipe file, name of a shipped recipe, or run directory.")
    ],
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint.")] = False,
    more: Annotated[
        int | None,
        typer.Option("--continue", metavar="N", help="Train a finished run for N more epochs, in a new run."),
    ] = None,
    overfit: Annotated[
        bool, typer.Option("--overfit-batch", help="Only test whether the network can learn one batch by heart.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing run.")] = False,
    json: Json = False,
) -> None:
    """Train a model, keep the best, score it on dev and test.

    Everything is written to training.output_dir: recipe, manifest, events, checkpoints, model, metrics, and
    report.html, a page of all of this.

    Examples:

      nlpctl train recipes/quickstart/quickstart.yaml

      nlpctl train my.yaml --device gpu --learning_rate 3e-5 --set data.max_seq_length=256

      nlpctl train my.yaml --resume

      nlpctl train outputs/my_run --continue 2

      nlpctl train my.yaml --overfit-batch --max_steps 300
    """
    if overfit:
        _overfit_batch(recipe, ctx, json, forbidden={"--resume": resume, "--continue": more, "--overwrite": overwrite})
        return
    origin, given = None, []
    if more is not None:
        from nlpctl.runners.continued import longer, run_to_continue

        origin = run_to_continue(recipe)
        recipe, given = str(origin.run.path), longer(origin, more)
    resolved = load_command_recipe(recipe, ctx, given)
    from nlpctl.runners.train import train as run_training

    with located(resolved):
        result = run_training(resolved, resume=resume, overwrite=overwrite, origin=origin, command=sys.argv)
    if is_child():
        return
    if json:
        give({"run": result.run.path, "model": result.run.model, "metrics": result.metrics})
    else:
        score_tables(result.metrics)
        console.note(f"model: {result.run.model}")


def _overfit_batch(recipe: str, ctx: typer.Context, json: bool, forbidden: Mapping[str, Any]) -> None:
    """Exit 0 if one batch is learned by heart, 1 if not."""
    for flag, given in forbidden.items():
        if given:
            raise UserError(f"{flag} and --overfit-batch cannot be combined", where=flag, hint="keep one of them")
    resolved = load_command_recipe(recipe, ctx)
    from nlpctl.runners.overfit import overfit_batch

    with located(resolved):
        found = overfit_batch(resolved)
    if json:
        give(found)
