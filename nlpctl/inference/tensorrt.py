"""Handing a graph to TensorRT, within Paddle Inference on a card.

TensorRT builds its engine for ranges of shapes. They are collected by running sample batches once, and kept in the
cache folder, with the engine that is built for them; batches outside the ranges have it built anew.

Collecting shapes is tested, on a processor; the rest was never run: it takes a card and a Paddle built with TensorRT.
It follows Paddle 2.6's paddle/fluid/inference/api/paddle_analysis_config.h.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle.inference as paddle_inference

from nlpctl.data.collate import Batch
from nlpctl.inference.paddle_inference import configuration, create, feed
from nlpctl.layout import EXPORT_MANIFEST
from nlpctl.models.export_folder import Graph
from nlpctl.models.source import read_json
from nlpctl.runtime import console
from nlpctl.runtime.cache import cache_folder
from nlpctl.runtime.process import ProcessSetup

WORKSPACE = 1 << 30  # bytes that TensorRT may use while it builds
SMALLEST_SUBGRAPH = 3  # operators; smaller ones are left to Paddle


def use_tensorrt(
    config: Any, folder: Path, graph: Graph, precision: str, setup: ProcessSetup, samples: Sequence[Batch]
) -> None:
    """Have `config` hand what it can to TensorRT, with the shapes of `samples`."""
    kept = _kept_folder(folder, graph, precision, samples)
    shapes = kept / "shapes.pbtxt"
    if not shapes.is_file():
        console.note("collecting shapes for TensorRT, and building its engine: once on this machine")
        collect_shapes(shapes, folder, graph, setup, samples)
    kinds = paddle_inference.PrecisionType
    config.set_optim_cache_dir(str(kept))
    config.enable_tensorrt_engine(
        workspace_size=WORKSPACE,
        max_batch_size=max(len(next(iter(batch.values()))) for batch in samples),
        min_subgraph_size=SMALLEST_SUBGRAPH,
        precision_mode=kinds.Half if precision == "fp16" else kinds.Float32,
        use_static=True,
        use_calib_mode=False,
    )
    config.enable_tuned_tensorrt_dynamic_shape(str(shapes), True)


def collect_shapes(shapes: Path, folder: Path, graph: Graph, setup: ProcessSetup, samples: Sequence[Batch]) -> None:
    """Run the samples and have Paddle write the ranges of all shapes to `shapes`, also of those inside the graph."""
    program, parameters = (folder / name for name in graph.files)
    shapes.parent.mkdir(parents=True, exist_ok=True)
    staged = shapes.with_suffix(".partial")
    config = configuration(program, parameters, "fp32", setup)
    config.collect_shape_range_info(str(staged))
    predictor = create(config, program)
    inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
    for batch in samples:
        feed(inputs, batch)
        predictor.run()
    del predictor, config  # the file is written when the predictor ends
    os.replace(staged, shapes)


def _kept_folder(folder: Path, graph: Graph, precision: str, samples: Sequence[Batch]) -> Path:
    """Where shapes and engine are kept: named by graph, precision, shapes of the samples and TensorRT's version."""
    sums = read_json(folder / EXPORT_MANIFEST)["sha256"]
    largest = [[name, *max(batch[name].shape for batch in samples)] for name in samples[0]]
    version = list(paddle_inference.get_trt_compile_version())
    key = json.dumps([[sums[name] for name in graph.files], precision, largest, version])
    return cache_folder(os.environ) / "nlpctl" / "tensorrt" / hashlib.sha256(key.encode()).hexdigest()[:32]
