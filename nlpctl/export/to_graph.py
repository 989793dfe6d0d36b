"""A network as Paddle's static graph: what it takes, the files, what it gives."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import paddle

from nlpctl.errors import RunFailed
from nlpctl.models.export_folder import TensorSpec
from nlpctl.runtime.process import quiet_import
from nlpctl.static_graph.program import read_program
from nlpctl.tasks.base import Batch

PROGRAM, PARAMETERS = ".pdmodel", ".pdiparams"


def input_specs(batch: Batch) -> tuple[TensorSpec, ...]:
    """The inputs of a graph that takes batches such as this one, in feeding order; every size may change."""
    return tuple(TensorSpec(name, str(array.dtype), (None,) * array.ndim) for name, array in batch.items())


def write_paddle_graph(network: paddle.nn.Layer, inputs: Sequence[TensorSpec], prefix: Path) -> tuple[TensorSpec, ...]:
    """Translate `network` and write PREFIX.pdmodel and PREFIX.pdiparams; returns the outputs.

    The network is as it was afterwards. RunFailed where Paddle cannot translate it.
    """
    network.eval()
    try:
        with quiet_import():
            static = paddle.jit.to_static(network, input_spec=_arguments(network, inputs), full_graph=True)
            paddle.jit.save(static, str(prefix))
    except Exception as error:
        message = f"Paddle cannot translate {type(network).__name__} to a static graph: {type(error).__name__}: {error}"
        raise RunFailed(message.strip(), hint="use the model folder itself: --engine dygraph") from error
    finally:
        network.forward.rollback()
    return output_specs(prefix)


def output_specs(prefix: Path) -> tuple[TensorSpec, ...]:
    """The outputs of the graph PREFIX.pdmodel, in order."""
    program = read_program(prefix.with_name(prefix.name + PROGRAM))
    found = [program.variables[name] for name in program.fetches]
    return tuple(
        TensorSpec(each.name, each.dtype, tuple(None if size < 0 else size for size in each.shape)) for each in found
    )


def _arguments(network: paddle.nn.Layer, inputs: Sequence[TensorSpec]) -> list[paddle.static.InputSpec | None]:
    """The inputs in the order of forward's parameters, None for those that the graph does not take."""
    known = {spec.name: paddle.static.InputSpec(list(spec.shape), spec.dtype, spec.name) for spec in inputs}
    names = list(inspect.signature(network.forward).parameters)
    last = max(names.index(name) for name in known)
    return [known.get(name) for name in names[: last + 1]]


class TranslatedPredictor:
    engine, precision = "paddle", "fp32"

    def __init__(self, prefix: Path):
        self.layer = paddle.jit.load(str(prefix))
        self.layer.eval()

    def outputs(self, batch: Batch):
        outputs = self.layer(*(paddle.to_tensor(array) for array in batch.values()))
        return tuple(each.numpy() for each in (outputs if isinstance(outputs, list | tuple) else [outputs]))
