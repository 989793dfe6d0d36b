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
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import paddle

from nlpctl import console
from nlpctl.compression.networks.importance import measure_importance
from nlpctl.compression.networks.soft_targets import SoftLoss, soft_loss
from nlpctl.compression.networks.training import (
    START,
    load_source,
    network_recipe,
    read_data,
    train_network,
)
from nlpctl.compression.user_functions import label_loss
from nlpctl.config.schema import Recipe
from nlpctl.data.encoders import build_encoder
from nlpctl.data.sample_rows import spread
from nlpctl.data.splits import TrainingData
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Head, family_of_config
from nlpctl.models.load import LoadedModel
from nlpctl.models.network import build_network, make_config
from nlpctl.models.pruned import PrunedShape, encoder_layers, prune
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, as_tuple, make_task
from nlpctl.training.trainer import TrainingLoss

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
    encoder_layers(build_network(family, Head("Model"), one_layer, "config.json"), _STRATEGY)


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
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
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
        masks = [(ids != network.config.pad_token_id).astype("float32").unsqueeze(-1) for ids in texts]
        return soft(outputs, targets, labels) + HIDDEN_WEIGHT * state_distance(mine, theirs, masks)

    return loss


def state_distance(
    mine: Sequence[paddle.Tensor], theirs: Sequence[paddle.Tensor], masks: Sequence[paddle.Tensor]
) -> paddle.Tensor:
    """The sum over embeddings and layers of the mean squared difference of hidden states, at unmasked tokens.

    States are [rows, length, width]; per mask [rows, length, 1] there are as many as layers plus one.
    """
    # An encoder of pairs is called once per text; its states follow each other.
    depth = len(mine) // len(masks)
    distance = paddle.zeros([])
    for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        mask = masks[place // depth]
        squares = ((one.astype("float32") - other.astype("float32")) ** 2).mean(-1, keepdim=True)
        distance = distance + (squares * mask).sum() / mask.sum()
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
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()
