"""`nlpctl eval`."""

from __future__ import annotations

from typing import Annotated

import typer

from nlpctl.cli.options import load_command_recipe
from nlpctl.cli.tables import score_tables
from nlpctl.config.located import located
from nlpctl.data.sources import SPLITS
from nlpctl.errors import UserError
from nlpctl.runtime import console


def evaluate(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Run directory, model folder, or the recipe of a run.")],
    split: Annotated[
        list[str] | None, typer.Option("--split", help="train, dev or test; repeatable. Default: dev and test.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a trained model on labelled data.

    Examples:

      nlpctl eval outputs/quickstart

      nlpctl eval outputs/quickstart/model --set data.test=more.tsv --json
    """
    for name in split or ():
        if name not in SPLITS:
            raise UserError(f"there is no split {name!r}", where="--split", hint=f"one of {', '.join(SPLITS)}")
    recipe = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.runners.evaluate import evaluate as run_evaluation

    with located(recipe):
        result = run_evaluation(recipe, tuple(split or ()))
    if json:
        console.print_json({"model": result.model, "metrics": result.metrics})
    else:
        score_tables(result.metrics)
