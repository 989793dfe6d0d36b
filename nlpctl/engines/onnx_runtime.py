"""A graph run by ONNX Runtime on the CPU, or on a GPU if its GPU package is installed."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
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
from nlpctl.runtime.device import ORT_GPU_WHEEL
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.process_state import Shared
from nlpctl.runtime.threads import ONE_STREAM, Streams

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
_ERRORS_ONLY, _FATAL_ONLY = 3, 4  # log severities
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
            self._session = open_session(str(file), setup.threads, setup)
        except Exception as error:
            message = f"ONNX Runtime cannot load this graph: {str(error).strip()}"
            raise UserError(message, str(file), EXPORT_AGAIN) from None
        if setup.device != "cpu" and CUDA_PROVIDER not in self._session.get_providers():  # fell back to the CPU
            hint = f"install the CUDA that it was built for: pip install '{ORT_GPU_WHEEL}[cuda,cudnn]'"
            hint += "; or use @[engine=paddle] or @[runtime.device=cpu]"
            lacking = f": it lacks {', '.join(missing_cuda())}" if missing_cuda() else ""
            raise UserError(f"ONNX Runtime cannot use {setup.device}{lacking}", "inference.engine", hint)
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
            self._session = open_session(content, self._threads, self._setup)
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


@functools.cache
def missing_cuda() -> tuple[str, ...]:
    """Load the CUDA libraries of NVIDIA's packages, which the system does not search. The names of what is missing."""
    if not hasattr(onnxruntime, "preload_dlls"):  # before 1.21
        return ()
    with contextlib.redirect_stdout(io.StringIO()) as told:  # it prints; standard output is for results
        onnxruntime.preload_dlls()
    onnxruntime.set_default_logger_severity(_FATAL_ONLY)  # a provider that cannot be loaded is told by OnnxPredictor
    return tuple(re.findall(r"^Failed to load (lib\S+):", told.getvalue(), re.MULTILINE))


def open_session(graph: str | bytes, threads: int, setup: ProcessSetup) -> onnxruntime.InferenceSession:
    """A session of a file, or of its content. It runs on the CPU if ONNX Runtime cannot use the card."""
    providers: list[str | tuple[str, dict[str, str]]] = [CPU_PROVIDER]
    if setup.device != "cpu":
        missing_cuda()
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
