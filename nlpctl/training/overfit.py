"""Learning one batch by heart: whether network, loss and labels can work together at all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import paddle

from nlpctl import console
from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.functions import parts_blamed
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.errors import UserError
from nlpctl.models.parameters import trains
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.arguments import training_arguments
from nlpctl.training.batches import training_cut
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.training.fine_tune import Ready
from nlpctl.training.optimizer import build_optimizer

NEAR_ZERO = 0.05  # share of the first loss at which a batch counts as learned
FACTORS = (1.0, 0.1, 10.0)  # of training.learning_rate, in the order in which they are tried
EVERY = 20  # steps between two notes

Batch = Mapping[str, paddle.Tensor]


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


def learn_one_batch(ready: Ready, steps: int) -> list[Attempt]:
    """Train the network of `ready` on one batch, at most `steps` steps; at other learning rates if one fails.

    Without dropout, weight decay and warm-up, which are against learning by heart. Writes nothing.
    """
    network = ready.model.network
    if not trains(network):
        message = "nothing is left that gradients train, so there is nothing to learn by heart"
        raise UserError(message, ready.recipe.where("model.freeze"), "freeze less, or train without --overfit-batch")
    batch = one_batch(ready)
    without_dropout(network)
    network.train()
    start = {name: value.numpy() for name, value in network.state_dict().items()}
    attempts: list[Attempt] = []
    with parts_blamed(ready.recipe), fast_cpu(ready.recipe, ready.setup.device, network):
        for factor in FACTORS:
            network.set_state_dict(start)
            attempts.append(_attempt(ready, batch, ready.recipe.training.learning_rate * factor, steps))
            if attempts[-1].learned:
                break
    return attempts


def _attempt(ready: Ready, batch: Batch, learning_rate: float, steps: int) -> Attempt:
    optimizer = _optimizer(ready, learning_rate)
    first = loss = math.nan
    for step in range(steps + 1):
        value = training_loss(ready, batch)
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


def training_loss(ready: Ready, batch: Batch) -> paddle.Tensor:
    """The loss of a batch of `one_batch`, as in training."""
    task, network, inputs = ready.task, ready.model.network, dict(batch)
    labels = {name: inputs.pop(name) for name in task.label_names}
    return ready.parts.training_loss(task)(network, network, inputs, labels)


def _optimizer(ready: Ready, learning_rate: float) -> paddle.optimizer.Optimizer:
    """The recipe's, or the user's own, at one learning rate."""
    recipe = ready.recipe
    training = dataclasses.replace(recipe.training, learning_rate=learning_rate, weight_decay=0.0)
    recipe = dataclasses.replace(recipe, training=training)
    args = training_arguments(recipe, RunDirectory(recipe.run_dir), ready.setup.device)
    constant = paddle.optimizer.lr.LambdaDecay(learning_rate, lambda step: 1.0)
    if ready.parts.make_optimizer is None:
        return build_optimizer(ready.model.network, recipe.optimizer, args, constant)
    optimizer = ready.parts.optimizer(ready.model.network, args)
    optimizer.set_lr_scheduler(constant)
    return optimizer


# -- the batch ---------------------------------------------------------------------------------------


def one_batch(ready: Ready) -> Batch:
    """per_device_train_batch_size rows, drawn by the seed; the first ones of a stream. Masks stay the same."""
    recipe, task = ready.recipe, ready.task
    encoder = build_encoder(ready.model.tokenizer, recipe.data.tokenizer)
    generator = np.random.default_rng(recipe.training.seed)
    features = _features(ready, encoder, generator)
    arrays = ready.parts.collator(task, encoder)(features)
    raise_failure(arrays)
    if task.hides:
        arrays = task.hide(arrays, generator)
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


def _features(ready: Ready, encoder: TextEncoder, generator: np.random.Generator) -> Sequence[Any]:
    """As many as a batch has, of as many rows; of rows with several, drawn from all of them."""
    data, size = ready.data, ready.recipe.training.per_device_train_batch_size
    cut = training_cut(ready.task, data, encoder)
    if data.train is None:
        return list(islice((part for example in data.training_examples() for part in cut(example)), size))
    rows = generator.permutation(len(data.train))[:size].tolist()
    parts = [part for i in rows for part in cut(data.train[i])]
    return parts if len(parts) <= size else [parts[i] for i in generator.permutation(len(parts))[:size].tolist()]


def without_dropout(network: paddle.nn.Layer) -> None:
    """Switch dropout off; the network stays in training mode, which recurrent layers on a GPU need for gradients."""
    for layer in network.sublayers(include_self=True):
        for name, value in vars(layer).items():
            if isinstance(value, float) and (name.endswith("dropout") or isinstance(layer, paddle.nn.Dropout)):
                vars(layer)[name] = 0.0
