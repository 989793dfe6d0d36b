"""Which graphs an export holds, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import paddle

from nlpctl.export.graph_files import INT8_PREFIX, ONNX, ONNX_DYNAMIC, ONNX_STATIC, PREFIX, paddle_files
from nlpctl.export.onnx import require_paddle2onnx, write_onnx_graph
from nlpctl.export.onnx_gru import is_own_onnx, write_onnx_gru
from nlpctl.export.to_graph import write_paddle_graph
from nlpctl.models.export_folder import Graph, TensorSpec
from nlpctl.tasks.base import Batch


@dataclass(frozen=True)
class Plan:
    """The graphs that are wanted: names of FORMATS and PRECISIONS. "int8" means every method that a format has."""

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

    def _wants(self, method: str) -> bool:
        return "onnx" in self.formats and bool({"int8", f"int8-{method}"} & set(self.precisions))


def write_graphs(
    folder: Path,
    network: paddle.nn.Layer,
    batch: Batch,
    output_names: Sequence[str],
    plan: Plan,
    calibration: Callable[[], Iterable[Batch]],
) -> tuple[TensorSpec, ...]:
    """Write the graphs of `plan`, which take such batches as `batch`, and return what they give.

    `calibration` gives more of these, for int8.
    """
    prefix, pad_id = folder / PREFIX, network.config.pad_token_id
    outputs = write_paddle_graph(network, batch, output_names, prefix)
    for graph in plan.graphs():
        file = folder / graph.files[0]
        if graph.format == "onnx" and graph.precision == "fp32":
            if is_own_onnx(network):
                (ids,) = batch
                write_onnx_gru(network, ids, output_names, file)
            else:
                write_onnx_graph(prefix, file, pad_id)
        elif graph.method == "ptq":
            from nlpctl.compression.ptq import quantize

            quantize(prefix, folder / INT8_PREFIX, calibration())
        elif graph.method == "dynamic":
            from nlpctl.compression.onnx_quantize import quantize_dynamic

            quantize_dynamic(folder / ONNX, file)
        elif graph.method == "static":
            from nlpctl.compression.onnx_quantize import quantize_static

            quantize_static(folder / ONNX, file, calibration())
    if "paddle" not in plan.formats:
        for file in folder.glob(f"{PREFIX}.pd*"):
            file.unlink()
    return outputs
