"""Quantisation-aware training: the network is trained further with simulated int8 and then written as an int8 graph.

    source --bounds measured on training rows--> simulated network --training--> model folder --> int8 graph for oneDNN

PaddleSlim's QAT is not used. It wraps layers, which renames their parameters and breaks encoders. It supports only
moving_average_abs_max. Its PACT starts at 100, where it never clips. Its graphs quantise tensors that no engine may
round (docs/upstream.md). The arguments are PaddleNLP's and have the meaning documented there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from nlpctl import console
from nlpctl.compress.networks.training import START, load_source, network_recipe, read_data, train_network
from nlpctl.compress.user_code import label_loss
from nlpctl.config.schema import GroupSection, Recipe
from nlpctl.data.batches.collate import Batch
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.sample_rows import spread
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.training_data import TrainingData
from nlpctl.engines.parity import batches_of
from nlpctl.engines.samples import sample_batches
from nlpctl.errors import UserError
from nlpctl.graphs import NARROW
from nlpctl.graphs.graph_files import INT8_PREFIX, PREFIX
from nlpctl.graphs.int8_program import write_onednn_program, write_simulated_graph
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.families import OWN
from nlpctl.models.hooks import hooked
from nlpctl.models.load import LoadedModel
from nlpctl.models.simulated_int8 import CLIP, INPUTS, KEY, Simulation, make_plain, simulate, simulated_layers
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import as_tuple, make_task

ROWS = 512  # training rows on which the first bounds are measured
CLIP_RATE = 3e-3  # learning rate of PACT's bounds, stored as logarithms: a step changes a bound by about 0.3 %
MOVING_RATE = 0.9  # PaddleNLP's default; null in a recipe means the default
_STRATEGY = "compression.strategy"


def check(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """UserError if a model with this config.json cannot be trained for int8 by the recipe. Called before any work."""
    if config.get("model_type") in OWN.values():
        message = f"qat trains the matrix products of a transformer for int8; {config['model_type']} has next to none"
        raise UserError(message, _STRATEGY, "use ort-dynamic, which supports recurrent layers")
    if KEY in config:
        message = "this network is already trained for int8"
        raise UserError(message, _STRATEGY, "use the network that it was made from")
    for name in ("fp16", "bf16"):
        if vars(recipe.training)[name]:
            message = f"qat simulates rounding in fp32, and training.{name} would round again"
            raise UserError(message, recipe.where(f"training.{name}"), f"@[training.{name}=false]")
    if _inputs(recipe) not in INPUTS:
        message = f"{_inputs(recipe)} computes the bound from each batch, which no graph for oneDNN can"
        where = recipe.where("compression.activation_quantize_type")
        raise UserError(message, where, f"for qat use {' or '.join(INPUTS)}")


def train_qat(recipe: Recipe, source: str, run: RunDirectory, setup: ProcessSetup) -> Path:
    """Train the model folder `source` with simulated int8 in `run`; returns the folder of the best model.

    The returned model simulates int8 in every command; `make_plain` undoes that. The loss is compression.criterion, or
    the task's. An interrupted training is resumed; a finished one is kept. The source is only read. UserError: nothing
    in it can be int8, or the data does not fit. RunFailed: the training itself failed.
    Interrupted: Ctrl-C or SIGTERM; the next call resumes it.
    """
    if run.is_finished:
        return run.model
    model = load_source(recipe, source)
    data = read_data(recipe, model)
    own = network_recipe(recipe, run, str(run.path.resolve() / START), model.labels)
    if _learns_bounds(recipe):
        # Without weight decay, which would pull every bound towards its first value.
        group = GroupSection(match=(f"*.{CLIP}",), learning_rate=CLIP_RATE, weight_decay=0.0)
        own = replace(own, optimizer=replace(own.optimizer, groups=(*own.optimizer.groups, group)))
    task = make_task(own, data.labels)
    loss = label_loss(own, task)  # of this task, which learns the weights of the labels from the training rows

    def in_int8(
        network: paddle.nn.Layer,
        run: Callable[..., Any],
        inputs: Mapping[str, paddle.Tensor],
        labels: Mapping[str, paddle.Tensor],
    ) -> paddle.Tensor:
        return loss(network, as_tuple(run(**inputs)), labels)

    return train_network(own, run, setup, data, task, lambda: simulated(own, model, source, data), loss=in_int8)


def simulated(recipe: Recipe, model: LoadedModel, source: str, data: TrainingData) -> LoadedModel:
    """`model`, changed in place to simulate int8, with bounds measured on training rows; not trained yet.

    A bound is the mean over batches of the largest value, as calibration by "avg" gives; for range_abs_max it is the
    overall maximum. UserError, naming `source`: it has no product with a weight that is wide enough.
    """
    task, encoder = make_task(recipe, data.labels), build_encoder(model.tokenizer)
    rows = list(islice(data.training_examples(), ROWS)) if data.train is None else spread(data.train, ROWS)
    size = recipe.training.per_device_train_batch_size  # a moving average starts from these bounds
    batches = list(batches_of(task, encoder, rows, size))
    shared = layers_by_input(model.network, batches[0])
    if not shared:
        message = f"nothing here can be int8: no linear layer has {NARROW} outputs or more"
        raise UserError(message, source, "use it in fp32 or bf16")
    section, inputs = recipe.compression, _inputs(recipe)
    bounds = largest_inputs(model.network, [names[0] for names in shared], batches)
    weights = section.weight_quantize_type or "channel_wise_abs_max"
    rate = MOVING_RATE if section.moving_rate is None else section.moving_rate
    settings = Simulation(weights, inputs, rate, _learns_bounds(recipe), shared)
    simulate(model.network, settings, source)
    layers = dict(simulated_layers(model.network))
    for names in shared:
        seen = bounds[names[0]]
        layers[names[0]].input_rounding.start(float(np.max(seen) if inputs == "range_abs_max" else np.mean(seen)))
    count = sum(map(len, shared))
    console.note(f"{count} matrix products simulate int8, with bounds measured on {len(rows)} training rows")
    return model


@paddle.no_grad()
def layers_by_input(network: paddle.nn.Layer, batch: Batch) -> tuple[tuple[str, ...], ...]:
    """The names of the linear layers that gain from int8; layers that read the same tensor form one group."""
    readers: dict[int, list[str]] = {}
    seen: list[paddle.Tensor] = []  # keeps the tensors alive, so that no id is reused

    def note(name: str, tensor: paddle.Tensor) -> None:
        if not any(name in names for names in readers.values()):
            seen.append(tensor)
            readers.setdefault(id(tensor), []).append(name)

    with noting_inputs(network, _wide_layers(network), note):
        network(**{name: paddle.to_tensor(array) for name, array in batch.items()})
    return tuple(map(tuple, readers.values()))


@paddle.no_grad()
def largest_inputs(network: paddle.nn.Layer, names: Iterable[str], batches: Iterable[Batch]) -> dict[str, list[float]]:
    """The largest absolute input of each of the layers `names`: one number per batch and call."""
    largest: dict[str, list[float]] = {name: [] for name in names}
    with noting_inputs(network, largest, lambda name, tensor: largest[name].append(float(tensor.abs().max()))):
        for batch in batches:
            network(**{name: paddle.to_tensor(array) for name, array in batch.items()})
    return largest


def write_qat_graph(recipe: Recipe, run: Path, export: Path, folder: Path, own: Recipe) -> None:
    """Write the int8 graph of the network that `train_qat` trained in `run` into `folder`; oneDNN runs it.

    It computes what the network simulates. `export`: the export of the network before QAT, and `own`, its recipe
    (config/recipe_of.py); they define the batches. RunFailed if Paddle cannot translate the network.
    """
    source = RunDirectory(run).model
    model = load_source(recipe, str(source))
    task, network = make_task(recipe, LabelSet(model.labels)), model.network
    # Read before make_plain, which removes the simulated layers with their bounds.
    layers = dict(simulated_layers(network))
    bounds = {layer.weight.name: layer.input_rounding.limit() for layer in layers.values()}
    per_column = all(layer.per_column for layer in layers.values())
    make_plain(network)
    batch = sample_batches(export, own, batch_size=2, rows=2)[0]
    with tempfile.TemporaryDirectory(prefix=".qat-", dir=folder) as temporary:
        plain, rounded = Path(temporary, PREFIX), Path(temporary, INT8_PREFIX)
        write_paddle_graph(network, batch, task.output_names, plain)
        write_simulated_graph(plain, rounded, bounds, per_column=per_column)
        write_onednn_program(rounded, folder / INT8_PREFIX)


def _inputs(recipe: Recipe) -> str:
    return recipe.compression.activation_quantize_type or "moving_average_abs_max"


def _learns_bounds(recipe: Recipe) -> bool:
    """Whether PACT is used, which is the default."""
    return recipe.compression.use_pact is not False


def _wide_layers(network: paddle.nn.Layer) -> list[str]:
    """Linear layers with at least as many outputs as calibration requires."""
    return [
        name
        for name, layer in network.named_sublayers()
        if type(layer) is paddle.nn.Linear and layer.weight.shape[-1] >= NARROW
    ]


def noting_inputs(
    network: paddle.nn.Layer, names: Iterable[str], note: Callable[[str, paddle.Tensor], None]
) -> contextlib.AbstractContextManager[None]:
    """Inside the context, `note` gets the name and the input of each of the layers `names` at every call."""
    layers = dict(network.named_sublayers())
    return hooked(
        layers[name].register_forward_pre_hook(lambda _, inputs, name=name: note(name, inputs[0])) for name in names
    )
