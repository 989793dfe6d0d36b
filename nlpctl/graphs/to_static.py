"""A network as Paddle's static graph: inputs, files, outputs."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import paddle
from paddle import nn

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.lod_tensor import read_tensors
from nlpctl.formats.program import read_program
from nlpctl.graphs.graph_files import paddle_files
from nlpctl.graphs.program_edit import rename_variables
from nlpctl.models.export_folder import TensorSpec, TensorType
from nlpctl.models.pruned import encoder_layers
from nlpctl.models.simulated_int8 import is_simulated
from nlpctl.models.user_network import is_user_network, user_layer

_UNUSED_INPUT = "doesn't exist in pruned inference program"  # in Paddle's message


def write_paddle_graph(
    network: paddle.nn.Layer, batch: Batch, outputs: Sequence[str], prefix: Path
) -> tuple[TensorSpec, ...]:
    """Translate `network` and write PREFIX.pdmodel and PREFIX.pdiparams, with its outputs named `outputs`.

    Parts that no output depends on are left out, such as the last layer of tokens that the head does not read. `batch`:
    an example input. Returns the specs of the outputs; the network does not change. RunFailed if Paddle fails; OSError
    if the disk does; UserError for a network that simulates int8.
    """
    if is_simulated(network):
        message = "this network simulates int8, so a graph of it would be slow"
        raise UserError(message, hint="use its int8 graph, which `nlpctl compress` wrote, or its source")
    network.eval()
    traced = user_layer(network)
    specs = static_inputs(traced, batch)
    try:
        with warnings.catch_warnings(), first_token_only(network), _biases(network):
            warnings.simplefilter("ignore")  # names that operators of Paddle's own layers use
            static = paddle.jit.to_static(traced, input_spec=specs, full_graph=True)
            paddle.jit.save(static, str(prefix))
    except OSError:
        raise
    except Exception as error:
        message = f"Paddle cannot translate {type(network).__name__} to a static graph: {type(error).__name__}: {error}"
        hint = "use the model folder itself: @[engine=dygraph]"
        if _UNUSED_INPUT in str(error):
            hint = f"its forward takes an input that it does not use: remove it there, and train again; or {hint}"
        raise RunFailed(message.strip(), hint=hint) from error
    finally:
        # to_static replaces forward in place; without this, dygraph calls would run the static graph.
        traced.forward.rollback()
    program, parameters = (prefix.with_name(name) for name in paddle_files(prefix.name))
    refuse_cut_parameters(program, parameters)
    return name_outputs(program, outputs)


@contextlib.contextmanager
def _biases(network: paddle.nn.Layer) -> Iterator[None]:
    """Inside, linear layers without a bias have one of zeros.

    Paddle Inference only makes a product with a bias its operator `fc`, which alone is computed in int8.
    """
    plain = [layer for layer in network.sublayers() if isinstance(layer, nn.Linear) and layer.bias is None]
    try:
        for layer in plain:
            layer.bias = layer.create_parameter([layer.weight.shape[1]], is_bias=True)
        yield
    finally:
        for layer in plain:
            layer.bias = None


def refuse_cut_parameters(program: Path, parameters: Path) -> None:
    """OSError if `parameters`, which paddle.jit.save has just written, lacks some of those of `program`.

    Paddle does not tell that a write failed, on a full or a broken disk (docs/upstream.md). Only sizes are read.
    """
    wanted = len(read_program(program).persistables)
    try:
        held = len(read_tensors(parameters)) if parameters.exists() and parameters.stat().st_size else 0
    except UserError:  # the last one is cut
        held = -1
    if held != wanted:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(parameters))


def name_outputs(file: Path, names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Give the outputs of a program the task's names; Paddle calls them save_infer_model/scale_0.tmp_0.

    Returns the output specs.
    """
    program = read_program(file)
    renamed = dict(zip(program.fetches, names, strict=True))
    file.write_bytes(renamed_variables(program.serialized, renamed))
    outputs = [program.variables[name] for name in program.fetches]
    shapes = [tuple(None if size < 0 else size for size in each.shape) for each in outputs]
    return tuple(
        TensorSpec(renamed[each.name], cast(TensorType, each.dtype), shape)
        for each, shape in zip(outputs, shapes, strict=True)
    )


def renamed_variables(serialized: bytes, names: Mapping[str, str]) -> bytes:
    """A ProgramDesc with some variables renamed."""
    from paddle.base.proto import framework_pb2

    desc = framework_pb2.ProgramDesc()
    desc.ParseFromString(serialized)
    for block in desc.blocks:
        rename_variables(block, names)
    return desc.SerializeToString()


# -- the inputs of a network and of its graph -------------------------------------------------------------------------


def static_inputs(network: paddle.nn.Layer, batch: Mapping[str, np.ndarray]) -> list[paddle.static.InputSpec | None]:
    """The arrays of `batch` in the order in which `forward` takes them, of any size; None for one in between."""
    names = list(inspect.signature(network.forward).parameters)
    last = max(names.index(name) for name in batch)
    return [
        paddle.static.InputSpec([None] * batch[name].ndim, str(batch[name].dtype), name) if name in batch else None
        for name in names[: last + 1]
    ]


def input_specs(batch: Batch) -> tuple[TensorSpec, ...]:
    """The input specs of a graph for batches like this one, in feeding order; every dimension is variable."""
    return tuple(
        TensorSpec(name, cast(TensorType, str(array.dtype)), (None,) * array.ndim) for name, array in batch.items()
    )


# -- the last layer of a transformer for the first token alone, where the head reads no other -------------------------
#
# A classifier reads the state of the first token ([CLS]). The last layer's states of other tokens are unused, so only
# its keys and values are needed for them: two of the layer's twelve hidden x hidden products per token. Outputs are the
# same up to the rounding of other matrix shapes.

# Families whose ...ForSequenceClassification, on a pooler or not, reads `hidden[:, 0]`.
_FAMILIES = ("bert", "ernie", "roberta", "electra")


@contextlib.contextmanager
def first_token_only(network: Any) -> Iterator[bool]:
    """Inside, `network` computes its last layer for the first token alone; for evaluation and for graphs.

    Yields whether it does: networks that read other tokens too, or are not known to, stay as they are.
    """
    if not reads_first_token(network):
        yield False
        return
    encoder = next(layer for layer in network.sublayers() if isinstance(layer, nn.TransformerEncoder))
    last = len(encoder.layers) - 1
    whole = encoder.layers[last]
    encoder.layers[last] = FirstTokenLayer(whole)
    try:
        yield True
    finally:
        encoder.layers[last] = whole


def reads_first_token(network: Any) -> bool:
    """Whether the outputs of `network` depend on its last layer by the state of the first token alone."""
    try:
        last = encoder_layers(network)[-1]
    except UserError:
        return False
    # FirstTokenLayer computes post-norm layers only, which all families above are.
    if is_user_network(network) or last.normalize_before or network.base_model_prefix not in _FAMILIES:
        return False
    if type(network).__name__.endswith("TwoTower"):
        return network.pooling == "cls"
    return type(network).__name__.endswith("ForSequenceClassification")


class FirstTokenLayer(nn.Layer):
    """A TransformerEncoderLayer, in evaluation mode, that gives the state of the first token, [batch, 1, width]."""

    def __init__(self, layer: nn.TransformerEncoderLayer):
        super().__init__()
        self.whole = layer

    def forward(
        self, src: paddle.Tensor, src_mask: Any = None, cache: Any = None, output_attentions: bool = False
    ) -> paddle.Tensor:
        layer = self.whole
        # Not src[:, 0:1]: oneDNN's int8 pass would round a slice, and what is added to it here is not rounded.
        first = paddle.index_select(src, paddle.zeros([1], "int64"), axis=1)
        state = layer.norm1(first + layer.self_attn(first, src, src, src_mask))
        return layer.norm2(state + layer.linear2(layer.activation(layer.linear1(state))))
