"""Networks of a smaller width, distilled from the full one: DynaBERT (Hou et al., 2020), each width separately.

    source --importance--> its best heads and neurons --distillation--> a model folder of that width

PaddleNLP trains all widths as one network in which the narrow ones are parts of the wide ones. Here each width is cut
out of the source, which does not change, and trained separately. The loss is DynaBERT's: the cross entropy with the
source's probabilities, and HIDDEN_WEIGHT times the squared differences of the embeddings and of each layer's hidden
states.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from nlpctl import console
from nlpctl.compress.networks.layer_losses import mean_square
from nlpctl.compress.networks.soft_targets import SoftLoss, soft_loss
from nlpctl.compress.networks.training import START, load_source, network_recipe, read_data, train_network
from nlpctl.compress.user_code import label_loss
from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import Batch, raise_failure
from nlpctl.data.sample_rows import spread
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Head, family_of_config
from nlpctl.models.hooks import hooked
from nlpctl.models.load import LoadedModel
from nlpctl.models.network import build_network, make_config
from nlpctl.models.pruned import Kept, PrunedShape, encoder_layers, narrowable_layers, prune
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, as_tuple, make_task
from nlpctl.training.trainer import TrainingLoss
from nlpctl.training.user_loss import Loss

# --------------------------------------------------------------------------------------------------
# The importance of attention heads and neurons, and which of them a narrower network keeps.
#
# The importance of a part is the first-order change of the loss without it: |activation x gradient| of its output
# (Molchanov et al., 2017; for heads: Michel et al., 2019, equation 2). The output of a head is its slice of the input
# of `out_proj`; that of a neuron is one element of the input of `linear2`. As in DynaBERT (Hou et al., 2020, section
# 2.1) parts are ranked within their layer, and every layer keeps the same share.


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
        batch = task.apply_mask(batch, generator) if task.masks_inputs else batch
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

    with hooked(layer.register_forward_pre_hook(note) for layer in layers):
        yield passed


def _effects(passed: paddle.Tensor) -> np.ndarray:
    """[rows, width]: activation times gradient, summed over the positions of [rows, length, width]."""
    return (passed * passed.grad).astype("float32").sum(1).numpy().astype(np.float64)


def _largest(values: np.ndarray, count: int) -> tuple[int, ...]:
    return tuple(sorted(np.argsort(-values, kind="stable")[:count].tolist()))


IMPORTANCE_ROWS = 512  # training rows, evenly spread, for estimating importance
HIDDEN_WEIGHT = 0.1  # Hou et al., 2020, section 3; PaddleSlim's too
_STRATEGY = "compression.strategy"
_TEXTS = ("input_ids", "pair_ids", "negative_ids")  # keys of a batch, in the order of the network's arguments


def check(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """UserError if a model with this config.json cannot be narrowed for the recipe's task. Called before any work."""
    if config.get("model_type") in OWN.values():
        message = f"dynabert removes heads and neurons from transformer layers; {config['model_type']} has none"
        raise UserError(message, _STRATEGY, "use ort-dynamic or ptq; this network is already small")
    soft_loss(recipe)
    family = family_of_config(config, "config.json")
    # One layer is enough to see of which kind the layers are, and is built in milliseconds.
    one_layer = make_config(family, {**config, "num_hidden_layers": 1}, (), {})
    narrowable_layers(build_network(family, Head("Model"), one_layer, "config.json"), _STRATEGY)


def train_width(recipe: Recipe, source: str, width: Fraction, run: RunDirectory, setup: ProcessSetup) -> Path:
    """Train `source` at `width` (heads and neurons of each layer) in `run`; returns the folder of the best model.

    An interrupted training is resumed; a finished one is kept. The source is only read. UserError: it has no layers
    that can be narrowed, or the data does not fit. RunFailed: the training itself failed.
    Interrupted: Ctrl-C or SIGTERM; the next call resumes it.
    """
    if run.is_finished:
        return run.model
    teacher = load_source(recipe, source)
    encoder_layers(teacher.network, str(source))
    data = read_data(recipe, teacher)
    own = network_recipe(recipe, run, str(run.path.resolve() / START), teacher.labels)
    task = make_task(own, data.labels)
    loss = from_teacher(teacher.network, soft_loss(own))
    return train_network(own, run, setup, data, task, lambda: narrowed(own, source, width, data, task), loss=loss)


def narrowed(recipe: Recipe, source: str, width: Fraction, data: TrainingData, task: Task) -> LoadedModel:
    """`source` with the most important share `width` of heads and neurons per layer, not trained further."""
    model = load_source(recipe, source)
    encoder = build_encoder(model.tokenizer)
    rows = list(islice(data.training_examples(), IMPORTANCE_ROWS)) if data.train is None else data.train
    features = [feature for row in spread(rows, IMPORTANCE_ROWS) for feature in task.features(row, encoder)]
    # Long texts give several windows, so there may be more features than rows again.
    features = spread(features, IMPORTANCE_ROWS)
    features.sort(key=lambda feature: feature.byte_length)
    importance = measure_importance(
        model.network,
        task,
        features,
        task.collator(encoder, labelled=True),
        label_loss(recipe, task),
        recipe.training.per_device_train_batch_size,
    )
    before = PrunedShape.of(model.network)
    after = before.narrowed(width)
    prune(model.network, importance.keep(after))
    console.note(
        f"width {width}: {sum(after.heads)} of {sum(before.heads)} heads and {sum(after.neurons):,} of "
        f"{sum(before.neurons):,} neurons kept in {len(before.heads)} layers, by importance on {len(features)} rows"
    )
    return model


def from_teacher(teacher: paddle.nn.Layer, soft: SoftLoss) -> TrainingLoss:
    """DynaBERT's loss of a network with the layers of `teacher`, at any width."""

    def loss(
        network: paddle.nn.Layer,
        run: Callable[..., Any],
        inputs: Mapping[str, paddle.Tensor],
        labels: Mapping[str, paddle.Tensor],
    ) -> paddle.Tensor:
        with hidden_states(network) as mine:
            outputs = as_tuple(run(**inputs))
        with paddle.no_grad(), hidden_states(teacher) as theirs:
            targets = as_tuple(teacher(**inputs))
        texts = [inputs[name] for name in _TEXTS if name in inputs]
        masks = [(ids != network.config.pad_token_id).astype("float32") for ids in texts]
        return soft(outputs, targets, labels) + HIDDEN_WEIGHT * state_distance(mine, theirs, masks)

    return loss


def state_distance(
    mine: Sequence[paddle.Tensor], theirs: Sequence[paddle.Tensor], masks: Sequence[paddle.Tensor]
) -> paddle.Tensor:
    """The sum over embeddings and layers of the mean squared difference of hidden states, at unmasked tokens.

    States are [rows, length, width]; per mask [rows, length] there are as many as layers plus one.
    """
    # An encoder of pairs is called once per text; its states follow each other.
    depth = len(mine) // len(masks)
    distance = paddle.zeros([])
    for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        distance = distance + mean_square(one.astype("float32"), other.astype("float32"), masks[place // depth])
    return distance / len(masks)


@contextlib.contextmanager
def hidden_states(network: paddle.nn.Layer) -> Iterator[list[paddle.Tensor]]:
    """Collects hidden states of `network` inside the context: per encoder call the input, then each layer's output."""
    layers = encoder_layers(network)
    states: list[paddle.Tensor] = []
    hooks = [layers[0].register_forward_pre_hook(lambda layer, inputs: states.append(inputs[0]))]
    hooks += [
        layer.register_forward_post_hook(
            lambda layer, inputs, output: states.append(output[0] if isinstance(output, tuple | list) else output)
        )
        for layer in layers
    ]
    with hooked(hooks):
        yield states
