"""`nlpctl train RUN --continue N`: the recipe of the longer run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.own_code import with_names_of
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.layout import is_run
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.continuing import Finished, finished_run, require_finished

FLAG = "--continue"
_TOTAL = re.compile(r"-[\d.]+-(epochs|steps)$")


def run_to_continue(source: str) -> tuple[Finished, Recipe | None]:
    """The finished run that `source` names: a run directory, or a recipe, whose training.output_dir it is.

    With the recipe, if it is one.
    """
    folder = Path(source)
    recipe = None if folder.is_dir() else load_recipe(source, purpose="apply")
    run = RunDirectory(folder if recipe is None else recipe.run_dir)
    require_finished(run)
    return finished_run(run, recipe_of(run.path)), recipe


def recipe_to_continue(source: str) -> Recipe:
    """The recipe of that run, on a node that need not have it: there `source` names the recipe."""
    folder = Path(source)
    if folder.is_dir():
        return recipe_of(folder)
    try:
        recipe = load_recipe(source, purpose="apply")
    except UserError:
        if folder.exists():
            raise
        hint = "name its recipe here, or keep the run on storage that every node sees"
        raise UserError("neither the finished run nor a recipe is on this node", source, hint) from None
    return with_names_of(recipe_of(recipe.run_dir), recipe) if is_run(recipe.run_dir) else recipe


def longer(recipe: Recipe, run: Path, more: int) -> list[Override]:
    """The changes of the recipe of `run` for `more` epochs; more steps where it counts steps (training.max_steps).

    The folder of the new run is named after the total: outputs/quickstart-13-epochs.
    """
    if more < 1:
        raise UserError(f"{more} is no number of epochs", where=FLAG, hint="give 1 or more")
    training = recipe.training
    if training.max_steps > 0:
        name, unit, total = "max_steps", "steps", str(training.max_steps + more)
    else:
        name, unit, total = "num_train_epochs", "epochs", f"{training.num_train_epochs + more:.12g}"
    folder = _TOTAL.sub("", os.path.abspath(run)) + f"-{total}-{unit}"
    return [Override(f"training.{name}", total, FLAG), Override("training.output_dir", folder, FLAG)]
