"""MODEL: what a command, or `nlpctl.load`, is given in place of a model's files.

    a path                run directory, model folder, checkpoint, export, or the recipe of a run
    task:NAME             a ready model (models/ready_models.py); its folder is made once, in the cache folder
    python:PACKAGE/PATH   a folder inside an installed package
    hf:ORG/NAME@REVISION  a repository of the Hugging Face hub, downloaded once to its cache
    a name                a recipe that comes with nlpctl, or an encoder of PaddleNLP's hub
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nlpctl.config.hub_names import HF_PREFIX, PYTHON_PREFIX, hub_names
from nlpctl.config.library import is_recipe
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.positions import located
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Purpose, Recipe
from nlpctl.errors import UserError
from nlpctl.models.hugging_face_hub import snapshot_folder
from nlpctl.models.ready_models import PREFIX, ready_model
from nlpctl.models.sentence_model import take_sentence_model
from nlpctl.models.source import ModelSource, package_folder, resolve_source
from nlpctl.runtime.cache import cache_folder, usable_cache_folder


def load_model_recipe(model: Any, overrides: Sequence[Override], purpose: Purpose) -> Recipe:
    """The recipe of `model` with `overrides`, the cache folder among them. `purpose`: see Purpose (config/schema.py).

    UserError with every problem.
    """
    caches = [each.text for each in overrides if each.key == "runtime.cache_dir"]
    recipe = load_recipe(named_model(model, str(caches[-1]) if caches else None), overrides, purpose)
    if purpose == "train":  # whoever trains asks for the model's files when it needs them
        return recipe
    with located(recipe):
        return take_sentence_model(recipe)


def named_model(model: Any, cache: str | None = None) -> Any:
    """The path or name that load_recipe takes for `model`. `cache`: runtime.cache_dir where it is given.

    UserError: there is no such ready model, package or repository, or its files cannot be had.
    """
    if not isinstance(model, str):
        return model
    if model.startswith(PYTHON_PREFIX):
        return str(package_folder(model))
    if model.startswith(HF_PREFIX):
        return str(snapshot_folder(model))
    if not model.startswith(PREFIX):
        return model
    from nlpctl.inference.ready_models import ready_folder  # most commands start without it

    entry = ready_model(model.removeprefix(PREFIX))
    folder = cache_folder(os.environ) if cache is None else Path(cache).expanduser().absolute()
    return str(ready_folder(entry, usable_cache_folder(folder, "runtime.cache_dir")))


def model_with_weights(model: str) -> ModelSource:
    """The folder or hub name of `model`, for a command that reads its parameters and needs no task.

    UserError: there is none, or it is an export, whose graphs do not name parameters.
    """
    named = named_model(model)
    if is_recipe(named):
        from nlpctl.models.find import find_trained_model

        named = find_trained_model(recipe_of(Path(named)))
    source = resolve_source(named)
    if source.folder is None and named not in hub_names():
        hint = "give a run directory, a model folder, hf:ORG/NAME, or a name of PaddleNLP's hub"
        raise UserError("there is no such folder", where=model, hint=hint)
    if source.kind == "export":
        hint = "give the run or the model folder that it was made from"
        raise UserError("this is an export: its graphs have no parameters by name", where=model, hint=hint)
    return source
