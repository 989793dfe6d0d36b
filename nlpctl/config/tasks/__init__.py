"""The known tasks. To add one, write its module here and its code, and add a line to KNOWN_TASKS."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from nlpctl.config.tasks.few_shot_classification import FEW_SHOT_CLASSIFICATION
from nlpctl.config.tasks.info import TaskInfo
from nlpctl.config.tasks.lexical_analysis import LEXICAL_ANALYSIS
from nlpctl.config.tasks.masked_language_model import MASKED_LANGUAGE_MODEL
from nlpctl.config.tasks.multi_label_classification import MULTI_LABEL_CLASSIFICATION
from nlpctl.config.tasks.question_answering import QUESTION_ANSWERING
from nlpctl.config.tasks.semantic_indexing import SEMANTIC_INDEXING
from nlpctl.config.tasks.sequence_classification import SEQUENCE_CLASSIFICATION
from nlpctl.config.tasks.text_matching import TEXT_MATCHING
from nlpctl.config.tasks.token_classification import TOKEN_CLASSIFICATION
from nlpctl.errors import UserError
from nlpctl.names import nearest

if TYPE_CHECKING:
    from nlpctl.config.schema import Recipe

KNOWN_TASKS = (
    SEQUENCE_CLASSIFICATION,
    MULTI_LABEL_CLASSIFICATION,
    TEXT_MATCHING,
    SEMANTIC_INDEXING,
    QUESTION_ANSWERING,
    TOKEN_CLASSIFICATION,
    LEXICAL_ANALYSIS,
    MASKED_LANGUAGE_MODEL,
    FEW_SHOT_CLASSIFICATION,
)
OTHERS = "NLPCTL_TASKS"  # package.module:NAME,... of TaskInfos elsewhere; processes that nlpctl starts inherit it


def known_tasks() -> tuple[TaskInfo, ...]:
    """nlpctl's tasks, then those that NLPCTL_TASKS names. UserError if it names none."""
    names = [name.strip() for name in os.environ.get(OTHERS, "").split(",")]
    return (*KNOWN_TASKS, *(_imported(name) for name in names if name))


def task_info(name: str) -> TaskInfo | None:
    """The task called `name`, None if there is none."""
    return next((task for task in known_tasks() if task.name == name), None)


def nearest_task(name: str) -> str | None:
    """The task that is probably meant by an unknown name: one that the Hugging Face hub calls so, or a similar name."""
    tasks = known_tasks()
    called = (task.name for task in tasks if task.pipeline == name.replace("_", "-").lower())
    return next(called, None) or nearest(name, [task.name for task in tasks])


def scores(name: str) -> tuple[str, ...]:
    """The scores of the task called `name`, the most telling first; "loss" is not among them."""
    info = task_info(name)
    return () if info is None else tuple(metric for metric in info.metrics if metric != "loss")


def greater_is_better(recipe: Recipe, metric: str) -> bool:
    """Whether more of `metric` is better: as the recipe says of the score that it watches, else as the task does."""
    given, watched = recipe.training.greater_is_better, recipe.training.metric_for_best_model
    if given is not None and watched is not None and watched.removeprefix("eval_") == metric.removeprefix("eval_"):
        return given
    task = task_info(recipe.task)
    assert task is not None, "the recipe's checks have made sure"
    return task.greater_is_better(metric)


def _imported(name: str) -> TaskInfo:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module of somebody's own may raise
        hint = "write package.module:NAME; modules are looked for in PYTHONPATH and among the installed packages"
        raise UserError(f"cannot import {name}: {type(error).__name__}: {error}", where=OTHERS, hint=hint) from None
    if not isinstance(found, TaskInfo):
        raise UserError(f"{name} is not an nlpctl.config.tasks.info.TaskInfo", where=OTHERS, hint="name a TaskInfo")
    if any(found.name == task.name for task in KNOWN_TASKS):
        raise UserError(f"nlpctl already has a task {found.name}", where=OTHERS, hint="use another name for yours")
    return found
