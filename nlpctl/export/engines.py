"""Every way in which this machine can run the graphs of an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle

from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Batch, as_tuple


@dataclass(frozen=True)
class Way:
    """An engine with a precision, for one graph."""

    graph: Graph
    engine: str
    precision: str
    open: Callable[[], Callable[[Batch], tuple[np.ndarray, ...]]]


def ways(folder: Path, manifest: ExportManifest, setup: ProcessSetup) -> Iterator[Way]:
    for graph in manifest.graphs:
        if graph.format == "paddle":
            yield Way(graph, "paddle", graph.precision, lambda graph=graph: _translated(folder / graph.files[0]))
        else:
            yield Way(graph, "onnxruntime", graph.precision, lambda graph=graph: _onnx(folder / graph.files[0]))


def _translated(file: Path) -> Callable[[Batch], tuple[np.ndarray, ...]]:
    layer = paddle.jit.load(str(file.with_suffix("")))
    layer.eval()
    return lambda batch: tuple(
        each.numpy() for each in as_tuple(layer(*(paddle.to_tensor(array) for array in batch.values())))
    )


def _onnx(file: Path) -> Callable[[Batch], tuple[np.ndarray, ...]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda batch: tuple(session.run(None, dict(batch)))
