"""The user's own parts of a training, imported in a process of its own: the parent of several must stay without Paddle,
which most parts import."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from nlpctl.config.own_code import named_parts, part_of
from nlpctl.config.schema import Recipe
from nlpctl.data.functions import import_part
from nlpctl.runtime.process import one_process, prepare_process
from nlpctl.runtime.worker import Worker, listen_for_interrupts
from nlpctl.training.user_loss import import_loss

CRITERION = part_of("training.criterion")
_GRACE = 5.0  # seconds


def check_imports(recipe: Recipe) -> None:
    """UserError if a part that `recipe` names cannot be imported, or takes other arguments.

    Functions over rows are left out where this process calls them anyway.
    """
    named = [(part, name) for part, name in named_parts(recipe)
             if not part.key.startswith("data.") or recipe.data.dataset is not None]  # fmt: skip
    if not named:
        return
    worker = Worker(_opened, recipe, grace=_GRACE, daemon=True)
    try:
        worker.start()
        for part, name in named:
            worker.ask((part, name), part.key)
    finally:
        worker.end()


def _opened(recipe: Recipe) -> Callable[[Any], None]:
    listen_for_interrupts()
    # An import must not take memory of the GPUs, which are for the processes of the training.
    prepare_process(dataclasses.replace(one_process(recipe.runtime), device="cpu", devices=()), recipe.training.seed)
    return _import


def _import(named: Any) -> None:
    part, name = named
    if part == CRITERION:
        import_loss(name, part.key)
    else:
        import_part(part, name)
