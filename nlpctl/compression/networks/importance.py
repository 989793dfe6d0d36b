"""The importance of attention heads and neurons, and which of them a narrower network keeps.

The importance of a part is the first-order change of the loss without it: |activation x gradient| of its output
(Molchanov et al., 2017; for heads: Michel et al., 2019, equation 2). The output of a head is its slice of the input
of `out_proj`; that of a neuron is one element of the input of `linear2`. As in DynaBERT (Hou et al., 2020, section
2.1) parts are ranked within their layer, and every layer keeps the same share.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from nlpctl.data.collate import Batch, raise_failure
from nlpctl.models.pruned import Kept, PrunedShape, encoder_layers
from nlpctl.tasks.base import Task, as_tuple
from nlpctl.training.user_loss import Loss


@dataclass(frozen=True)
class Importance:
    """Per layer, float64 [heads] and [neurons]: the mean over the rows, in the units of the loss."""

    heads: tuple[np.ndarray, ...]
    neurons: tuple[np.ndarray, ...]

    def keep(self, shape: PrunedShape) -> Kept:
        """The most important ones, as many as `shape` has, in the order of the network."""
        return Kept(
            tuple(_largest(values, count) for values, count in zip(self.heads, shape.heads, strict=True)),
            tuple(_largest(values, count) for values, count in zip(self.neurons, shape.neurons, strict=True)),
        )


def measure_importance(
    network: paddle.nn.Layer,
    task: Task,
    features: Sequence[Any],
    collate: Callable[[Sequence[Any]], Batch],
    loss: Loss,
    batch_size: int,
) -> Importance:
    """The importance for `loss` on labelled `features`. Weights and mode of the network do not change.

    UserError: the network has no layers that can be pruned, or a batch cannot be made.
    """
    layers = encoder_layers(network)
    heads = [np.zeros(layer.self_attn.num_heads) for layer in layers]
    neurons = [np.zeros(layer.linear1.weight.shape[1]) for layer in layers]
    generator = np.random.default_rng(0)
    was_training = network.training
    network.eval()
    rows = 0
    for start in range(0, len(features), batch_size):
        batch = collate(features[start : start + batch_size])
        raise_failure(batch)
        batch = task.hide(batch, generator) if task.hides else batch
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        labels = {name: tensors.pop(name) for name in task.label_names}
        count = len(next(iter(tensors.values())))
        with _inputs([each for layer in layers for each in (layer.self_attn.out_proj, layer.linear2)]) as passed:
            loss(network, as_tuple(network(**tensors)), labels).backward()
        # The loss is a mean over the rows; multiplied by their count, each row's gradient is independent of the batch.
        effects = [_effects(tensor) * count for tensor in passed]
        calls = len(effects) // (2 * len(layers))  # an encoder of pairs is called twice
        for layer in range(len(layers)):
            for call in range(calls):
                place = 2 * (call * len(layers) + layer)
                of_heads = effects[place].reshape(len(effects[place]), len(heads[layer]), -1).sum(-1)
                # The absolute value per row: effects of different signs must not cancel out.
                heads[layer] += np.abs(of_heads).sum(0)
                neurons[layer] += np.abs(effects[place + 1]).sum(0)
        network.clear_gradients()
        rows += count
    if was_training:
        network.train()
    return Importance(tuple(each / rows for each in heads), tuple(each / rows for each in neurons))


@contextlib.contextmanager
def _inputs(layers: Sequence[paddle.nn.Layer]) -> Iterator[list[paddle.Tensor]]:
    """Collects the inputs of `layers` inside the context, per call, with their gradients."""
    passed: list[paddle.Tensor] = []

    def note(layer: paddle.nn.Layer, inputs: tuple[paddle.Tensor, ...]) -> None:
        # Paddle frees the gradients of inner tensors otherwise.
        inputs[0].retain_grads()
        passed.append(inputs[0])

    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        yield passed
    finally:
        for hook in hooks:
            hook.remove()


def _effects(passed: paddle.Tensor) -> np.ndarray:
    """[rows, width]: activation times gradient, summed over the positions of [rows, length, width]."""
    return (passed * passed.grad).astype("float32").sum(1).numpy().astype(np.float64)


def _largest(values: np.ndarray, count: int) -> tuple[int, ...]:
    return tuple(sorted(np.argsort(-values, kind="stable")[:count].tolist()))
