"""`few_shot.method: auto` and few_shot.pooling, decided by the model's files. Imports no Paddle."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from nlpctl import console
from nlpctl.config.schema import ModelSection, Recipe
from nlpctl.config.sentence_folder import POOLINGS, read_sentence_folder
from nlpctl.config.task_file import TaskFile
from nlpctl.config.tasks import USER_LOSS, find_task
from nlpctl.errors import UserError
from nlpctl.layout import TASK
from nlpctl.models.huggingface_layout import unwrapped
from nlpctl.models.source import read_config, resolve_source, weights_file
from nlpctl.models.weights import read_weights_file

# What the parameters of a language-model head begin with: in files of PaddleNLP, of nlpctl and of Hugging Face.
LANGUAGE_HEADS = ("cls.predictions.", "lm_head.", "generator_predictions.", "generator_lm_head", "decoder.")


def resolve_method(recipe: Recipe) -> Recipe:
    """`recipe` with a method in place of "auto", and the encoder's own pooling where the recipe leaves it out; the
    console says which, and why.

    UserError: there is no such model, or the recipe asks for what the method does not allow.
    """
    few_shot = recipe.few_shot
    if few_shot.method == "auto":
        few_shot = dataclasses.replace(few_shot, method=_method(recipe))
    named = recipe.origins.get("model.name_or_path")
    of_run = named is not None and named.opened is not None  # what its recipe leaves out was the default
    if few_shot.method == "contrastive" and recipe.leaves_out("few_shot.pooling") and not of_run:
        pooling = _own_pooling(recipe.model)
        if pooling in POOLINGS and pooling != few_shot.pooling:
            console.note(f"few_shot.pooling: {pooling}, as {recipe.model.name_or_path} makes vectors")
            few_shot = dataclasses.replace(few_shot, pooling=pooling)
    return recipe if few_shot is recipe.few_shot else dataclasses.replace(recipe, few_shot=few_shot)


def _method(recipe: Recipe) -> Literal["prompt", "contrastive"]:
    if recipe.prompt.template is None:
        has_head, reason = False, "the recipe has no prompt.template"
    else:
        has_head, reason = _language_head(recipe.model)
    method: Literal["prompt", "contrastive"] = "prompt" if has_head else "contrastive"
    console.note(f"few_shot.method auto: {method}, since {reason}")
    if method == "contrastive" and recipe.training.criterion is not None:
        message, hint = USER_LOSS
        raise UserError(message, recipe.where("training.criterion"), hint)
    return method


def _own_pooling(model: ModelSection) -> Any:
    """The pooling of an encoder that makes vectors of texts; None for any other model."""
    folder = None if model.name_or_path is None else resolve_source(model.name_or_path).folder
    if folder is None:
        return None
    task_file = TaskFile.load_if_exists(folder / TASK)
    if task_file is None:
        made = read_sentence_folder(folder)
        return None if made is None else made.pooling
    info = find_task(task_file.task)
    return task_file.sections.get("retrieval", {}).get("pooling") if info is not None and info.vectors else None


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
    names = unwrapped(read_weights_file(file).arrays, str(read_config(source.folder).get("model_type")))
    if any(name.startswith(LANGUAGE_HEADS) for name in names):
        return True, f"{file} holds a language-model head"
    return False, f"{file} holds no language-model head"
