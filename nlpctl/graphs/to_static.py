"""A network as Paddle's static graph: what it takes, the files, what it gives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import paddle

from nlpctl.data.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.program import read_program
from nlpctl.graphs.graph_files import PROGRAM
from nlpctl.models.export_folder import TensorSpec
from nlpctl.models.first_token import first_token_only
from nlpctl.models.simulated_int8 import is_simulated
from nlpctl.models.static_inputs import static_inputs


def input_specs(batch: Batch) -> tuple[TensorSpec, ...]:
    """The inputs of a graph that takes batches such as this one, in feeding order; every size may change."""
    return tuple(TensorSpec(name, str(array.dtype), (None,) * array.ndim) for name, array in batch.items())


def write_paddle_graph(
    network: paddle.nn.Layer, batch: Batch, outputs: Sequence[str], prefix: Path
) -> tuple[TensorSpec, ...]:
    """Translate `network` and write PREFIX.pdmodel and PREFIX.pdiparams, with its outputs called `outputs`.

    What no output depends on is left out (models/first_token.py).
    `batch` is one that it takes. Returns the outputs; the network is as it was. RunFailed where Paddle cannot;
    UserError for a network that only simulates int8.
    """
    if is_simulated(network):
        message = "this network was trained for int8, which it simulates: a graph of that would be slow"
        raise UserError(message, hint="take its int8 graph, which `nlpctl compress` wrote, or its source")
    network.eval()
    specs = static_inputs(network, batch)
    try:
        with warnings.catch_warnings(), first_token_only(network):
            warnings.simplefilter("ignore")  # of operators that Paddle's own layers use
            static = paddle.jit.to_static(network, input_spec=specs, full_graph=True)
            paddle.jit.save(static, str(prefix))
    except OSError:
        raise
    except Exception as error:
        message = f"Paddle cannot translate {type(network).__name__} to a static graph: {type(error).__name__}: {error}"
        raise RunFailed(message.strip(), hint="use the model folder itself: --engine dygraph") from error
    finally:
        network.forward.rollback()
    return name_outputs(prefix.with_name(prefix.name + PROGRAM), outputs)


def name_outputs(file: Path, names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Give the outputs of a program names that say what they are; Paddle calls them save_infer_model/scale_0.tmp_0.

    Returns them.
    """
    program = read_program(file)
    renamed = dict(zip(program.fetches, names, strict=True))
    file.write_bytes(renamed_variables(program.serialized, renamed))
    found = [program.variables[name] for name in program.fetches]
    return tuple(
        TensorSpec(renamed[each.name], each.dtype, tuple(None if size < 0 else size for size in each.shape))
        for each in found
    )


def renamed_variables(serialized: bytes, names: Mapping[str, str]) -> bytes:
    """A ProgramDesc with other names for some variables."""
    from paddle.base.proto import framework_pb2

    desc = framework_pb2.ProgramDesc()
    desc.ParseFromString(serialized)
    for block in desc.blocks:
        for variable in block.vars:
            variable.name = names.get(variable.name, variable.name)
        for op in block.ops:
            for slot in (*op.inputs, *op.outputs):
                slot.arguments[:] = [names.get(name, name) for name in slot.arguments]
    return desc.SerializeToString()
