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

from nlpctl.config.keys import all_keys, keys_of, use_of
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import DataSection, DistillationSection, ModelSection, Recipe, value_of, with_value
from nlpctl.config.user_code import of_folder, with_names_of
from nlpctl.errors import UserError


def recipe_of(folder: Path, named_by: Recipe | None = None) -> Recipe:
    """The recipe of a folder: from recipe.yaml in a run; from task.json in a model folder, checkpoint or export.

    The latter holds how text is read and answered; all else is the default, and there are no data. `named_by`: the
    recipe of the command; code of the folder that it names too may be imported (user_code.py). UserError: the folder is
    none of these, or damaged.
    """
    recipe = load_recipe(folder, purpose="apply", reads_files=False)
    return recipe if named_by is None else with_names_of(recipe, named_by)


def recipe_for_export(recipe: Recipe, export: Path) -> Recipe:
    """`recipe` for an export whose text encoding may differ, as that of a student; data and runtime are kept."""
    return read_like(recipe, recipe_of(export, named_by=recipe))


def read_like(recipe: Recipe, own: Recipe) -> Recipe:
    """`recipe`, reading text as the network does that was trained or exported with the recipe `own`."""
    return dataclasses.replace(recipe, model=own.model, data=with_reading(recipe.data, own.data))


def answering_like(recipe: Recipe, own: Recipe) -> Recipe:
    """`recipe`, reading text and answering as a folder does that has the recipe `own`, also where a flag says
    otherwise."""
    names = [name for name in all_keys() if use_of(name).role == "answers"]
    origins = {name: origin for name, origin in recipe.origins.items() if name not in names}
    answering = with_settings(read_like(recipe, own), {name: value_of(own, name) for name in names})
    return dataclasses.replace(answering, origins=origins)


def with_reading(data: DataSection, own: DataSection) -> DataSection:
    """`data`, read as a network reads text whose recipe has the section `own`."""
    tokens = [name for name in keys_of(DataSection, "data") if use_of(f"data.{name}").role == "tokens"]
    return dataclasses.replace(data, **{name: getattr(own, name) for name in tokens})


def with_process_of(own: Recipe, recipe: Recipe) -> Recipe:
    """`own`, the recipe that a network of this command was trained with, for the process that `recipe`, that of the
    command, asks for. What a flag says goes before what the training found out, such as thresholds."""
    flags = {key: origin for key, origin in recipe.origins.items() if origin.by_flag}
    return dataclasses.replace(
        own, runtime=recipe.runtime, inference=recipe.inference, origins={**own.origins, **flags}
    )


def with_student(recipe: Recipe) -> Recipe:
    """`recipe` with what distillation.student names as `recipe.student`; without one where there is no such file.

    Only a distillation needs it, and says so. UserError: the file is no recipe.
    """
    name = recipe.distillation.student
    if name is None or not Path(name).exists():
        return dataclasses.replace(recipe, student=None)
    student, opened = load_recipe(name, purpose="apply"), recipe.origins["distillation.student"].opened
    return dataclasses.replace(recipe, student=student if opened is None else of_folder(student, opened))


def usable_student(recipe: Recipe) -> Recipe | None:
    """The student's own recipe, Recipe.student; None if distillation.student is not set. UserError: it cannot be
    used."""
    name, student = recipe.distillation.student, recipe.student
    if name is not None and student is None:
        hint = "relative paths start at the recipe"
        raise UserError("there is no such recipe", recipe.where("distillation.student"), hint)
    if student is not None and student.task != recipe.task:
        message = f"the student's task is {student.task}, the teacher's {recipe.task}"
        raise UserError(message, str(name), "give it the same task")
    return student


def student_model(recipe: Recipe) -> ModelSection:
    """The model section of the student: from its own recipe, else distillation.model. UserError: see usable_student."""
    student = usable_student(recipe)
    return recipe.distillation.model if student is None else student.model


def with_own_schedule(training: Any, section: DistillationSection) -> Any:
    """Section training with the learning rate and the epochs of `section`, where these are set."""
    if section.learning_rate is not None:
        training = dataclasses.replace(training, learning_rate=section.learning_rate)
    if section.num_train_epochs is not None:  # max_steps would go before them
        training = dataclasses.replace(training, num_train_epochs=section.num_train_epochs, max_steps=-1)
    return training


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """`recipe` with other values of some keys, such as training.max_steps, a name in a mapping such as model.config,
    or of a student's own recipe, student.training.max_steps."""
    for key, value in settings.items():
        recipe = with_value(recipe, key, value)
    return recipe
