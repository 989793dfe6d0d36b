"""The choices for running an export: every engine and precision that its graphs, this machine and the recipe allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nlpctl.config.schema import InferenceSection
from nlpctl.errors import Problem, UserError
from nlpctl.inference.support import ENGINE_FORMATS, TENSORRT_PRECISIONS, Machine, obstacle, tensorrt_obstacle
from nlpctl.models.export_folder import Check, ExportManifest, Graph, way_name


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
class Candidates:
    """The usable choices of an export, and the unusable ones with the reason."""

    choices: tuple[Choice, ...]
    left_out: tuple[tuple[Choice, str], ...] = ()


def all_choices(manifest: ExportManifest) -> list[Choice]:
    """Every way to run the graphs of an export on any machine."""
    found = []
    for graph in manifest.graphs:
        if graph.format == "onnx":
            found.append(Choice("onnxruntime", graph.precision, graph))
        else:
            precisions = ("int8",) if graph.precision == "int8" else ("fp32", "bf16", "fp16")
            found += [Choice("paddle", precision, graph) for precision in precisions]
    return found


def runnable(manifest: ExportManifest, machine: Machine) -> list[Choice]:
    """The choices of `all_choices` that `machine` can run."""
    return [each for each in all_choices(manifest) if obstacle(each.engine, each.precision, machine) is None]


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


def candidates(manifest: ExportManifest, inference: InferenceSection, machine: Machine) -> Candidates:
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
        again = f"export the model again with --precision {inference.precision}"
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
        return Candidates((chosen,))
    reasons = {each.name: doubt(each, manifest, inference) for each in possible}
    left_out = tuple((each, reason) for each in possible if (reason := reasons[each.name]) is not None)
    taken = tuple(each for each in possible if reasons[each.name] is None)
    if not taken and inference.precision != "auto":
        return Candidates(tuple(possible))
    if not taken:
        told = "; ".join(f"{each.name} {reason}" for each, reason in left_out)
        key = "lower inference.min_agreement" if manifest.dev is None else "raise inference.max_drop"
        hint = f"request it: --precision {left_out[0][0].precision}; or {key}"
        raise UserError(f"auto accepts no graph of this export: {told}", "inference.precision", hint)
    return Candidates(taken, left_out)


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
    drop = None if manifest.dev is None else manifest.dev.drop(choice.name)
    if drop is not None:
        if drop <= inference.max_drop:
            return None
        return f"scored {drop:.2f} points worse than fp32 on {manifest.dev.rows:,} rows of dev ({manifest.dev.metric})"
    if choice.check is None:
        return "was not compared with the network when it was exported"
    if choice.check.agreement < inference.min_agreement:
        return f"decided {choice.check.agreement:.2%} of the rows like the network"
    return None


def _missing(manifest: ExportManifest, inference: InferenceSection) -> UserError:
    if inference.engine == "dygraph":
        hint = "use the model folder or run that it was made from, or another engine"
        return UserError("an export has graphs only, and dygraph needs the network", "inference.engine", hint)
    engine = "paddle" if inference.tensorrt else inference.engine
    format = ENGINE_FORMATS[engine]
    held = " and ".join(sorted({graph.format for graph in manifest.graphs})) or "no"
    hint = f"export the model again with --format {format}, or use --engine auto"
    message = f"{engine} runs {format} graphs; this export holds {held} graphs"
    return UserError(message, "inference.engine", hint)


def _instead(precision: str, possible: Sequence[Choice], machine: Machine) -> str:
    """What to do where `machine` cannot run an export in `precision`. `possible`: what it can run of it."""
    other = dict.fromkeys(f"--precision {each.precision}" for each in possible if each.precision != precision)
    if machine.kind != "cpu":
        return " or ".join([f"use {each}" for each in other] + ["use --device cpu"])
    again = "export or compress the model again for ONNX Runtime, which computes int8 on every processor"
    again = again if machine.onnxruntime else f"pip install onnxruntime, and {again}"
    return ", or ".join([*(f"use {each}" for each in other), *([again] if precision == "int8" else [])])


def _first(problems: list[Problem | None]) -> Problem:
    return next(problem for problem in problems if problem is not None)
