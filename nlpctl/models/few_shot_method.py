"""`few_shot.method: auto`, decided by the model's files. Imports no Paddle."""

from __future__ import annotations

import dataclasses
from typing import Literal

from nlpctl import console
from nlpctl.config.schema import ModelSection, Recipe
from nlpctl.config.tasks import OWN_LOSS
from nlpctl.errors import UserError
from nlpctl.models.source import resolve_source, weights_file
from nlpctl.models.weights import read_weights_file

# What the parameters of a language-model head begin with: in files of PaddleNLP, of nlpctl and of Hugging Face.
LANGUAGE_HEADS = ("cls.predictions.", "lm_head.", "generator_predictions.", "generator_lm_head", "decoder.")


def resolve_method(recipe: Recipe) -> Recipe:
    """`recipe` with a method in place of "auto"; the console says which, and why.

    UserError: there is no such model, or the recipe asks for what the method does not allow.
    """
    if recipe.few_shot.method != "auto":
        return recipe
    if recipe.prompt.template is None:
        has_head, reason = False, "the recipe has no prompt.template"
    else:
        has_head, reason = _language_head(recipe.model)
    method: Literal["prompt", "contrastive"] = "prompt" if has_head else "contrastive"
    console.note(f"few_shot.method auto: {method}, since {reason}")
    if method == "contrastive" and recipe.training.criterion is not None:
        message, hint = OWN_LOSS
        raise UserError(message, recipe.where("training.criterion"), hint)
    return dataclasses.replace(recipe, few_shot=dataclasses.replace(recipe.few_shot, method=method))


def _language_head(model: ModelSection) -> tuple[bool, str]:
    """Whether the model comes with a trained language-model head, and how that is known."""
    if model.name_or_path is None:
        return False, "an encoder from scratch cannot predict words"
    source = resolve_source(model.name_or_path)
    if source.folder is None:
        return True, f"{source.name} is a model of a hub, which comes with its language-model head"
    file = weights_file(source.folder)
    if file is None:  # an export, which cannot be trained: loading it says so
        return False, f"{source.name} holds no weights"
    if any(name.startswith(LANGUAGE_HEADS) for name in read_weights_file(file).arrays):
        return True, f"{file} holds a language-model head"
    return False, f"{file} holds no language-model head"
