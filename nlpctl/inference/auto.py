"""Opening an export with the engine and precision that a recipe asks for, or, for "auto", the fastest here."""

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
from nlpctl.runtime.cpu import cpu_info
from nlpctl.runtime.process import ProcessSetup

TENSORRT_ROWS = 4  # batches of made-up rows that TensorRT is shown


def open_predictor(
    folder: Path,
    manifest: ExportManifest,
    inference: InferenceSection,
    setup: ProcessSetup,
    batch_size: int,
    own: Recipe,
) -> Predictor:
    """Load the export in `folder` as `inference` says, to be asked `batch_size` rows at a time.

    Where that leaves a choice, the ways are timed on this machine, once, and the fastest is taken; what was taken and
    why is told on stderr. `own`: what the export says of itself. UserError where this machine, or the export, lacks
    what is asked for.
    """
    found = candidates(manifest, inference, this_machine(setup))
    chosen = found.choices[0]
    if len(found.choices) > 1:
        speeds = measured_speeds(folder, found.choices, setup, batch_size)
        chosen = fastest(found.choices, speeds)
        console.note(_why(chosen, found, speeds, setup, batch_size))
    reason = None if is_chosen(chosen, manifest) else doubt(chosen, inference.min_agreement)
    if reason is not None:  # asked for by name
        console.warn(f"{chosen.name} {reason}")
    return open_choice(folder, manifest, chosen, setup, batch_size, tensorrt=own if inference.tensorrt else None)


def choices(manifest: ExportManifest, setup: ProcessSetup) -> list[Choice]:
    """Every way in which this machine can run an export, however its graphs did when it was made."""
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
    """The export in `folder`, run in one way. UserError where its files are not what its manifest says.

    `tensorrt`: what the export says of itself, where TensorRT is to run it: rows are made up by it, to show it shapes.
    """
    if choice.engine == "onnxruntime":
        from nlpctl.inference.onnx_runtime import OnnxPredictor

        return OnnxPredictor(folder, manifest, choice.graph, setup)
    from nlpctl.inference.paddle_inference import PaddlePredictor

    if tensorrt is None:
        return PaddlePredictor(folder, manifest, choice.graph, choice.precision, setup)
    batches, rows = functools.partial(sample_batches, folder, tensorrt), TENSORRT_ROWS * batch_size
    samples = [*batches(1, 1), *batches(batch_size, rows)]
    return PaddlePredictor(folder, manifest, choice.graph, choice.precision, setup, tensorrt=True, samples=samples)


def this_machine(setup: ProcessSetup) -> Machine:
    """What this machine can run, on the device of `setup`."""
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
    """The fastest of those that were timed; the first, which is the plainest, where none was."""
    return max(found, key=lambda choice: speeds.rows_per_second.get(choice.name, 0.0))


def _why(chosen: Choice, found: Candidates, speeds: Speeds, setup: ProcessSetup, batch_size: int) -> str:
    """One line on what was taken, the others, and what was not considered."""
    ranked = sorted(speeds.rows_per_second.items(), key=lambda entry: -entry[1])
    told = ", ".join(f"{name} {speed:,.0f}" for name, speed in ranked) or "none could be timed"
    when = "earlier" if speeds.kept else "now"
    threads = f", {setup.threads} threads" if setup.device == "cpu" else ""
    lines = [f"auto takes {chosen.name}; rows per second, {batch_size} at a time{threads}, timed {when}: {told}"]
    lines += [f"  not {choice.name}: it {reason}" for choice, reason in found.left_out]
    lines += [f"  not {name}: it failed ({reason})" for name, reason in speeds.failed.items()]
    return "\n".join(lines)
