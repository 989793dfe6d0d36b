"""The network that a recipe would train, as it is before the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.config.settled import settled
from nlpctl.data.functions import parts_blamed
from nlpctl.data.splits import read_training_data
from nlpctl.data.task_rows import task_rows
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_libraries
from nlpctl.upstream.parameter_names import fresh_parameter_names

if TYPE_CHECKING:
    from nlpctl.training.fine_tune import Ready


@dataclass(frozen=True)
class UntrainedNetwork:
    """Its parameters by name; the trained ones among them that the gradient of a batch does not reach; those that are
    fitted in place of being trained."""

    arrays: Mapping[str, np.ndarray]
    unreached: Sequence[str]
    fitted: Sequence[str]


def ready_to_train(recipe: Recipe) -> Ready:
    """Read the data and build the network of `recipe` in this process. Writes nothing; UserError as for a training."""
    recipe = settled(recipe)
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
