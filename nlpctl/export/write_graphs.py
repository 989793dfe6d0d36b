"""Writing the graphs of an export."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import paddle

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import NlpctlError, Problem, RunFailed
from nlpctl.export.plan import Plan
from nlpctl.export.strategies import FP16, INT8, Making
from nlpctl.graphs.graph_files import ONNX, ONNX_FP16, PREFIX
from nlpctl.graphs.onnx import is_own_onnx, write_onnx_graph, write_onnx_gru
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import Graph, TensorSpec

_WORK = {FP16: "the conversion", INT8: "quantisation"}


@dataclass(frozen=True)
class Refused:
    """A graph that is left out of an export, and the reason."""

    graph: Graph
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> str:
        return "; ".join(problem.message for problem in self.problems)


def remove_graph(folder: Path, graph: Graph) -> None:
    """Delete the existing files of a graph."""
    for name in graph.files:
        (folder / name).unlink(missing_ok=True)


def write_graphs(
    folder: Path,
    network: paddle.nn.Layer,
    batch: Batch,
    output_names: Sequence[str],
    plan: Plan,
    calibration: Callable[[], Iterable[Batch]],
) -> tuple[tuple[TensorSpec, ...], list[Refused]]:
    """Write the graphs of `plan` for batches like `batch`; returns the output names and the graphs that were left out.

    `calibration` returns further batches, for int8. An error of an optional graph is no failure.
    """
    prefix, refused = folder / PREFIX, []
    outputs = write_paddle_graph(network, batch, output_names, prefix)
    if "onnx" in plan.formats and is_own_onnx(network):
        (ids,) = batch
        write_onnx_gru(network, ids, output_names, folder / ONNX)
    elif "onnx" in plan.formats:
        write_onnx_graph(prefix, folder / ONNX, network.config.pad_token_id, *plan.onnx)
    making = Making(folder, plan.fp32(), folder, calibration)
    made: list[tuple[Graph, Callable[[], None]]] = [(graph, lambda: _write_fp16(folder)) for graph in plan.fp16()]
    made += [(strategy.graph, functools.partial(strategy.make_graph, making)) for strategy in plan.int8()]
    for graph, make in made:
        try:
            make()
        except OSError:  # such as a full disk
            raise
        except Exception as error:
            problems = _problems(graph, error)
            if not plan.may_lack(graph):
                raise RunFailed(problems=problems) from error
            remove_graph(folder, graph)
            refused.append(Refused(graph, problems))
    if "paddle" not in plan.formats:
        for file in folder.glob(f"{PREFIX}.pd*"):
            file.unlink()
    return outputs, refused


def _write_fp16(folder: Path) -> None:
    from nlpctl.graphs.onnx import write_fp16

    write_fp16(folder / ONNX, folder / ONNX_FP16)


def _problems(graph: Graph, error: Exception) -> tuple[Problem, ...]:
    """The reason why a graph could not be made, with its own file name instead of the staged input's."""
    if isinstance(error, NlpctlError):
        return tuple(replace(each, where=graph.files[0]) for each in error.problems)
    told = f"{_WORK[graph.precision]} fails: {type(error).__name__}: {error}"
    return (Problem(told, graph.files[0], "use it in fp32"),)
