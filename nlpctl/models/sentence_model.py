"""A recipe whose model.name_or_path is a name (hf:ORG/NAME, python:PACKAGE/PATH) of a folder of sentence-transformers.

config/load.py does the same for a path; a name has no folder before its files are there. Imports no Paddle.
"""

from __future__ import annotations

from dataclasses import replace

from nlpctl.config.checks import refuse_unknown_prompt
from nlpctl.config.hub_names import PREFIXES
from nlpctl.config.keys import all_keys
from nlpctl.config.saved_model import sentence_values
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.models.source import resolve_source

_KEYS = tuple(key for key in all_keys() if key.startswith("retrieval."))


def take_sentence_model(recipe: Recipe) -> Recipe:
    """`recipe` with what the folder says of vectors, where the recipe leaves it out; as it is for any other model.

    UserError: there is no such folder, it makes vectors as nlpctl cannot, or there is no prompt of the name that the
    recipe gives.
    """
    if not task_info(recipe.task).vectors:
        return recipe
    recipe = _with_folder(recipe, recipe.model.name_or_path or "")
    refuse_unknown_prompt(recipe)
    return recipe


def _with_folder(recipe: Recipe, name: str) -> Recipe:
    if not name.startswith(PREFIXES):
        return recipe
    said = (recipe.origins.get(key) for key in ("model.name_or_path", *_KEYS))
    if any(origin is not None and origin.opened is not None for origin in said):  # a run or its model has said it
        return recipe
    folder = resolve_source(name).folder
    given = not recipe.leaves_out("retrieval.pooling")
    values = None if folder is None else sentence_values(folder, pooling_given=given)
    if values is None:
        return recipe
    retrieval = {key: value for key, value in values["retrieval"].items() if recipe.leaves_out(f"retrieval.{key}")}
    retrieval["prompts"] = {**values["retrieval"]["prompts"], **recipe.retrieval.prompts}
    data = {key: value for key, value in values["data"].items() if recipe.leaves_out(f"data.{key}")}
    return replace(
        recipe, retrieval=replace(recipe.retrieval, **retrieval), data=replace(recipe.data, **data)
    )
