"""The recipe of each folder and process.

What a user names on the command line is read by config/load.py, with the flags laid over it. Everything else that has
a recipe is asked here: a folder that nlpctl wrote, an export next to the recipe of its source, a student. Runners, and
processes as they begin, call these functions and hand the Recipe on; nothing below them reads one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.keys import keys_of, use_of
from nlpctl.config.load import load_recipe
from nlpctl.config.own_code import of_folder, with_names_of
from nlpctl.config.schema import DataSection, Recipe, with_value


def recipe_of(folder: Path, named_by: Recipe | None = None) -> Recipe:
    """The recipe of a folder: from recipe.yaml in a run; from task.json in a model folder, checkpoint or export.

    The latter holds how text is read and answered; all else is the default, and there are no data. `named_by`: the
    recipe of the command; code of the folder that it names too may be imported (own_code.py). UserError: the folder is
    none of these, or damaged.
    """
    recipe = load_recipe(folder, purpose="apply", reads_files=False)
    return recipe if named_by is None else with_names_of(recipe, named_by)


def recipe_for_export(recipe: Recipe, export: Path) -> Recipe:
    """`recipe` for an export whose text encoding may differ, as that of a student; data and runtime are kept."""
    own = recipe_of(export, named_by=recipe)
    return dataclasses.replace(recipe, model=own.model, data=with_reading(recipe.data, own.data))


def with_reading(data: DataSection, own: DataSection) -> DataSection:
    """`data`, read as a network reads text whose recipe has the section `own`."""
    tokens = [name for name in keys_of(DataSection, "data") if use_of(f"data.{name}").role == "tokens"]
    return dataclasses.replace(data, **{name: getattr(own, name) for name in tokens})


def recipe_of_network(recipe: Recipe, run: Path) -> Recipe:
    """The recipe that a network of a compression was trained with in `run`, for the process that `recipe` asks for."""
    own = recipe_of(run, named_by=recipe)
    return dataclasses.replace(own, runtime=recipe.runtime, inference=recipe.inference)


def with_student(recipe: Recipe) -> Recipe:
    """`recipe` with what distillation.student names as `recipe.student`; without one where there is no such file.

    Only a distillation needs it, and says so. UserError: the file is no recipe.
    """
    name = recipe.distillation.student
    if name is None or not Path(name).exists():
        return dataclasses.replace(recipe, student=None)
    student, opened = load_recipe(name, purpose="apply"), recipe.origins["distillation.student"].opened
    return dataclasses.replace(recipe, student=student if opened is None else of_folder(student, opened))


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """`recipe` with other values of some keys, such as training.max_steps, a name in a mapping such as model.config,
    or of a student's own recipe, student.training.max_steps."""
    for key, value in settings.items():
        recipe = with_value(recipe, key, value)
    return recipe
