"""`nlpctl train RECIPE --overfit-batch`: can the network learn one batch by heart? Writes nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from nlpctl import console
from nlpctl.config.checks import refuse_half_precision_on_cpu
from nlpctl.config.schema import Recipe
from nlpctl.errors import RunFailed
from nlpctl.runners.untrained import ready_to_train
from nlpctl.runtime.cpu import cpu_info

STEPS = 200  # unless --max_steps is given


def overfit_batch(recipe: Recipe) -> dict[str, Any]:
    """Learn one batch of the training rows by heart, and return what was tried, JSON-ready.

    RunFailed if no learning rate brings the loss near zero; UserError as for `train`.
    """
    recipe = _for_one_batch(recipe)
    if recipe.runtime.device == "cpu":
        refuse_half_precision_on_cpu(recipe, cpu_info().trains_in_bfloat16)
    ready = ready_to_train(recipe)
    from nlpctl.training.overfit import learn_one_batch

    attempts = learn_one_batch(ready, _steps(recipe))
    found = {"learned": attempts[-1].learned, "attempts": [dataclasses.asdict(each) for each in attempts]}
    if not attempts[-1].learned:
        raise _failure(recipe, found)
    _tell(recipe, attempts)
    return found


def _for_one_batch(recipe: Recipe) -> Recipe:
    """One process, and a loss that can reach zero."""
    runtime = dataclasses.replace(recipe.runtime, nproc=1, devices=recipe.runtime.devices[:1])
    return dataclasses.replace(recipe, runtime=runtime, loss=dataclasses.replace(recipe.loss, label_smoothing=0.0))


def _steps(recipe: Recipe) -> int:
    """Those of --max_steps; what a recipe says is meant for its training."""
    given = recipe.origins.get("training.max_steps")
    flag = given is not None and given.source.startswith("--")
    return recipe.training.max_steps if flag and recipe.training.max_steps > 0 else STEPS


def _tell(recipe: Recipe, attempts: list[Any]) -> None:
    last = attempts[-1]
    console.note(
        f"learned one batch of {recipe.training.per_device_train_batch_size} rows by heart in {last.steps} steps: loss "
        f"{last.first_loss:.4f} -> {last.last_loss:.4f} at learning rate {last.learning_rate:.3g}"
    )
    if len(attempts) == 1:
        console.note("network, loss and labels can learn; if the whole data do not, look at labels, batch and schedule")
    else:
        console.note(
            f"training.learning_rate, {recipe.training.learning_rate:.3g}, did not: set it to {last.learning_rate:.3g}"
        )


def _failure(recipe: Recipe, found: dict[str, Any]) -> RunFailed:
    tried = ", ".join(
        f"{each['first_loss']:.4f} -> {each['last_loss']:.4f} at {each['learning_rate']:.3g}"
        for each in found["attempts"]
    )
    hint = (
        "check that equal texts of the batch have equal labels, that what matters is not frozen (`nlpctl params ls "
        "RECIPE`), the loss and the initial values; --max_steps N tries longer"
    )
    return RunFailed(f"the network does not learn even one batch by heart: loss {tried}", str(recipe.run_dir), hint)
