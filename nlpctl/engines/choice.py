"""The choices for running an export: every engine and precision that its graphs, this machine and the recipe allow.

`obstacle`, at the end, is the one place that says whether an engine computes in a precision on a machine, and why not.
Imports neither Paddle nor NumPy, but in the functions that ask a card or open a choice.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nlpctl.config.schema import InferenceSection, Recipe
from nlpctl.errors import Problem, UserError
from nlpctl.extras import is_installed, not_installed
from nlpctl.models.export_folder import Check, ExportManifest, Graph, way_name
from nlpctl.report.language import later
from nlpctl.runtime.device import REPLACE_ORT, paddle_has_card
from nlpctl.runtime.interrupt import sigterm_waits
from nlpctl.runtime.machine import NATIVE, CpuInfo, cpu_info
from nlpctl.runtime.process import ProcessSetup, import_paddle

if TYPE_CHECKING:
    from nlpctl.engines.engine import Predictor

TENSORRT_ROWS = 4  # synthetic batches for collecting TensorRT's shapes


@dataclass(frozen=True)
class Choice:
    """A graph of an export, run by an engine in a precision."""

    engine: str
    precision: str
    graph: Graph

    @property
    def name(self) -> str:
        """The display name, unique within an export: "onnxruntime int8 (dynamic)"."""
        return way_name(self.engine, self.precision, self.graph.method)

    @property
    def check(self) -> Check | None:
        """The check at export time; None if that machine could not run it."""
        pair = (self.engine, self.precision)
        return next((each for each in self.graph.checks if (each.engine, each.precision) == pair), None)


@dataclass(frozen=True)
class AllowedChoices:
    """The usable choices of an export, and the unusable ones with the reason."""

    choices: tuple[Choice, ...]
    left_out: tuple[tuple[Choice, str], ...] = ()


def allowed_choices(manifest: ExportManifest, inference: InferenceSection, machine: Machine) -> AllowedChoices:
    """The choices that `inference` allows for `manifest` on `machine`; several if a choice remains.

    The choice recorded in the export is used if it is allowed and the machine can run it. Otherwise "auto" accepts fp32
    and what `doubt` has nothing against. A requested precision is accepted anyhow, but graphs without doubt are
    preferred. UserError if nothing is left.
    """
    check_engine(inference, machine)
    of_engine = [each for each in all_choices(manifest) if inference.engine in ("auto", each.engine)]
    if inference.tensorrt:
        of_engine = [each for each in of_engine if each.engine == "paddle" and each.precision in TENSORRT_PRECISIONS]
    if not of_engine:
        raise _missing(manifest, inference)
    wanted = [each for each in of_engine if inference.precision in ("auto", each.precision)]
    if not wanted:
        again = f"export the model again with @[precisions={inference.precision}]"
        hint = f"{again}, or use auto, if that graph was left out then"
        for_engine = "" if inference.engine == "auto" else f" for {inference.engine}"
        raise UserError(f"this export holds no {inference.precision} graph{for_engine}", "inference.precision", hint)
    obstacles = [obstacle(each.engine, each.precision, machine) for each in wanted]
    possible = [each for each, problem in zip(wanted, obstacles, strict=True) if problem is None]
    if not possible:
        problem = _first(obstacles)
        if problem.where == "inference.precision":
            problem = replace(problem, hint=_instead(wanted[0].precision, runnable(manifest, machine), machine))
        raise UserError(problems=[problem])
    chosen = next((each for each in possible if is_chosen(each, manifest)), None)
    if chosen is not None:
        return AllowedChoices((chosen,))
    reasons = {each.name: doubt(each, manifest, inference) for each in possible}
    left_out = tuple((each, reason) for each in possible if (reason := reasons[each.name]) is not None)
    taken = tuple(each for each in possible if reasons[each.name] is None)
    if not taken and inference.precision != "auto":
        return AllowedChoices(tuple(possible))
    if not taken:
        reasons_against = "; ".join(f"{each.name} {reason}" for each, reason in left_out)
        key = "lower inference.min_agreement" if manifest.dev is None else "raise inference.max_drop"
        hint = f"request it: @[precision={left_out[0][0].precision}]; or {key}"
        raise UserError(f"auto accepts no graph of this export: {reasons_against}", "inference.precision", hint)
    return AllowedChoices(taken, left_out)


def all_choices(manifest: ExportManifest) -> list[Choice]:
    """Every way to run the graphs of an export on any machine."""
    choices = []
    for graph in manifest.graphs:
        if graph.format == "onnx":
            choices.append(Choice("onnxruntime", graph.precision, graph))
        else:
            precisions = ("int8",) if graph.precision == "int8" else ("fp32", "bf16", "fp16")
            choices += [Choice("paddle", precision, graph) for precision in precisions]
    return choices


def runnable(manifest: ExportManifest, machine: Machine) -> list[Choice]:
    """The choices of `all_choices` that `machine` can run."""
    return [each for each in all_choices(manifest) if obstacle(each.engine, each.precision, machine) is None]


def could_use_card(manifest: ExportManifest, inference: InferenceSection, engines: Collection[str]) -> bool:
    """Whether some of `engines`, those that can use a card, computes there what `inference` allows of the export."""
    return any(
        each.engine in engines
        and inference.engine in ("auto", each.engine)
        and inference.precision in ("auto", each.precision)
        and each.precision in _PRECISIONS[each.engine, "gpu"]
        for each in all_choices(manifest)
    )


def runnable_here(manifest: ExportManifest, setup: ProcessSetup) -> list[Choice]:
    """Every engine and precision in which this machine can run an export, whatever its agreement at export."""
    return runnable(manifest, this_machine(setup))


def is_chosen(choice: Choice, manifest: ExportManifest) -> bool:
    """Whether the export records this choice as chosen by its score; its agreement is then not checked."""
    chosen = manifest.chosen
    return chosen is not None and (choice.engine, choice.precision) == (chosen.engine, chosen.precision)


def doubt(choice: Choice, manifest: ExportManifest, inference: InferenceSection) -> str | None:
    """The reason why auto rejects `choice`, as a predicate; None if it accepts it.

    Its score on dev decides where the export knows it, since agreement on some hundred rows varies with the rows.
    """
    if choice.precision == "fp32":
        return None
    if manifest.dev is not None and (drop := manifest.dev.drop(choice.name)) is not None:
        if drop <= inference.max_drop:
            return None
        of_dev = manifest.dev.rows, manifest.dev.metric
        return later("scored {:.2f} points worse than fp32 on {:,} rows of dev ({})", drop, *of_dev)
    if choice.check is None:
        return later("was not compared with the network when it was exported")
    if choice.check.agreement < inference.min_agreement:
        return later("decided {:.2%} of the rows like the network", choice.check.agreement)
    return None


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
    from nlpctl.engines.samples import sample_batches

    batches, rows = functools.partial(sample_batches, folder, tensorrt), TENSORRT_ROWS * batch_size
    # TensorRT builds for a range of shapes, so a single row stands for its lower end.
    samples = [*batches(1, 1), *batches(batch_size, rows)]
    return PaddlePredictor(folder, manifest, choice.graph, choice.precision, setup, tensorrt=True, samples=samples)


def _missing(manifest: ExportManifest, inference: InferenceSection) -> UserError:
    if inference.engine == "dygraph":
        hint = "use the model folder or run that it was made from, or another engine"
        return UserError("an export has graphs only, and dygraph needs the network", "inference.engine", hint)
    engine = "paddle" if inference.tensorrt else inference.engine
    format = ENGINE_FORMATS[engine]
    held = " and ".join(sorted({graph.format for graph in manifest.graphs})) or "no"
    hint = f"export the model again with @[formats={format}], or use @[engine=auto]"
    message = f"{engine} runs {format} graphs; this export holds {held} graphs"
    return UserError(message, "inference.engine", hint)


def _instead(precision: str, possible: Sequence[Choice], machine: Machine) -> str:
    """What to do where `machine` cannot run an export in `precision`. `possible`: what it can run of it."""
    other = dict.fromkeys(f"@[precision={each.precision}]" for each in possible if each.precision != precision)
    if machine.kind != "cpu":
        return " or ".join([f"use {each}" for each in other] + ["use @[runtime.device=cpu]"])
    again = "export or compress the model again for ONNX Runtime, which computes int8 on every processor"
    again = again if machine.onnxruntime else f"pip install onnxruntime, and {again}"
    return ", or ".join([*(f"use {each}" for each in other), *([again] if precision == "int8" else [])])


def _first(problems: list[Problem | None]) -> Problem:
    return next(problem for problem in problems if problem is not None)


# -- which engine computes in which precision where, and why not ------------------------------------------------------

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
    paddle: bool = True  # installed, and able to use the device

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]


def this_machine(setup: ProcessSetup) -> Machine:
    """The capabilities of this machine on the device of `setup`."""
    cpu, onnxruntime, on_card = cpu_info(), is_installed("onnxruntime"), setup.device != "cpu"
    onnxruntime_gpu = False
    if onnxruntime and on_card:
        from nlpctl.engines.onnx_runtime import runs_on_cards

        onnxruntime_gpu = runs_on_cards()
    with_paddle = paddle_has_card() if on_card else is_installed("paddle")
    gpu_bf16 = tensorrt = False
    if with_paddle and on_card:
        import paddle

        gpu_bf16 = paddle.device.cuda.get_device_capability() >= (8, 0)
        tensorrt = paddle.inference.get_trt_compile_version() != (0, 0, 0)
    return Machine(cpu, setup.device, onnxruntime, onnxruntime_gpu, gpu_bf16, tensorrt, with_paddle)


def check_engine(inference: InferenceSection, machine: Machine) -> None:
    """UserError if no export at all could be run as `inference` asks."""
    refused = tensorrt_obstacle(inference, machine) if inference.tensorrt else None
    if refused is not None:
        raise UserError(problems=[refused])
    engines = [name for name in ENGINE_FORMATS if inference.engine in ("auto", name)]
    if inference.precision == "auto":
        problems = [obstacle(engine, "fp32", machine) for engine in engines]
    else:
        problems = [obstacle(engine, inference.precision, machine) for engine in engines]
    # One engine that can run it is enough; the export decides later whether it has a graph for that one.
    if problems and all(problems):
        raise UserError(problems=[_first(problems)])


def obstacle(engine: str, precision: str, machine: Machine) -> Problem | None:
    """The reason why `machine` cannot run `engine` in `precision`; None if it can."""
    if engine == "paddle" and not machine.paddle and machine.kind == "gpu":
        hint = "use @[engine=onnxruntime], or @[runtime.device=cpu]"
        return Problem("no Paddle that can use this card is installed", "inference.engine", hint)
    if engine == "paddle" and not machine.paddle:
        return not_installed("paddle", "inference.engine", "use @[engine=onnxruntime]").problems[0]
    if engine == "onnxruntime" and not machine.onnxruntime:
        hint = "pip install onnxruntime, or use @[engine=paddle]"
        return Problem("ONNX Runtime is not installed", "inference.engine", hint)
    if engine == "onnxruntime" and machine.kind == "gpu" and not machine.onnxruntime_gpu:
        hint = f"{REPLACE_ORT}; or use @[engine=paddle] or @[runtime.device=cpu]"
        return Problem("the installed ONNX Runtime has no CUDA", "inference.engine", hint)
    offered = _PRECISIONS[engine, machine.kind]
    if precision not in offered:
        message = f"{engine} does not compute in {precision} on a {machine.kind.upper()}"
        return Problem(message, "inference.precision", f"use {' or '.join(offered)}, or another engine or device")
    # ONNX Runtime offers fp32 and int8 on a CPU, and computes both right on all of them (docs/upstream.md).
    if engine == "paddle" and machine.kind == "cpu" and not machine.cpu.computes(precision):
        message = f"this processor ({machine.cpu.model or 'unknown'}) does not compute in {precision} natively"
        otherwise, hint = "it would be slower than fp32", "use @[precision=fp32], or auto"
        if precision == "int8":
            otherwise = "Paddle's sums would overflow and change answers"
            hint = "use @[engine=onnxruntime], or @[precision=fp32]"
            hint = hint if machine.onnxruntime else f"pip install onnxruntime, and {hint}"
        needs = f"that needs one of {', '.join(NATIVE[precision])}; otherwise {otherwise}"
        return Problem(f"{message}: {needs}", "inference.precision", hint)
    if machine.kind == "gpu" and precision == "bf16" and not machine.gpu_bf16:
        message = "this GPU does not compute in bf16 natively, which needs compute capability 8.0"
        return Problem(message, "inference.precision", "use @[precision=fp16], or auto")
    return None


def tensorrt_obstacle(inference: InferenceSection, machine: Machine) -> Problem | None:
    """The reason why `machine` cannot use TensorRT as `inference` asks; None if it can."""
    where = "inference.tensorrt"
    if inference.engine == "onnxruntime":
        message = "TensorRT works with Paddle Inference only, not with ONNX Runtime"
        return Problem(message, where, "use @[engine=paddle]")
    if machine.kind != "gpu":
        return Problem("TensorRT runs on NVIDIA GPUs only", where, "use @[runtime.device=gpu], or set it to false")
    if not machine.tensorrt:
        hint = "install a build with TensorRT from the downloads of Paddle Inference, or set it to false"
        return Problem("the installed Paddle was built without TensorRT", where, hint)
    if inference.precision not in ("auto", *TENSORRT_PRECISIONS):
        first, *others = TENSORRT_PRECISIONS
        hint = f"use {' or '.join([f'@[precision={first}]', *others])}"
        return Problem(f"TensorRT is not used with {inference.precision} graphs", where, hint)
    return None
