"""Writing the graphs of an export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import paddle

from nlpctl.compression.strategies.base import Making
from nlpctl.data.collate import Batch
from nlpctl.errors import NlpctlError, Problem, RunFailed
from nlpctl.export.plan import Plan
from nlpctl.graphs.graph_files import ONNX, PREFIX
from nlpctl.graphs.onnx import write_onnx_graph
from nlpctl.graphs.onnx_gru import is_own_onnx, write_onnx_gru
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import Graph, TensorSpec


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
    for strategy in plan.int8():
        try:
            strategy.make_graph(Making(folder, plan.fp32(), folder, calibration))
        except OSError:  # such as a full disk
            raise
        except Exception as error:
            problems = _problems(strategy.graph, error)
            if not plan.may_lack(strategy.graph):
                raise RunFailed(problems=problems) from error
            remove_graph(folder, strategy.graph)
            refused.append(Refused(strategy.graph, problems))
    if "paddle" not in plan.formats:
        for file in folder.glob(f"{PREFIX}.pd*"):
            file.unlink()
    return outputs, refused


def _problems(graph: Graph, error: Exception) -> tuple[Problem, ...]:
    """The reason why a graph could not be quantised, with its own file name instead of the staged input's."""
    if isinstance(error, NlpctlError):
        return tuple(replace(each, where=graph.files[0]) for each in error.problems)
    return (Problem(f"quantisation fails: {type(error).__name__}: {error}", graph.files[0], "use it in fp32"),)
