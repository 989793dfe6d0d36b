"""A graph run by ONNX Runtime on the CPU, or on a GPU if its GPU package is installed."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.models.export_folder import EXPORT_AGAIN, ExportManifest, Graph, check_graph
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.process_state import Shared
from nlpctl.runtime.threads import ONE_STREAM, Streams

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
_ERRORS_ONLY = 3  # log severity
_TYPES = {"int64": "tensor(int64)", "int32": "tensor(int32)", "float32": "tensor(float)"}
STREAMS = 8  # most batches side by side: each takes memory of its own


class OnnxPredictor:
    """Thread-safe: runs batches in any thread, also several at once.

    Threads that share one batch wait for each other after every operator. So in a stream each thread computes a batch
    of its own, in a second session whose callers do the work; what threads are left over help all of them. The
    outputs are the same, bit by bit: how ONNX Runtime divides a product among threads does not change a sum.
    """

    engine = "onnxruntime"

    def __init__(self, folder: Path, manifest: ExportManifest, graph: Graph, setup: ProcessSetup):
        """UserError if the file is not a graph with the manifest's inputs and outputs."""
        self.precision = graph.precision
        file, self.streams, self._beside = folder / graph.files[0], ONE_STREAM, None
        count = min(setup.threads, STREAMS) if setup.device == "cpu" and len(graph.files) == 1 else 1
        try:
            if count > 1:
                self._beside = _SideBySide(file, setup, count)
                self.streams = Streams(count, Shared(self._beside.open), self._beside.enter)
            self._session = _load(str(file), setup.threads, setup)
        except Exception as error:
            message = f"ONNX Runtime cannot load this graph: {str(error).strip()}"
            raise UserError(message, str(file), EXPORT_AGAIN) from None
        if setup.device != "cpu" and CUDA_PROVIDER not in self._session.get_providers():  # fell back to the CPU
            hint = "install the CUDA and cuDNN that this onnxruntime-gpu was built for, or use @[engine=paddle]"
            raise UserError(f"ONNX Runtime cannot use {setup.device}", "inference.engine", hint)
        inputs = {each.name: each.type for each in self._session.get_inputs()}
        self._inputs, self._outputs = list(inputs), [each.name for each in self._session.get_outputs()]
        check_graph(file, manifest, inputs, len(self._outputs))
        for spec in manifest.inputs:
            if inputs[spec.name] != _TYPES.get(spec.dtype):
                message = f"this graph takes {spec.name} as {inputs[spec.name]}, but its export feeds {spec.dtype}"
                raise UserError(message, str(file), f"the graph belongs to another model: {EXPORT_AGAIN}")

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The network's outputs for one padded batch without labels; inputs are found by name.

        RunFailed if ONNX Runtime cannot compute it.
        """
        session = (self._beside and self._beside.session()) or self._session
        try:
            return tuple(session.run(self._outputs, {name: batch[name] for name in self._inputs}))
        except Exception as error:
            hint = "use another engine: @[engine=paddle]; or smaller batches"
            raise RunFailed(f"ONNX Runtime failed in {self.precision}: {str(error).strip()}", hint=hint) from error


class _SideBySide:
    """The second session of a predictor, which the threads of its streams alone use."""

    def __init__(self, file: Path, setup: ProcessSetup, count: int):
        # Kept open: until there are streams, the export may be removed, if it is a temporary one, or replaced.
        self._graph = os.open(file, os.O_RDONLY)
        weakref.finalize(self, os.close, self._graph)
        # A caller is one of the threads of its batch.
        self._setup, self._threads = setup, setup.threads - count + 1
        self._session: Any = None
        self._thread = threading.local()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        # Without memory for it, the first session answers the callers.
        with contextlib.suppress(Exception):
            content = os.pread(self._graph, os.fstat(self._graph).st_size, 0)
            self._session = _load(content, self._threads, self._setup)
        try:
            yield
        finally:
            self._session = None

    def enter(self) -> None:
        """This thread is one of a stream."""
        self._thread.entered = True

    def session(self) -> Any:
        """The session for this thread; None: that of the predictor."""
        return self._session if hasattr(self._thread, "entered") else None


def runs_on_cards() -> bool:
    """Whether the installed ONNX Runtime has CUDA."""
    return CUDA_PROVIDER in onnxruntime.get_available_providers()


def _load(graph: str | bytes, threads: int, setup: ProcessSetup) -> Any:
    """A session of a file, or of its content."""
    providers: list[str | tuple[str, dict[str, str]]] = [CPU_PROVIDER]
    if setup.device != "cpu":
        providers = [(CUDA_PROVIDER, {"device_id": setup.device.partition(":")[2] or "0"}), CPU_PROVIDER]
    return onnxruntime.InferenceSession(graph, session_options(threads, setup.spin_us), providers=providers)


def session_options(threads: int, spin_us: int) -> onnxruntime.SessionOptions:
    """How graphs are run on a CPU and on a card."""
    options = onnxruntime.SessionOptions()
    # Let idle threads sleep soon. By default each one spins on its core for 27 ms after a batch. Tokenising and other
    # programs then lack that core: on a busy machine, batches took 1.6 to 3.4 times as long.
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(spin_us))
    if not cpu_info().computes("int8"):  # add int8 products in 32 bits: in 16 they saturate (docs/upstream.md)
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return options
