"""A graph run by Paddle Inference: oneDNN on a processor; CUDA, and TensorRT where asked for, on a card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle.inference as paddle_inference

from nlpctl.data.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.program import read_program
from nlpctl.inference.foreign import AGAIN, check_graph
from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.silence import silent_stderr
from nlpctl.upstream.bfloat16_cast import keep_casts

CARD_MEMORY_MB = 256  # what the memory pool of a card starts with; it grows
SHAPES_KEPT = 256  # batches of different size that oneDNN keeps its preparations for


class PaddlePredictor:
    """Runs one batch at a time, in any thread.

    oneDNN prepares every operator for each new shape of a batch and keeps that. Paddle bounds this by a number of
    shapes, but then copies all weights for each of them: 43 MB a shape for a network of 22 M parameters, and slower
    than starting over. Without its bound weights are shared, and preparations take 1 to 2 MB a shape; so the bound
    is ours: after SHAPES_KEPT shapes a clone takes over, which shares the weights and has prepared nothing.
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
        """`samples`: batches that show TensorRT the shapes to expect, the smallest and the largest among them.

        UserError where the files are no graph that takes and gives what the manifest says.
        """
        self.precision = precision
        program, parameters = (folder / name for name in graph.files)
        described = read_program(program)  # Paddle dies of some files that are none
        check_graph(program, manifest, described.feeds, len(described.fetches))
        config = configuration(program, parameters, precision, setup)
        if tensorrt:
            from nlpctl.inference.tensorrt import use_tensorrt

            use_tensorrt(config, folder, graph, precision, setup, samples)
        self._use(create(config, program))
        self._onednn = setup.device == "cpu"

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The network's outputs for one padded batch without labels; inputs are found by name.

        RunFailed where Paddle has no kernel for something in this precision, or no memory.
        """
        if self._onednn:
            self._count(tuple(array.shape for array in batch.values()))
        feed(self._inputs, batch)
        try:
            self._predictor.run()
        except Exception as error:
            hint = "take another precision or engine: --precision fp32, --engine onnxruntime; or smaller batches"
            message = f"Paddle Inference failed in {self.precision}: {_reason(error)}"
            raise RunFailed(message, hint=hint) from error
        return tuple(output.copy_to_cpu() for output in self._outputs)

    def _use(self, predictor: Any) -> None:
        self._predictor = predictor
        self._inputs = {name: predictor.get_input_handle(name) for name in predictor.get_input_names()}
        self._outputs = [predictor.get_output_handle(name) for name in predictor.get_output_names()]
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()

    def _count(self, shape: tuple[tuple[int, ...], ...]) -> None:
        if shape not in self._shapes and len(self._shapes) == SHAPES_KEPT:
            with silent_stderr():
                self._use(self._predictor.clone())
        self._shapes.add(shape)


def configuration(program: Path, parameters: Path, precision: str, setup: ProcessSetup) -> Any:
    """How Paddle Inference is to run the graph on the device of `setup`."""
    config = paddle_inference.Config(str(program), str(parameters))
    config.disable_glog_info()
    config.enable_memory_optim()
    if setup.device != "cpu":
        config.enable_use_gpu(CARD_MEMORY_MB, _card(setup), _on_card(precision))
        return config
    config.disable_gpu()
    config.set_cpu_math_library_num_threads(setup.threads)
    config.enable_mkldnn()
    config.set_mkldnn_cache_capacity(0)  # no bound: see PaddlePredictor
    if precision == "bf16":
        config.enable_mkldnn_bfloat16()
        keep_casts(config)
    return config


def create(config: Any, program: Path) -> Any:
    """The predictor of `config`, without Paddle's account of what it optimised. UserError where it cannot be made."""
    try:
        with silent_stderr():
            return paddle_inference.create_predictor(config)
    except Exception as error:
        raise UserError(f"Paddle Inference cannot load this graph: {_reason(error)}", str(program), AGAIN) from None


def feed(inputs: dict[str, Any], batch: Batch) -> None:
    """Hand `batch` to the input handles, by name."""
    for name, handle in inputs.items():
        handle.copy_from_cpu(np.ascontiguousarray(batch[name]))


def _card(setup: ProcessSetup) -> int:
    return int(setup.device.partition(":")[2] or 0)


def _on_card(precision: str) -> Any:
    kinds = paddle_inference.PrecisionType
    return {"fp32": kinds.Float32, "fp16": kinds.Half, "bf16": kinds.Bfloat16}[precision]


def _reason(error: Exception) -> str:
    """What Paddle says, without the stack of its own functions."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line] or lines or [type(error).__name__]
    return told[0]
