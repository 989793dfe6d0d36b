"""`nlpctl train RECIPE --overfit-batch`: can the network learn one batch by heart? Writes nothing.

If it cannot, network, loss and labels do not work together, and no schedule or amount of data will help.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl import console
from nlpctl.config.checks import refuse_half_precision_on_cpu
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import resolve_by_model
from nlpctl.config.user_code import user_code_blamed
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import RunFailed, UserError
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_libraries
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.upstream.parameter_names import fresh_parameter_names

if TYPE_CHECKING:
    import paddle

    from nlpctl.training.prepare import PreparedTraining

    Batch = Mapping[str, paddle.Tensor]

STEPS = 200  # unless --max_steps is given
NEAR_ZERO = 0.05  # share of the first loss at which a batch counts as learned
FACTORS = (1.0, 0.1, 10.0)  # of training.learning_rate, in the order in which they are tried
EVERY = 20  # steps between two notes


@dataclass(frozen=True)
class Attempt:
    """One learning rate: the loss before the first step, the loss at the end, and the steps that it took."""

    learning_rate: float
    first_loss: float
    last_loss: float
    steps: int

    @property
    def learned(self) -> bool:
        """Whether the loss came near zero."""
        return math.isfinite(self.last_loss) and self.last_loss <= NEAR_ZERO * self.first_loss


def overfit_batch(recipe: Recipe) -> dict[str, Any]:
    """Learn one batch of the training rows by heart, and return what was tried, JSON-prepared.

    RunFailed if no learning rate brings the loss near zero; UserError as for `train`.
    """
    # One process, and a loss that can reach zero.
    runtime = dataclasses.replace(recipe.runtime, nproc=1, devices=recipe.runtime.devices[:1])
    recipe = dataclasses.replace(recipe, runtime=runtime, loss=dataclasses.replace(recipe.loss, label_smoothing=0.0))
    if recipe.runtime.device == "cpu":
        refuse_half_precision_on_cpu(recipe, cpu_info().trains_in_bfloat16)
    prepared = ready_to_train(recipe)
    # The steps of --max_steps; what the recipe says is meant for its training.
    given, steps = recipe.origins.get("training.max_steps"), recipe.training.max_steps
    by_flag = given is not None and given.source.startswith("--") and steps > 0
    attempts = learn_one_batch(prepared, steps if by_flag else STEPS)
    last = attempts[-1]
    if not last.learned:
        tried = ", ".join(f"{a.first_loss:.4f} -> {a.last_loss:.4f} at {a.learning_rate:.3g}" for a in attempts)
        hint = (
            "check that equal texts of the batch have equal labels, that what matters is not frozen (`nlpctl params ls "
            "RECIPE`), the loss and the initial values; @[training.max_steps=N] tries longer"
        )
        raise RunFailed(f"the network does not learn even one batch by heart: loss {tried}", str(recipe.run_dir), hint)
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
    return {"learned": last.learned, "attempts": [dataclasses.asdict(attempt) for attempt in attempts]}


def ready_to_train(recipe: Recipe) -> PreparedTraining:
    """Read the data and build the network of `recipe` in this process. Writes nothing; UserError as for a training."""
    recipe = resolve_by_model(recipe)
    setup = prepare_process(recipe.runtime, recipe.training.seed)
    data = read_training_data(task_rows(recipe.task, recipe.data))
    configure_paddle(setup, recipe.training.seed)
    from nlpctl.tasks.base import make_task
    from nlpctl.training.prepare import describe_start, prepare_training

    quiet_libraries()
    with fresh_parameter_names():
        prepared = prepare_training(recipe, setup, make_task(recipe, data.labels), data)
    describe_start(prepared.model)
    return prepared


# -- learning ----------------------------------------------------------------------------------------


def learn_one_batch(prepared: PreparedTraining, steps: int) -> list[Attempt]:
    """Train the network of `prepared` on one batch, at most `steps` steps; at other learning rates if one fails.

    Without dropout, weight decay and warm-up, which are against learning by heart. Writes nothing.
    """
    from nlpctl.models.parameters import trains
    from nlpctl.training.fast_cpu import fast_cpu

    network = prepared.model.network
    if not trains(network):
        message = "nothing is left that gradients train, so there is nothing to learn by heart"
        hint = "freeze less, or train without @[overfit-batch]"
        raise UserError(message, prepared.recipe.where("model.freeze"), hint)
    batch = one_batch(prepared)
    _switch_off_dropout(network)
    network.train()
    start = {name: value.numpy() for name, value in network.state_dict().items()}
    attempts: list[Attempt] = []
    with user_code_blamed(prepared.recipe), fast_cpu(prepared.recipe, prepared.setup.device, network):
        for factor in FACTORS:
            network.set_state_dict(start)
            attempts.append(_attempt(prepared, batch, prepared.recipe.training.learning_rate * factor, steps))
            if attempts[-1].learned:
                break
    return attempts


def _attempt(prepared: PreparedTraining, batch: Batch, learning_rate: float, steps: int) -> Attempt:
    optimizer = _optimizer(prepared, learning_rate)
    first = loss = math.nan
    for step in range(steps + 1):
        value = training_loss(prepared, batch)
        loss = float(value)
        first = loss if step == 0 else first
        if step % EVERY == 0:
            console.note(f"learning rate {learning_rate:.3g}, step {step}/{steps}: loss {loss:.4f}")
        if step == steps or not math.isfinite(loss) or loss <= NEAR_ZERO * first:
            break
        value.backward()
        optimizer.step()
        optimizer.clear_grad()
    optimizer.clear_grad()
    return Attempt(learning_rate, first, loss, step)


def training_loss(prepared: PreparedTraining, batch: Batch) -> paddle.Tensor:
    """The loss of a batch of `one_batch`, as in training."""
    task, network, inputs = prepared.task, prepared.model.network, dict(batch)
    labels = {name: inputs.pop(name) for name in task.label_names}
    return prepared.user_code.training_loss(task)(network, network, inputs, labels)


def _optimizer(prepared: PreparedTraining, learning_rate: float) -> paddle.optimizer.Optimizer:
    """The recipe's, or the user's own, at one learning rate."""
    import paddle

    from nlpctl.training.arguments import training_arguments
    from nlpctl.training.optimizer import build_optimizer

    recipe = prepared.recipe
    factor = learning_rate / recipe.training.learning_rate
    training = dataclasses.replace(recipe.training, learning_rate=learning_rate, weight_decay=0.0)
    groups = tuple(
        dataclasses.replace(
            group,
            learning_rate=None if group.learning_rate is None else group.learning_rate * factor,
            weight_decay=None if group.weight_decay is None else 0.0,
        )
        for group in recipe.optimizer.groups
    )
    section = dataclasses.replace(recipe.optimizer, groups=groups)
    recipe = dataclasses.replace(recipe, training=training, optimizer=section)
    args = training_arguments(recipe, RunDirectory(recipe.run_dir), prepared.setup.device)
    constant = paddle.optimizer.lr.LambdaDecay(learning_rate, lambda step: 1.0)
    if prepared.user_code.make_optimizer is None:
        return build_optimizer(prepared.model.network, recipe.optimizer, args, constant)
    optimizer = prepared.user_code.optimizer(prepared.model.network, args)
    optimizer.set_lr_scheduler(constant)
    return optimizer


def _switch_off_dropout(network: paddle.nn.Layer) -> None:
    """The network stays in training mode, which recurrent layers on a GPU need for gradients."""
    import paddle

    for layer in network.sublayers(include_self=True):
        for name, value in vars(layer).items():
            if isinstance(value, float) and (name.endswith("dropout") or isinstance(layer, paddle.nn.Dropout)):
                vars(layer)[name] = 0.0


# -- the batch ---------------------------------------------------------------------------------------


def one_batch(prepared: PreparedTraining) -> Batch:
    """per_device_train_batch_size rows, drawn by the seed; the first ones of a stream. Masks stay the same."""
    import paddle

    from nlpctl.data.batches.collate import raise_failure

    task = prepared.task
    generator = np.random.default_rng(prepared.recipe.training.seed)
    arrays = prepared.user_code.collator(task, prepared.encoder)(_features(prepared, generator))
    raise_failure(arrays)
    if task.masks_inputs:
        arrays = task.apply_mask(arrays, generator)
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


def _features(prepared: PreparedTraining, generator: np.random.Generator) -> Sequence[Any]:
    """As many as a batch has, of as many rows; of rows with several, drawn from all of them."""
    from nlpctl.training.batches import training_cut

    data, size = prepared.data, prepared.recipe.training.per_device_train_batch_size
    cut = training_cut(prepared.task, data, prepared.encoder)
    if data.train is None:
        return list(islice((part for example in data.training_examples() for part in cut(example)), size))
    rows = generator.permutation(len(data.train))[:size].tolist()
    parts = [part for i in rows for part in cut(data.train[i])]
    return parts if len(parts) <= size else [parts[i] for i in generator.permutation(len(parts))[:size].tolist()]


# -- for `nlpctl params ls RECIPE` -------------------------------------------------------------------


@dataclass(frozen=True)
class UntrainedNetwork:
    """The network that a recipe would train, before the first step: its parameters by name; the trained ones among them
    that the gradient of a batch does not reach; those that are fitted in place of being trained."""

    arrays: Mapping[str, np.ndarray]
    unreached: Sequence[str]
    fitted: Sequence[str]


def untrained_network(recipe: Recipe) -> UntrainedNetwork:
    """The network of `recipe`, and where the gradient of one batch goes."""
    prepared = ready_to_train(recipe)
    from nlpctl.models.parameters import named, trains
    from nlpctl.training.guards import unreached
    from nlpctl.training.prepare import fitted_parameters

    network = prepared.model.network
    arrays = {name: parameter.numpy() for name, parameter in named(network).items()}
    fitted = fitted_parameters(prepared.task, network)
    network.train()
    if not trains(network):
        return UntrainedNetwork(arrays, (), fitted)
    with user_code_blamed(recipe):
        training_loss(prepared, one_batch(prepared)).backward()
    return UntrainedNetwork(arrays, unreached(network), fitted)
