"""`nlpctl sweep`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import ClusterOption, load_command_recipe
from nlpctl.cli.output import Json, give, tell_next
from nlpctl.config.load import Override
from nlpctl.config.positions import located
from nlpctl.console import display
from nlpctl.layout import REPORT
from nlpctl.report.language import say
from nlpctl.report.model import Table
from nlpctl.report.text import show_table

if TYPE_CHECKING:
    from nlpctl.experiments.sweep_result import SweepResult

TRIALS_SHOWN = 5  # trials in the table


def sweep(
    ctx: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe with a section search.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="For the trials; default: OUTPUT_DIR-sweep.")
    ] = None,
    trials: Annotated[
        str | None, typer.Option("--trials", metavar="N", help="How many trials, in place of search.trials.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time budget, such as 30m or 8h.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=256, metavar="N", help="Trials side by side, a card or cores each."),
    ] = None,
    cluster: ClusterOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what has ended and go on.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing sweep.")] = False,
    json: Json = False,
) -> None:
    """Train with other values of some keys, and find the best: learning rate, batch size, anything in the recipe.

    The section search of the recipe says what is tried (docs/sweep.md). Each trial is an ordinary run; one that does
    worse than the others is stopped. FOLDER/best.yaml is the best recipe, FOLDER/report.html the page.

    Examples:

      nlpctl sweep my.yaml --trials 30

      nlpctl sweep my.yaml --budget 8h --workers 4 --devices 0,1,2,3

      nlpctl sweep my.yaml --trials 100 --cluster auto

      nlpctl sweep my.yaml --resume --trials 60
    """
    given = {"trials": trials, "budget": budget}
    overrides = [Override(f"search.{name}", text, f"--{name}") for name, text in given.items() if text is not None]
    resolved = load_command_recipe(recipe, ctx, overrides)
    from nlpctl.experiments.sweep import sweep as run_sweep

    with located(resolved):
        result = run_sweep(
            resolved, output, workers=workers, cluster=cluster, resume=resume, overwrite=overwrite, command=sys.argv
        )
    if json:
        give(result.to_json())
    else:
        _show(result)


def _show(result: SweepResult) -> None:
    from nlpctl.config.recipe_text import value_text
    from nlpctl.experiments.sweep_result import BEST, short_names
    from nlpctl.report.score_tables import single_scores

    keys = list(result.space.space)
    rows = [
        [each.name, each.score, *(value_text(each.values[key]) if key in each.values else "" for key in keys)]
        for each in result.ranking[:TRIALS_SHOWN]
    ]
    show_table(Table([say("trial"), say("{} on {}", result.metric, "dev"), *short_names(keys)], rows))
    console.result(say(result.told))
    if result.test is not None:
        score = single_scores(result.test)[result.metric]
        console.result(say("on test: {} {:.4f}", result.metric, score))
    for name, share in result.importance.items():
        console.note(say("importance {:.0%}: {}", share, name))
    best = display(result.folder / BEST)
    console.note(say("the best recipe: {}", best))
    console.note(say("report: {}", display(result.folder / REPORT)))
    tell_next(f"nlpctl train {shlex.quote(best)}")
