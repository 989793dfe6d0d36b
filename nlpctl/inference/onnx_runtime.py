"""A graph run by ONNX Runtime on the CPU, or on a GPU if its GPU package is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from nlpctl.data.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.models.export_folder import EXPORT_AGAIN, ExportManifest, Graph, check_graph
from nlpctl.runtime.process import ProcessSetup

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
_ERRORS_ONLY = 3  # log severity
_TYPES = {"int64": "tensor(int64)", "int32": "tensor(int32)", "float32": "tensor(float)"}


class OnnxPredictor:
    """Thread-safe: runs batches in any thread, also several at once."""

    engine = "onnxruntime"

    def __init__(self, folder: Path, manifest: ExportManifest, graph: Graph, setup: ProcessSetup):
        """UserError if the file is not a graph with the manifest's inputs and outputs."""
        self.precision = graph.precision
        file = folder / graph.files[0]
        try:
            self._session = onnxruntime.InferenceSession(str(file), _options(setup), providers=_providers(setup))
        except Exception as error:
            message = f"ONNX Runtime cannot load this graph: {str(error).strip()}"
            raise UserError(message, str(file), EXPORT_AGAIN) from None
        if setup.device != "cpu" and CUDA_PROVIDER not in self._session.get_providers():  # fell back to the CPU
            hint = "install the CUDA and cuDNN that this onnxruntime-gpu was built for, or use --engine paddle"
            raise UserError(f"ONNX Runtime cannot use {setup.device}", "inference.engine", hint)
        inputs = {each.name: each.type for each in self._session.get_inputs()}
        self._inputs, self._outputs = list(inputs), [each.name for each in self._session.get_outputs()]
        check_graph(file, manifest, inputs, len(self._outputs))
        for spec in manifest.inputs:
            if inputs[spec.name] != _TYPES[spec.dtype]:
                message = f"this graph takes {spec.name} as {inputs[spec.name]}, but its export feeds {spec.dtype}"
                raise UserError(message, str(file), f"the graph belongs to another model: {EXPORT_AGAIN}")

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The network's outputs for one padded batch without labels; inputs are found by name.

        RunFailed if ONNX Runtime cannot compute it.
        """
        try:
            return tuple(self._session.run(self._outputs, {name: batch[name] for name in self._inputs}))
        except Exception as error:
            hint = "use another engine: --engine paddle; or smaller batches"
            raise RunFailed(f"ONNX Runtime failed in {self.precision}: {str(error).strip()}", hint=hint) from error


def runs_on_cards() -> bool:
    """Whether the installed ONNX Runtime has CUDA."""
    return CUDA_PROVIDER in onnxruntime.get_available_providers()


def _options(setup: ProcessSetup) -> onnxruntime.SessionOptions:
    """Let idle threads sleep soon. By default each one spins on its core for 27 ms after a batch.

    Tokenising and other programs then lack that core: on a busy machine, batches took 1.6 to 3.4 times as long.
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(setup.spin_us))
    options.intra_op_num_threads = setup.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return options


def _providers(setup: ProcessSetup) -> list[str | tuple[str, dict[str, str]]]:
    if setup.device == "cpu":
        return [CPU_PROVIDER]
    return [(CUDA_PROVIDER, {"device_id": setup.device.partition(":")[2] or "0"}), CPU_PROVIDER]
