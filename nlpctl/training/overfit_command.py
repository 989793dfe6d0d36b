"""`nlpctl train RECIPE --overfit-batch`: can the network learn one batch by heart? Writes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl import console
from nlpctl.config.checks import refuse_half_precision_on_cpu
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import resolved
from nlpctl.data.functions import parts_blamed
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.splits import read_training_data
from nlpctl.errors import RunFailed
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_libraries
from nlpctl.upstream.parameter_names import fresh_parameter_names

if TYPE_CHECKING:
    from nlpctl.training.fine_tune import Ready


# The network that a recipe would train, as it is before the first step.

@dataclass(frozen=True)
class UntrainedNetwork:
    """Its parameters by name; the trained ones among them that the gradient of a batch does not reach; those that are
    fitted in place of being trained."""

    arrays: Mapping[str, np.ndarray]
    unreached: Sequence[str]
    fitted: Sequence[str]


def ready_to_train(recipe: Recipe) -> Ready:
    """Read the data and build the network of `recipe` in this process. Writes nothing; UserError as for a training."""
    recipe = resolved(recipe)
    setup = prepare_process(recipe.runtime, recipe.training.seed)
    data = read_training_data(task_rows(recipe.task, recipe.data))
    configure_paddle(setup, recipe.training.seed)
    from nlpctl.tasks.base import make_task
    from nlpctl.training.fine_tune import make_ready

    quiet_libraries()
    with fresh_parameter_names():
        return make_ready(recipe, setup, make_task(recipe, data.labels), data)


def untrained_network(recipe: Recipe) -> UntrainedNetwork:
    """The network of `recipe`, and where the gradient of one batch goes."""
    ready = ready_to_train(recipe)
    from nlpctl.models.parameters import named, trains
    from nlpctl.training.fine_tune import fitted_parameters
    from nlpctl.training.guards import unreached
    from nlpctl.training.overfit import one_batch, training_loss

    network = ready.model.network
    arrays = {name: parameter.numpy() for name, parameter in named(network).items()}
    fitted = fitted_parameters(ready.task, network)
    network.train()
    if not trains(network):
        return UntrainedNetwork(arrays, (), fitted)
    with parts_blamed(recipe):
        training_loss(ready, one_batch(ready)).backward()
    return UntrainedNetwork(arrays, unreached(network), fitted)



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
