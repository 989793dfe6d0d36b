"""Open an export with the engine and precision of a recipe, or, for "auto", the fastest on this machine."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nlpctl import console
from nlpctl.config.schema import InferenceSection, Recipe
from nlpctl.data.batches.collate import Batch
from nlpctl.engines.choice import Candidates, Choice, Machine, candidates, doubt, is_chosen, is_installed, runnable
from nlpctl.engines.engine import Predictor
from nlpctl.engines.samples import sample_batches
from nlpctl.engines.speeds import LIMIT, Known, known_speeds, measured_speeds, usual_speeds
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import ExportManifest
from nlpctl.runtime.interrupt import sigterm_waits
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import ProcessSetup, import_paddle

TENSORRT_ROWS = 4  # synthetic batches for collecting TensorRT's shapes
PAYS = 5  # timing engines pays if the work takes this many times as long

Rows = int | Callable[[int], int] | None  # a function: as many as it is told, or fewer if there are no more
Settle = Callable[[], "Opened | None"]


@dataclass(frozen=True)
class Opened:
    """An engine that "auto" has opened, and `way`, the name of its choice.

    `settle`: what is left to do if it had to guess, or the machine was busy when engines were timed, for whoever has
    time. It times the engines, keeps the figures, and returns a faster engine, warmed up, or None if this one is the
    fastest.
    """

    predictor: Predictor
    way: str
    settle: Settle | None = None


@dataclass(frozen=True)
class _Export:
    """An export, and what it is opened for; see `open_predictor`."""

    folder: Path
    manifest: ExportManifest
    inference: InferenceSection
    setup: ProcessSetup
    batch_size: int
    own: Recipe

    def opened(self, chosen: Choice) -> Predictor:
        """The chosen engine, with a warning if it was requested by name and is doubted."""
        reason = None if is_chosen(chosen, self.manifest) else doubt(chosen, self.manifest, self.inference)
        if reason is not None:
            console.warn(f"{chosen.name} {reason}")
        tensorrt = self.own if self.inference.tensorrt else None
        return open_choice(self.folder, self.manifest, chosen, self.setup, self.batch_size, tensorrt=tensorrt)

    @functools.cached_property
    def synthetic(self) -> Batch:
        """One batch of synthetic rows."""
        return sample_batches(self.folder, self.own, self.batch_size, self.batch_size)[0]


def open_predictor(
    folder: Path,
    manifest: ExportManifest,
    inference: InferenceSection,
    setup: ProcessSetup,
    batch_size: int,
    own: Recipe,
    rows: Rows = None,
) -> Opened:
    """Load the export in `folder` by section `inference`, for batches of `batch_size` rows.

    If several engines and precisions remain, the one is taken that was the fastest when it was timed. Where nothing was
    timed under these conditions, or on a busy machine, the most plausible one is: nothing is timed before the first
    answer, unless so many `rows` are to be answered that it pays (a number, or a function that counts them up to a
    number; None: not known).
    Fewer rows than a batch holds are what the fastest is chosen for. A note on stderr gives the reason. `own`: the
    export's own recipe. UserError if this machine or the export does not support the request.
    """
    export = _Export(folder, manifest, inference, setup, batch_size, own)
    possible = candidates(manifest, inference, this_machine(setup))
    if len(possible.choices) == 1:
        return Opened(export.opened(possible.choices[0]), possible.choices[0].name)
    size = batch_size if rows is None else max(1, _at_most(rows, batch_size))
    known = known_speeds(folder, manifest, possible.choices, setup)
    expected = usual_speeds(manifest, possible.choices, setup) if known is None else known
    chosen = fastest(possible.choices, expected.speeds, size)
    predictor = export.opened(chosen)
    if known is not None and not known.speeds.busy:
        console.note(_why(chosen, possible, known, size))
        return Opened(predictor, chosen.name)

    def settle(*, gently: bool = True) -> Opened | None:
        measured = measured_speeds(folder, possible.choices, setup, gently=gently)
        if known is not None and known.speeds.others < measured.speeds.others:
            measured = known  # still busy, and more so
        best = fastest(possible.choices, measured.speeds, size) if measured.speeds.rows_per_second else chosen
        console.note(_why(best, possible, measured, size))
        if best == chosen:
            return None
        faster = export.opened(best)
        _seconds(faster, export)
        return Opened(faster, best.name)

    if rows is not None and _pays(rows, predictor, export):
        console.note(f"auto: timing {len(possible.choices)} ways to run this export, once on this machine")
        return settle(gently=False) or Opened(predictor, chosen.name)
    console.note(_why(chosen, possible, expected, size))
    return Opened(predictor, chosen.name, settle)


def _at_most(rows: int | Callable[[int], int], most: int) -> int:
    """The number of rows, or `most` if there are more."""
    return min(rows, most) if isinstance(rows, int) else rows(most)


def _pays(rows: int | Callable[[int], int], predictor: Predictor, export: _Export) -> bool:
    """Whether answering `rows` takes so long that timing the engines first is worth it; a single batch never does."""
    if _at_most(rows, export.batch_size + 1) <= export.batch_size:
        return False
    enough = math.ceil(PAYS * LIMIT / max(_seconds(predictor, export), 1e-9))
    return _at_most(rows, enough) >= enough


def _seconds(predictor: Predictor, export: _Export) -> float:
    """Seconds per row of one synthetic batch, the second time that it is computed."""
    batch = export.synthetic
    predictor.outputs(batch)  # engines prepare their kernels with it
    started = time.perf_counter()
    predictor.outputs(batch)
    return (time.perf_counter() - started) / len(next(iter(batch.values())))


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
        from nlpctl.engines.onnx_runtime import OnnxPredictor

        return OnnxPredictor(folder, manifest, choice.graph, setup)
    if "paddle" not in sys.modules:
        with sigterm_waits():
            import_paddle(setup)
    from nlpctl.engines.paddle_inference import PaddlePredictor

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
        from nlpctl.engines.onnx_runtime import runs_on_cards
    return Machine(
        cpu,
        setup.device,
        onnxruntime,
        onnxruntime_gpu=onnxruntime and runs_on_cards(),
        gpu_bf16=paddle.device.cuda.get_device_capability() >= (8, 0),
        tensorrt=paddle.inference.get_trt_compile_version() != (0, 0, 0),
    )


def fastest(choices: tuple[Choice, ...], speeds: EngineSpeeds, batch_size: int) -> Choice:
    """The fastest timed choice; the first, which is the simplest, if none was timed."""
    return max(choices, key=lambda choice: speeds.speed(choice.name, batch_size) or 0.0)


def _why(chosen: Choice, possible: Candidates, known: Known, batch_size: int) -> str:
    """The note on the chosen engine, the other speeds, and the choices that were excluded."""
    speeds = known.speeds
    speeds_by_name = [(each.name, speed) for each in possible.choices if (speed := speeds.speed(each.name, batch_size))]
    ranked = ", ".join(f"{name} {speed:,.0f}" for name, speed in sorted(speeds_by_name, key=lambda each: -each[1]))
    lines = [f"auto takes {chosen.name}; rows per second, batch size {batch_size}, {known.origin_and_load}: "]
    lines[0] += ranked or "none was timed"
    lines += [f"  not {choice.name}: it {reason}" for choice, reason in possible.left_out]
    failed = [(each.name, speeds.failed[each.name]) for each in possible.choices if each.name in speeds.failed]
    lines += [f"  not {name}: it failed ({reason})" for name, reason in failed]
    return "\n".join(lines)
