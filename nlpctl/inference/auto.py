"""Open an export with the engine and precision of a recipe, or, for "auto", the fastest on this machine."""

from __future__ import annotations

import functools
from pathlib import Path

from nlpctl import console
from nlpctl.config.schema import InferenceSection, Recipe
from nlpctl.inference.choice import Candidates, Choice, candidates, doubt, is_chosen, runnable
from nlpctl.inference.engine import Predictor
from nlpctl.inference.samples import sample_batches
from nlpctl.inference.speeds import Speeds, measured_speeds
from nlpctl.inference.support import Machine, is_installed
from nlpctl.models.export_folder import ExportManifest
from nlpctl.names import counted
from nlpctl.runtime.cpu import cpu_info
from nlpctl.runtime.process import ProcessSetup

TENSORRT_ROWS = 4  # synthetic batches for collecting TensorRT's shapes


def open_predictor(
    folder: Path,
    manifest: ExportManifest,
    inference: InferenceSection,
    setup: ProcessSetup,
    batch_size: int,
    own: Recipe,
) -> Predictor:
    """Load the export in `folder` by section `inference`, for batches of `batch_size` rows.

    If several engines and precisions remain, they are timed once on this machine and the fastest is used; a note on
    stderr gives the reason. `own`: the export's own recipe. UserError if this machine or the export does not support
    the request.
    """
    found = candidates(manifest, inference, this_machine(setup))
    chosen = found.choices[0]
    if len(found.choices) > 1:
        speeds = measured_speeds(folder, found.choices, setup, batch_size)
        chosen = fastest(found.choices, speeds)
        console.note(_why(chosen, found, speeds, setup, batch_size))
    reason = None if is_chosen(chosen, manifest) else doubt(chosen, inference.min_agreement)
    if reason is not None:  # requested by name
        console.warn(f"{chosen.name} {reason}")
    return open_choice(folder, manifest, chosen, setup, batch_size, tensorrt=own if inference.tensorrt else None)


def choices(manifest: ExportManifest, setup: ProcessSetup) -> list[Choice]:
    """Every engine and precision in which this machine can run an export, whatever its agreement at export."""
    return runnable(manifest, this_machine(setup))


def open_choice(
    folder: Path,
    manifest: ExportManifest,
    choice: Choice,
    setup: ProcessSetup,
    batch_size: int,
    *,
    tensorrt: Recipe | None = None,
) -> Predictor:
    """The export in `folder`, run by one choice. UserError if its files do not match its manifest.

    `tensorrt`: the export's own recipe if TensorRT is used, for making synthetic rows from which shapes are collected.
    """
    if choice.engine == "onnxruntime":
        from nlpctl.inference.onnx_runtime import OnnxPredictor

        return OnnxPredictor(folder, manifest, choice.graph, setup)
    from nlpctl.inference.paddle_inference import PaddlePredictor

    if tensorrt is None:
        return PaddlePredictor(folder, manifest, choice.graph, choice.precision, setup)
    batches, rows = functools.partial(sample_batches, folder, tensorrt), TENSORRT_ROWS * batch_size
    # TensorRT builds for a range of shapes, so a single row stands for its lower end.
    samples = [*batches(1, 1), *batches(batch_size, rows)]
    return PaddlePredictor(folder, manifest, choice.graph, choice.precision, setup, tensorrt=True, samples=samples)


def this_machine(setup: ProcessSetup) -> Machine:
    """The capabilities of this machine on the device of `setup`."""
    cpu, onnxruntime = cpu_info(), is_installed("onnxruntime")
    if setup.device == "cpu":
        return Machine(cpu, "cpu", onnxruntime, onnxruntime_gpu=False, gpu_bf16=False, tensorrt=False)
    import paddle

    if onnxruntime:
        from nlpctl.inference.onnx_runtime import runs_on_cards
    return Machine(
        cpu,
        setup.device,
        onnxruntime,
        onnxruntime_gpu=onnxruntime and runs_on_cards(),
        gpu_bf16=paddle.device.cuda.get_device_capability() >= (8, 0),
        tensorrt=paddle.inference.get_trt_compile_version() != (0, 0, 0),
    )


def fastest(found: tuple[Choice, ...], speeds: Speeds) -> Choice:
    """The fastest timed choice; the first, which is the simplest, if none was timed."""
    return max(found, key=lambda choice: speeds.rows_per_second.get(choice.name, 0.0))


def _why(chosen: Choice, found: Candidates, speeds: Speeds, setup: ProcessSetup, batch_size: int) -> str:
    """The note on the chosen engine, the other speeds, and the choices that were excluded."""
    ranked = sorted(speeds.rows_per_second.items(), key=lambda entry: -entry[1])
    told = ", ".join(f"{name} {speed:,.0f}" for name, speed in ranked) or "none was timed"
    when = "earlier" if speeds.kept else "now"
    threads = f", {counted(setup.threads, 'threads')}" if setup.device == "cpu" else ""
    lines = [f"auto takes {chosen.name}; rows per second, batch size {batch_size}{threads}, timed {when}: {told}"]
    lines += [f"  not {choice.name}: it {reason}" for choice, reason in found.left_out]
    lines += [f"  not {name}: it failed ({reason})" for name, reason in speeds.failed.items()]
    return "\n".join(lines)
