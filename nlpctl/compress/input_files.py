"""The files that a compression reads next to its source: data, and the files that networks depend on. Imports no
Paddle."""

from __future__ import annotations

from pathlib import Path

from nlpctl.config.own_code import module_file
from nlpctl.config.schema import ModelSection, Recipe
from nlpctl.data.open_split import SPLITS, files_of
from nlpctl.errors import UserError
from nlpctl.models.model_manifest import parts_of
from nlpctl.models.source import resolve_source


def data_files(recipe: Recipe) -> list[tuple[str, Path]]:
    """The files that determine the rows, including the modules of data.reader, map and filter; each with the place that
    names it (Recipe.where)."""
    data = recipe.data
    found = [(recipe.where(f"data.{split}"), Path(name)) for split in SPLITS for name in files_of(data, split)]
    for key, names in (("data.reader", (data.reader,)), ("data.map", data.map), ("data.filter", data.filter)):
        for name in names:
            found += _of_function(recipe, key, name)
    return [(where, path) for where, path in found if path.is_file()]


def extra_files(recipe: Recipe) -> tuple[Path, ...]:
    """The files that a distillation reads besides its data."""
    section = recipe.distillation
    return tuple(Path(path) for path in (*section.unlabelled, *((section.student,) if section.student else ())))


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


def files_of_networks(recipe: Recipe) -> list[tuple[str, Path]]:
    """All files that networks depend on: those of a distillation, its student's model, compression.criterion.

    Each with the place that names it (Recipe.where); the files of a student's model with the student's recipe.
    """
    section, student = recipe.distillation, recipe.student
    found = [(recipe.where("distillation.unlabelled"), Path(path)) for path in section.unlabelled]
    if section.student is None:
        found += _of_model(section.model, "distillation.model", recipe)
    else:
        found.append((recipe.where("distillation.student"), Path(section.student)))
        found += [] if student is None else _of_model(student.model, "model", student)
    found += _of_function(recipe, "compression.criterion", recipe.compression.criterion)
    found += _of_function(recipe, "training.criterion", recipe.training.criterion)
    return [(where, path) for where, path in found if path.is_file()]


def _of_model(model: ModelSection, key: str, recipe: Recipe) -> list[tuple[str, Path]]:
    """The files named by a model section, `key` of `recipe`, including files in its folders."""
    scratch = model.from_scratch
    names = [
        ("embeddings", model.embeddings),
        ("from_scratch.dictionaries", None if scratch is None else scratch.dictionaries),
        *((f"set_parameters.{name}", value) for name, value in model.set_parameters.items()),
        ("add_tokens", model.add_tokens),
    ]
    paths = [(name, Path(value)) for name, value in names if isinstance(value, str)]
    if model.name_or_path is not None and Path(model.name_or_path).is_dir():
        folder = resolve_source(model.name_or_path).folder
        paths += [] if folder is None else [("name_or_path", folder)]
    return [
        (recipe.where(f"{key}.{name}"), file)
        for name, path in paths
        for file in (parts_of(path) if path.is_dir() else [path])
    ]


def _of_function(recipe: Recipe, key: str, name: str | None) -> list[tuple[str, Path]]:
    """The module file of the function that `key` names; a wrong name is reported elsewhere."""
    module = None if name is None else module_file(name)
    return [] if module is None else [(recipe.where(key), module)]
