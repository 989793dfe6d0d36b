"""The static graph of a dygraph network, in the same form as static programs that are read."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.formats.program import Operator, read_program
from nlpctl.static_graph.graph import needed_for

INPUTS = ("input_ids", "token_type_ids")


@dataclass(frozen=True)
class Traced:
    """Operators of a network and the names of its outputs. Parameters bear the names of Paddle's counter."""

    operators: tuple[Operator, ...]
    outputs: tuple[str, ...]


class NotTraceable(Exception):
    """Paddle cannot make a graph of this network. `str()` says why."""


def input_names(network: Any) -> list[str]:
    """Those of INPUTS that the network takes."""
    return [name for name in INPUTS if name in inspect.signature(network.forward).parameters]


def without_effect(network: Any) -> set[str]:
    """Internal names of the parameters that no output depends on, such as a tagger's pooler. Raises NotTraceable."""
    traced = trace(network)
    read = {name for op in needed_for(traced.operators, traced.outputs) for name in op.reads}
    return {parameter.name for parameter in network.parameters()} - read


def trace(network: Any) -> Traced:
    """Translate `network` to a static graph, leaving it as it is. Raises NotTraceable."""
    import paddle
    from paddle.static import InputSpec

    specs: Sequence[Any] = [InputSpec([None, None], "int64", name) for name in input_names(network)]
    network.eval()
    try:
        # full_graph: otherwise Paddle may fall back to running parts of the network in Python, outside the graph.
        static = paddle.jit.to_static(network.forward, input_spec=specs, full_graph=True)
        program = static.concrete_program
    except Exception as error:  # Paddle's translation raises nearly anything
        raise NotTraceable((str(error).strip().splitlines() or [type(error).__name__])[-1][:200]) from error
    finally:
        vars(network).pop("forward", None)  # where Paddle put the translated one
    with tempfile.TemporaryDirectory(prefix="nlpctl-graph-") as folder:
        file = Path(folder) / "network.pdmodel"
        file.write_bytes(program.main_program.desc.serialize_to_string())
        operators = read_program(file).operators
    return Traced(operators, tuple(each.name for each in program.outputs))
