"""`nlpctl calibrate`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import ModelArgument, load_command_recipe, scored_data
from nlpctl.cli.output import Json, give
from nlpctl.config.positions import located
from nlpctl.console import display
from nlpctl.layout import EXPORT, MODEL
from nlpctl.report.text import show_table


def calibrate(
    ctx: typer.Context,
    model: ModelArgument,
    data: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Labelled file to fit to; default: the data of the run.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="train, dev or test. Default: dev.")] = None,
    json: Json = False,
) -> None:
    """Fit the probabilities of a trained model to labelled data, so that 0.9 means right in 90 of 100 cases.

    Decisions and scores stay the same. The result, calibration.json, is kept with the model; exports that are made
    afterwards have it too. `nlpctl train` does the same at its end, unless training.calibrate is false.

    Examples:

      nlpctl calibrate outputs/quickstart

      nlpctl calibrate outputs/quickstart/export held_out.tsv
    """
    given = scored_data(data, () if split is None else (split,))
    recipe = load_command_recipe(model, ctx, given, purpose="apply")
    from nlpctl.modeltools.calibrate import calibrate as run_calibration
    from nlpctl.report.score_tables import confidence_tables

    if split == "train":
        console.warn("--split train: a model is surer of rows it was trained on, so its answers will claim too much")
    with located(recipe):
        made = run_calibration(recipe, "test" if data is not None else split or "dev")
    if json:
        give(made.to_json())
        return
    for table in confidence_tables({made.split: made.metrics}):
        show_table(table, apart=True)
    console.note(f"calibrated: {display(made.model)}; on rows that it was not fitted to, nlpctl eval tells how well")
    older = made.model.with_name(EXPORT)
    if made.model.name == MODEL and older.is_dir():
        again = f"nlpctl calibrate {shlex.quote(display(older))}, or export again"
        console.note(f"{display(older)} was made before and keeps its probabilities: {again}")
