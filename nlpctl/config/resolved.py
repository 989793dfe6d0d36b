"""What a recipe leaves open: decided before a training, and read from its run by commands that name the recipe."""

from __future__ import annotations

import dataclasses

from nlpctl.config.schema import Recipe
from nlpctl.config.task_file import TaskFile
from nlpctl.config.tasks import load, task_info
from nlpctl.layout import MODEL, TASK

OPEN = "auto"


def resolved(recipe: Recipe) -> Recipe:
    """`recipe` with what only the files of its model decide, for whatever builds the task that it would train."""
    info = task_info(recipe.task)
    settle = None if info is None else info.settle
    return recipe if settle is None else load(settle)(recipe)


def as_trained(recipe: Recipe) -> Recipe:
    """`recipe` with the few-shot method that its run was trained with, in place of "auto"; unchanged without a run."""
    if recipe.few_shot.method != OPEN:
        return recipe
    saved = TaskFile.load_if_valid(recipe.run_dir / MODEL / TASK)  # whoever opens the model says what is damaged
    method = None if saved is None else saved.sections.get("few_shot", {}).get("method")
    if method not in ("prompt", "contrastive"):
        return recipe
    return dataclasses.replace(recipe, few_shot=dataclasses.replace(recipe.few_shot, method=method))
