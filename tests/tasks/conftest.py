"""Tasks without a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.labels import LabelSet


@pytest.fixture
def make_task_of(tmp_path) -> Callable:
    """`make_task_of(name, labels, thresholds, retrieval={...})`: a task with the defaults of a recipe."""

    def make(name, labels=(), thresholds=None, **sections):
        from nlpctl.tasks.base import make_task

        (tmp_path / "recipe.yaml").write_text(f"task: {name}\n")
        recipe: Recipe = load_recipe(tmp_path / "recipe.yaml", purpose="apply")
        changed = {key: dataclasses.replace(vars(recipe)[key], **values) for key, values in sections.items()}
        return make_task(dataclasses.replace(recipe, **changed), LabelSet(labels), thresholds)

    return make
