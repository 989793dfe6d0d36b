"""`nlpctl eval`."""

from __future__ import annotations

from typing import Annotated

import typer

from nlpctl.cli.envelope import Json, give
from nlpctl.cli.options import EngineOption, ModelArgument, PrecisionOption, engine_overrides, load_command_recipe
from nlpctl.cli.tables import score_tables
from nlpctl.config.load import Override
from nlpctl.config.located import located
from nlpctl.errors import UserError


def evaluate(
    ctx: typer.Context,
    model: ModelArgument,
    data: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Labelled file to score; default: the data of the run.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", help="train, dev or test; repeatable. Default: dev and test.")
    ] = None,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    json: Json = False,
) -> None:
    """Score a trained model on labelled data.

    Examples:

      nlpctl eval outputs/quickstart

      nlpctl eval outputs/quickstart/model more.tsv --json
    """
    if data is not None and split:
        raise UserError("--split does not apply to a file", "--split", "leave one of them out")
    given = () if data is None else (Override("data.test", data, "FILE"), Override("data.dataset", "null", "FILE"))
    recipe = load_command_recipe(model, ctx, [*given, *engine_overrides(engine, precision)], purpose="apply")
    from nlpctl.runners.evaluate import evaluate as run_evaluation

    with located(recipe):
        result = run_evaluation(recipe, ("test",) if data is not None else tuple(split or ()))
    if json:
        give({"model": result.model, "metrics": result.metrics})
    else:
        score_tables(result.metrics)
