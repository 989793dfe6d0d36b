"""A graph run by Paddle Inference: with oneDNN on a CPU; with CUDA, and TensorRT on request, on a GPU."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle.inference as paddle_inference

from nlpctl import console
from nlpctl.checksums import sha256_of_text
from nlpctl.data.batches.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.operators import refuse_operators
from nlpctl.formats.program import read_program
from nlpctl.models.export_folder import EXPORT_AGAIN, ExportManifest, Graph, check_graph, read_checked_manifest
from nlpctl.runtime.cache import cache_folder
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.process_state import silent_stderr
from nlpctl.upstream.bfloat16_cast import keep_casts
from nlpctl.upstream.growing_batches import Growth
from nlpctl.upstream.predictor_clones import successors
from nlpctl.upstream.shapes_of_batches import needs_empty_cache

CARD_MEMORY_MB = 256  # initial size of the GPU memory pool; it grows
WORKSPACE = 1 << 30  # TensorRT's workspace in bytes
SMALLEST_SUBGRAPH = 3  # smaller subgraphs stay with Paddle
SHAPES_KEPT = 256  # number of batch shapes in oneDNN's cache


class PaddlePredictor:
    """Runs one batch at a time, in any thread; the others wait for their turn. Two threads inside one predictor of
    Paddle get each other's answers, and break the heap.

    oneDNN prepares every operator for each new batch shape and caches the result. Paddle can limit the number of cached
    shapes, but then copies all weights per shape: 43 MB for a network of 22 M parameters, and slower than starting
    over. Without that limit weights are shared, and a shape takes 1 to 2 MB. So this class limits the cache itself:
    after SHAPES_KEPT shapes it switches to a predictor of the same graph with an empty cache; also for a batch that is
    larger than all before it (upstream/growing_batches.py).
    """

    engine = "paddle"

    def __init__(
        self,
        folder: Path,
        manifest: ExportManifest,
        graph: Graph,
        precision: str,
        setup: ProcessSetup,
        *,
        tensorrt: bool = False,
        samples: Sequence[Batch] = (),
    ):
        """`samples`: batches with the shapes that TensorRT must support, including the smallest and the largest.

        UserError if the files are not a graph with the manifest's inputs and outputs.
        """
        self.precision = precision
        program, parameters = (folder / name for name in graph.files)
        described = read_program(program)  # Paddle crashes on some invalid files
        check_graph(program, manifest, described.feeds, len(described.fetches))
        refuse_operators(described)
        config = configuration(program, parameters, precision, setup)
        if tensorrt:
            use_tensorrt(config, folder, graph, precision, setup, samples)
        self._turn = threading.Lock()
        self._growth = Growth()
        self._use(create(config, program))
        self._successor = successors(program, parameters, partial(_open, precision=precision, setup=setup))
        self._onednn = setup.device == "cpu"

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The network's outputs for one padded batch without labels; inputs are found by name.

        RunFailed if Paddle lacks a kernel in this precision, or memory.
        """
        with self._turn:
            try:
                if self._onednn:
                    self._make_room(batch)
                self._run(batch)
            except Exception as error:
                hint = "use another precision or engine: @[precision=fp32], @[engine=onnxruntime]; or smaller batches"
                message = f"Paddle Inference failed in {self.precision}: {_reason(error)}"
                raise RunFailed(message, hint=hint) from error
            return tuple(output.copy_to_cpu() for output in self._outputs)

    def _make_room(self, batch: Batch) -> None:
        shape = tuple(array.shape for array in batch.values())
        full = shape not in self._shapes and len(self._shapes) == SHAPES_KEPT
        if self._growth.outgrown_by(batch) or full:
            growth = self._growth
            self._empty_cache()
            self._growth = growth
            if (largest := growth.as_large(batch)) is not None:
                self._run(largest)
        self._shapes.add(shape)

    def _run(self, batch: Batch) -> None:
        feed(self._inputs, batch)
        try:
            self._predictor.run()
        except Exception as error:
            if not (self._onednn and needs_empty_cache(error)):
                raise
            self._empty_cache()
            self._growth.outgrown_by(batch)
            feed(self._inputs, batch)
            self._predictor.run()

    def _empty_cache(self) -> None:
        with silent_stderr:
            self._use(self._successor(self._predictor))

    def _use(self, predictor: Any) -> None:
        self._predictor = predictor
        self._inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
        self._outputs = [predictor.get_output_handle(name) for name in predictor.get_output_names()]
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        self._growth = Growth()


def configuration(program: Path, parameters: Path, precision: str, setup: ProcessSetup) -> Any:
    """The configuration of Paddle Inference for the graph on the device of `setup`."""
    config = paddle_inference.Config(str(program), str(parameters))
    config.disable_glog_info()
    config.enable_memory_optim()
    if setup.device != "cpu":
        types = paddle_inference.PrecisionType
        number_type = {"fp32": types.Float32, "fp16": types.Half, "bf16": types.Bfloat16}[precision]
        config.enable_use_gpu(CARD_MEMORY_MB, int(setup.device.partition(":")[2] or 0), number_type)
        return config
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(setup.threads)
    config.enable_mkldnn()
    config.set_mkldnn_cache_capacity(0)  # no limit: see PaddlePredictor
    if precision == "bf16":
        config.enable_mkldnn_bfloat16()
        keep_casts(config)
    return config


def create(config: Any, program: Path) -> Any:
    """The predictor of `config`, without Paddle's log of optimisations. UserError if it cannot be made."""
    try:
        with silent_stderr:
            return paddle_inference.create_predictor(config)
    except Exception as error:
        raise UserError(
            f"Paddle Inference cannot load this graph: {_reason(error)}", str(program), EXPORT_AGAIN
        ) from None


def _open(program: Path, parameters: Path, *, precision: str, setup: ProcessSetup) -> Any:
    return paddle_inference.create_predictor(configuration(program, parameters, precision, setup))


def feed(inputs: dict[str, Any], batch: Batch) -> None:
    """Copy `batch` to the input handles, by name."""
    for name, handle in inputs.items():
        handle.copy_from_cpu(np.ascontiguousarray(batch[name]))


def _reason(error: Exception) -> str:
    """Paddle's message without its C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line] or lines or [type(error).__name__]
    return errors[0]


# -- TensorRT ----------------------------------------------------------------------------------
#
# It builds its engine for ranges of shapes. They are collected by running sample batches once, and stored in the cache
# folder together with the engine. Batches outside the ranges trigger a new build.
#
# Collecting shapes is tested on a CPU. The rest was never run: it needs a GPU and a Paddle built with TensorRT. It
# follows Paddle 2.6's paddle/fluid/inference/api/paddle_analysis_config.h.


def use_tensorrt(
    config: Any, folder: Path, graph: Graph, precision: str, setup: ProcessSetup, samples: Sequence[Batch]
) -> None:
    """Enable TensorRT in `config`, with the shapes of `samples`."""
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
    """Run the samples and let Paddle write the ranges of all shapes to `shapes`, including those inside the graph."""
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
    """The cache folder of shapes and engine, named by graph, precision, shapes of the samples and TensorRT's
    version."""
    sums = read_checked_manifest(folder).sha256
    largest = [[name, *max(batch[name].shape for batch in samples)] for name in samples[0]]
    version = list(paddle_inference.get_trt_compile_version())
    key = json.dumps([[sums[name] for name in graph.files], precision, largest, version])
    return cache_folder(os.environ) / "nlpctl" / "tensorrt" / sha256_of_text(key)[:32]
