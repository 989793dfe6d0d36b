"""Which graphs an export holds, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import paddle

from nlpctl.data.collate import Batch
from nlpctl.errors import NlpctlError, Problem, RunFailed
from nlpctl.graphs.graph_files import INT8_PREFIX, ONNX, ONNX_DYNAMIC, ONNX_STATIC, PREFIX, paddle_files
from nlpctl.graphs.onnx import require_paddle2onnx, write_onnx_graph
from nlpctl.graphs.onnx_gru import is_own_onnx, write_onnx_gru
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import Graph, TensorSpec


@dataclass(frozen=True)
class Plan:
    """The graphs that are wanted: names of FORMATS and PRECISIONS.

    "int8" means every method that a format has and that suits the network; "int8-dynamic" is that method or none.
    """

    formats: tuple[str, ...]
    precisions: tuple[str, ...]

    def check(self) -> None:
        """UserError where a package is missing that makes these graphs."""
        if "onnx" in self.formats:
            require_paddle2onnx()

    @property
    def calibrated(self) -> bool:
        """Whether rows are needed that show how large activations get."""
        return self._wants("static") or ("paddle" in self.formats and "int8" in self.precisions)

    def graphs(self) -> tuple[Graph, ...]:
        """fp32 graphs before those that are made of them."""
        found = []
        if "paddle" in self.formats:
            found.append(Graph("paddle", "fp32", paddle_files(PREFIX)))
        if "onnx" in self.formats:
            found.append(Graph("onnx", "fp32", (ONNX,)))
        if "paddle" in self.formats and "int8" in self.precisions:
            found.append(Graph("paddle", "int8", paddle_files(INT8_PREFIX), "ptq"))
        if self._wants("dynamic"):
            found.append(Graph("onnx", "int8", (ONNX_DYNAMIC,), "dynamic"))
        if self._wants("static"):
            found.append(Graph("onnx", "int8", (ONNX_STATIC,), "static"))
        return tuple(found)

    def may_lack(self, graph: Graph) -> bool:
        """Whether an export without `graph` is what was asked for too: it is of a family, and not named itself."""
        return graph.precision == "int8" and f"int8-{graph.method}" not in self.precisions

    def _wants(self, method: str) -> bool:
        return "onnx" in self.formats and bool({"int8", f"int8-{method}"} & set(self.precisions))


@dataclass(frozen=True)
class Refused:
    """A graph that an export goes without, and why."""

    graph: Graph
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> str:
        return "; ".join(problem.message for problem in self.problems)


def remove_graph(folder: Path, graph: Graph) -> None:
    """Delete the files of a graph, as far as there are any."""
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
    """Write the graphs of `plan`, which take such batches as `batch`; returns what they give, and what was not written.

    `calibration` gives more of these, for int8. An error of a graph that the plan may lack is no failure.
    """
    prefix, refused = folder / PREFIX, []
    outputs = write_paddle_graph(network, batch, output_names, prefix)
    for graph in plan.graphs():
        if graph.precision == "int8":
            try:
                _quantize(folder, graph, calibration)
            except OSError:  # a full disk
                raise
            except Exception as error:
                problems = _problems(graph, error)
                if not plan.may_lack(graph):
                    raise RunFailed(problems=problems) from error
                remove_graph(folder, graph)
                refused.append(Refused(graph, problems))
        elif graph.format == "onnx" and is_own_onnx(network):
            (ids,) = batch
            write_onnx_gru(network, ids, output_names, folder / ONNX)
        elif graph.format == "onnx":
            write_onnx_graph(prefix, folder / ONNX, network.config.pad_token_id)
    if "paddle" not in plan.formats:
        for file in folder.glob(f"{PREFIX}.pd*"):
            file.unlink()
    return outputs, refused


def _problems(graph: Graph, error: Exception) -> tuple[Problem, ...]:
    """Why a graph could not be quantised. It is named by its own file, not by the staged one that it is made of."""
    if isinstance(error, NlpctlError):
        return tuple(replace(each, where=graph.files[0]) for each in error.problems)
    return (Problem(f"quantising fails: {type(error).__name__}: {error}", graph.files[0], "use it in fp32"),)


def _quantize(folder: Path, graph: Graph, calibration: Callable[[], Iterable[Batch]]) -> None:
    """Write an int8 graph from the fp32 graph of its format."""
    if graph.method == "ptq":
        from nlpctl.graphs.ptq import quantize

        quantize(folder / PREFIX, folder / INT8_PREFIX, calibration())
        return
    from nlpctl.graphs.onnx_quantize import quantize_dynamic, quantize_static

    file = folder / graph.files[0]
    if graph.method == "dynamic":
        quantize_dynamic(folder / ONNX, file)
    else:
        quantize_static(folder / ONNX, file, calibration())
