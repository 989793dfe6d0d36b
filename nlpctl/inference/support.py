"""Which engine computes in which precision where, and why not."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from nlpctl.config.schema import InferenceSection
from nlpctl.errors import Problem
from nlpctl.runtime.cpu import NATIVE, CpuInfo

ENGINE_FORMATS = {"paddle": "paddle", "onnxruntime": "onnx"}  # engine: format of its graphs
_PRECISIONS = {  # (engine, kind of device): its precisions
    ("paddle", "cpu"): ("fp32", "bf16", "int8"),
    ("paddle", "gpu"): ("fp32", "fp16", "bf16"),
    ("onnxruntime", "cpu"): ("fp32", "int8"),
    ("onnxruntime", "gpu"): ("fp32", "fp16"),
}

TENSORRT_PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True)
class Machine:
    """The facts that engines depend on: the processor, the device ("cpu" or "gpu:N"), the packages."""

    cpu: CpuInfo
    device: str
    onnxruntime: bool  # installed
    onnxruntime_gpu: bool  # with CUDA
    gpu_bf16: bool
    tensorrt: bool  # Paddle was built with it

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]


def obstacle(engine: str, precision: str, machine: Machine) -> Problem | None:
    """The reason why `machine` cannot run `engine` in `precision`; None if it can."""
    if engine == "onnxruntime" and not machine.onnxruntime:
        hint = "pip install onnxruntime, or use --engine paddle"
        return Problem("ONNX Runtime is not installed", "inference.engine", hint)
    if engine == "onnxruntime" and machine.kind == "gpu" and not machine.onnxruntime_gpu:
        hint = "pip install onnxruntime-gpu in its place, or use --engine paddle or --device cpu"
        return Problem("the installed ONNX Runtime has no CUDA", "inference.engine", hint)
    offered = _PRECISIONS[engine, machine.kind]
    if precision not in offered:
        message = f"{engine} does not compute in {precision} on a {machine.kind.upper()}"
        return Problem(message, "inference.precision", f"use {' or '.join(offered)}, or another engine or device")
    # ONNX Runtime offers fp32 and int8 on a CPU, and computes both right on all of them (docs/upstream.md).
    if engine == "paddle" and machine.kind == "cpu" and not machine.cpu.computes(precision):
        message = f"this processor ({machine.cpu.model or 'unknown'}) does not compute in {precision} natively"
        otherwise, hint = "it would be slower than fp32", "use --precision fp32, or auto"
        if precision == "int8":
            otherwise = "Paddle's sums would overflow and change answers"
            hint = "use --engine onnxruntime, or --precision fp32"
            hint = hint if machine.onnxruntime else f"pip install onnxruntime, and {hint}"
        needs = f"that needs one of {', '.join(NATIVE[precision])}; otherwise {otherwise}"
        return Problem(f"{message}: {needs}", "inference.precision", hint)
    if machine.kind == "gpu" and precision == "bf16" and not machine.gpu_bf16:
        message = "this GPU does not compute in bf16 natively, which needs compute capability 8.0"
        return Problem(message, "inference.precision", "use --precision fp16, or auto")
    return None


def tensorrt_obstacle(inference: InferenceSection, machine: Machine) -> Problem | None:
    """The reason why `machine` cannot use TensorRT as `inference` asks; None if it can."""
    where = "inference.tensorrt"
    if inference.engine == "onnxruntime":
        return Problem("TensorRT works with Paddle Inference only, not with ONNX Runtime", where, "use --engine paddle")
    if machine.kind != "gpu":
        return Problem("TensorRT runs on NVIDIA GPUs only", where, "use --device gpu, or set it to false")
    if not machine.tensorrt:
        hint = "install a build with TensorRT from the downloads of Paddle Inference, or set it to false"
        return Problem("the installed Paddle was built without TensorRT", where, hint)
    if inference.precision not in ("auto", *TENSORRT_PRECISIONS):
        hint = f"use --precision {' or '.join(TENSORRT_PRECISIONS)}"
        return Problem(f"TensorRT is not used with {inference.precision} graphs", where, hint)
    return None


def is_installed(package: str) -> bool:
    """Whether `package` can be found by import, without importing it."""
    return importlib.util.find_spec(package) is not None
