"""The files that the networks of a compression are made of, beside the source and its data. Imports no Paddle."""

from __future__ import annotations

from pathlib import Path

from nlpctl.config.load import load_recipe
from nlpctl.config.model_section import ModelSection
from nlpctl.config.schema import Recipe
from nlpctl.data.functions import module_file
from nlpctl.errors import UserError
from nlpctl.models.source import resolve_source


def extra_files(recipe: Recipe) -> tuple[Path, ...]:
    """The files that a distillation reads beside its data."""
    section = recipe.distillation
    return tuple(Path(path) for path in (*section.unlabelled, *((section.student,) if section.student else ())))


def read_student(recipe: Recipe) -> Recipe | None:
    """The recipe that distillation.student names; None where it names none. UserError: it cannot be used."""
    if recipe.distillation.student is None:
        return None
    given = load_recipe(recipe.distillation.student, purpose="apply")
    if given.task != recipe.task:
        message = f"the student's task is {given.task}, the teacher's {recipe.task}"
        raise UserError(message, recipe.distillation.student, "give it the same task")
    return given


def files_of_networks(recipe: Recipe) -> list[Path]:
    """All files that decide about networks: those of a distillation, its student's model, compression.criterion."""
    found = list(extra_files(recipe))
    section = recipe.distillation
    if section.student is None:
        found += _of_model(section.model)
    elif Path(section.student).is_file():
        found += _of_model(load_recipe(section.student, purpose="apply").model)
    if recipe.compression.criterion is not None:
        module = module_file(recipe.compression.criterion)  # hooks tell what is wrong with it
        found += [] if module is None else [module]
    return [path for path in found if path.is_file()]


def _of_model(model: ModelSection) -> list[Path]:
    """The files that a section model names, those in its folders too."""
    scratch = model.from_scratch
    names = [model.embeddings, None if scratch is None else scratch.dictionaries, *model.set_parameters.values()]
    names.append(model.add_tokens)
    paths = [Path(name) for name in names if isinstance(name, str)]
    if model.name_or_path is not None and Path(model.name_or_path).is_dir():
        paths.append(resolve_source(model.name_or_path).folder)
    return [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
