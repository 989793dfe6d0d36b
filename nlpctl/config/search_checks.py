"""Checks of section search that need the rest of the recipe."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.config.compression_keys import parse_budget
from nlpctl.config.finding import Check, Finding, value_of
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import scores, task_info


def _budget(recipe: Recipe) -> Iterator[Finding]:
    if recipe.search.budget is not None:
        try:
            parse_budget(recipe.search.budget)
        except ValueError as error:
            yield Finding(("search.budget",), f"search.budget: {error}", "write 30m, 1h30m or 90s")


def _metric(recipe: Recipe) -> Iterator[Finding]:
    known, metric = scores(recipe.task), recipe.search.metric
    if not known or metric is None:
        return
    name = metric.removeprefix("eval_")
    own = recipe.training.compute_metrics is not None and name != "loss"  # told by its first call
    if name not in known and not own:
        message = f"search.metric: reports of {recipe.task} have no score named {metric}"
        yield Finding(("search.metric", "task"), message, f"one of: {', '.join(known)}")


def _grid(recipe: Recipe) -> Iterator[Finding]:
    if recipe.search.sampler == "grid":
        for dotted, axis in recipe.search.space.items():
            if axis.points is None:
                keys = (f"search.space.{dotted}", "search.sampler")
                hint = "name the values, or give uniform a step; or set search.sampler: tpe"
                yield Finding(keys, f"search.space.{dotted}: a grid has single values, and this is {axis.told}", hint)


def _sections(recipe: Recipe) -> Iterator[Finding]:
    """A key of a section that is null would have no place."""
    for dotted in recipe.search.space:
        names = dotted.split(".")
        for place in (".".join(names[:count]) for count in range(2, len(names))):
            if value_of(recipe, place) is None:
                hint = f"write {place}: {{}} to have the section, or leave it out"
                yield Finding((f"search.space.{dotted}",), f"search.space.{dotted}: the recipe has no {place}", hint)
                break


def _labels(recipe: Recipe) -> Iterator[Finding]:
    """Without data.labels, they are those of the training rows, and so others for each trial."""
    task = task_info(recipe.task)
    given = recipe.data.labels is not None or recipe.data.numbered_labels is not None
    if task is not None and task.labelled and not given and "data.train" in recipe.search.space:
        message = "search.space.data.train: trials with other rows may have other labels, which no score compares"
        yield Finding(("search.space.data.train",), message, "write data.labels: [A, B] for all of them")


SEARCH_CHECKS: tuple[Check, ...] = (_budget, _metric, _grid, _sections, _labels)
