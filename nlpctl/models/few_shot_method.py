"""`few_shot.method: auto`, decided by the model's files. Imports no Paddle."""

from __future__ import annotations

import dataclasses

from nlpctl import console
from nlpctl.config.schema import ModelSection, Recipe
from nlpctl.config.tasks import OWN_LOSS
from nlpctl.errors import UserError
from nlpctl.models.source import resolve_source, weights_file
from nlpctl.models.weights import read_weights_file

# What the parameters of a language-model head begin with: in files of PaddleNLP, of nlpctl and of Hugging Face.
LANGUAGE_HEADS = ("cls.predictions.", "lm_head.", "generator_predictions.", "generator_lm_head")


def settled(recipe: Recipe) -> Recipe:
    """`recipe` with a method in place of "auto"; says which, and why.

    UserError: there is no such model, or the recipe asks for what the method does not allow.
    """
    if recipe.few_shot.method != "auto":
        return recipe
    method, reason = _decision(recipe)
    console.note(f"few_shot.method auto: {method}, since {reason}")
    if method == "contrastive" and recipe.training.criterion is not None:
        message, hint = OWN_LOSS
        raise UserError(message, recipe.where("training.criterion"), hint)
    return dataclasses.replace(recipe, few_shot=dataclasses.replace(recipe.few_shot, method=method))


def _decision(recipe: Recipe) -> tuple[str, str]:
    """The method, and the reason for it."""
    if recipe.prompt.template is None:
        return "contrastive", "the recipe has no prompt.template"
    found, reason = _language_head(recipe.model)
    return ("prompt" if found else "contrastive"), reason


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
