"""Compare the graphs of an export with the network, in every engine of this machine."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nlpctl import console
from nlpctl.engines.choice import Choice, all_choices, obstacle, open_choice, runnable_here, this_machine
from nlpctl.engines.parity import LARGEST_BATCH, Difference, Parity
from nlpctl.errors import Problem, RunFailed
from nlpctl.export.request import ExportRequest
from nlpctl.export.strategies import FP16, FP32, INT8
from nlpctl.extras import is_installed
from nlpctl.models.export_folder import Check, ExportManifest, Graph
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task

FP32_AGREEMENT = 0.99  # answers tie within the tolerance; one changed row is always allowed
# Graphs for cards that a machine without one compares too.
_FOR_CARDS = (("onnxruntime", FP32), ("onnxruntime", FP16))
CARD_FACTOR = 50  # GPUs from Ampere on multiply fp32 matrices in TF32, with a 10-bit mantissa


@dataclass(frozen=True)
class RefusedGraph:
    """A graph that is left out of an export, and why."""

    graph: Graph
    problems: tuple[Problem, ...]

    @property
    def reason(self) -> str:
        return "; ".join(problem.message for problem in self.problems)


@dataclass(frozen=True)
class GraphDifference:
    """The difference between a graph, in one engine and precision, and the network."""

    graph: Graph
    engine: str
    precision: str
    difference: Difference


@dataclass(frozen=True)
class _Way:
    """A choice, where it is run, and the engine as the checks name it."""

    choice: Choice
    setup: ProcessSetup
    engine: str


def compare_graphs(
    folder: Path, manifest: ExportManifest, request: ExportRequest, setup: ProcessSetup, parity: Parity
) -> tuple[ExportManifest, list[GraphDifference], list[RefusedGraph]]:
    """The manifest with its checks, all findings, and the optional graphs of `request` that were refused and deleted.
    RunFailed lists every required graph beyond the tolerance of the task.

    Only fp32 and int8 can fail; results in bf16 and fp16 are recorded for information.
    """
    findings, problems = run_graphs(folder, manifest, setup, parity)
    for finding in findings:
        problems[finding.graph] += _beyond_tolerance(finding, parity.task, setup)
    fatal = [each for graph in manifest.graphs if not request.may_lack(graph) for each in problems[graph]]
    if fatal:
        raise RunFailed(problems=fatal)
    refused = [RefusedGraph(graph, tuple(problems[graph])) for graph in manifest.graphs if problems[graph]]
    for each in refused:
        remove_graph(folder, each.graph)
    kept = (graph for graph in manifest.graphs if not problems[graph])
    graphs = tuple(with_checks(graph, findings) for graph in kept)
    return dataclasses.replace(manifest, graphs=graphs), findings, refused


def remove_graph(folder: Path, graph: Graph) -> None:
    """Delete the files of a graph that exist."""
    for name in graph.files:
        (folder / name).unlink(missing_ok=True)


def run_graphs(
    folder: Path, manifest: ExportManifest, setup: ProcessSetup, parity: Parity
) -> tuple[list[GraphDifference], dict[Graph, list[Problem]]]:
    """The findings of every engine of this machine per graph, and the problems of graphs that fail."""
    findings: list[GraphDifference] = []
    problems: dict[Graph, list[Problem]] = defaultdict(list)
    ways = _ways(manifest, setup)
    with console.progress(len(ways), "compare", unit="engines") as bar:
        for way in ways:
            choice = way.choice
            result = _compared(folder, manifest, way, parity)
            if isinstance(result, GraphDifference):
                findings.append(result)
            elif choice.precision == choice.graph.precision:
                hint = f"leave out @[formats={choice.graph.format}]"
                problems[choice.graph].append(Problem(f"{choice.name} fails: {result}", choice.graph.files[0], hint))
            else:  # a precision other than the graph's own is optional
                console.warn(f"{choice.graph.files[0]}: {choice.name} fails: {result}")
            bar.advance()
    # A graph that ran in another precision only is not verified in its own.
    tried = {way.choice.graph for way in ways if way.choice.precision == way.choice.graph.precision}
    machine = this_machine(setup)
    for choice in all_choices(manifest):
        if choice.graph not in tried and choice.precision == choice.graph.precision:
            reason = obstacle(choice.engine, choice.precision, machine)
            why = f": {reason.message}" if reason and machine.kind == "cpu" else f" on a {machine.kind.upper()}"
            hint = "use @[runtime.device=cpu]" if machine.kind != "cpu" else "export on a machine that runs it"
            message = f"it could not be compared with the network{why}"
            problems[choice.graph].append(Problem(message, choice.graph.files[0], hint))
    return findings, problems


def _ways(manifest: ExportManifest, setup: ProcessSetup) -> list[_Way]:
    """Every way in which this machine runs the graphs. The CPU stands in for a card with ONNX Runtime: nobody would run
    fp16 there, but it can be compared."""
    here = runnable_here(manifest, setup)
    ways = [_Way(choice, setup, choice.engine) for choice in here]
    if is_installed("onnxruntime"):
        on_cpu = dataclasses.replace(setup, device="cpu")
        for choice in all_choices(manifest):
            if (choice.engine, choice.precision) in _FOR_CARDS and choice not in here:
                # Under another name: "auto" on a card asks for what was compared on one.
                ways.append(_Way(choice, on_cpu, f"{choice.engine} (CPU)"))
    return ways


def with_checks(graph: Graph, findings: Sequence[GraphDifference]) -> Graph:
    """`graph` with its findings."""
    checks = tuple(
        Check(each.engine, each.precision, each.difference.largest, each.difference.agreement)
        for each in findings
        if each.graph == graph
    )
    return dataclasses.replace(graph, checks=checks)


def _compared(folder: Path, manifest: ExportManifest, way: _Way, parity: Parity) -> GraphDifference | str:
    """The outputs of a graph in an engine, or the reason for its failure."""
    try:
        predictor = open_choice(folder, manifest, way.choice, way.setup, LARGEST_BATCH)
        difference = parity.difference(predictor.outputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if math.isnan(difference.relative):  # extreme shapes too: decisions do not cover them
        return "its outputs are not finite, or their shape differs from the network's"
    return GraphDifference(way.choice.graph, way.engine, way.choice.precision, difference)


def fp32_tolerance(task: Task, setup: ProcessSetup) -> float:
    """The tolerance of an fp32 graph's outputs on this device, relative to the largest output if that is above 1."""
    return task.graph_tolerance * (1 if setup.device == "cpu" else CARD_FACTOR)


def _beyond_tolerance(finding: GraphDifference, task: Task, setup: ProcessSetup) -> list[Problem]:
    """The problem of a graph in its own precision; none if it is within the tolerance."""
    difference, name = finding.difference, f"{finding.graph.files[0]} ({finding.engine})"
    if finding.precision != finding.graph.precision:
        return []
    changed = f"{len(difference.changed)} decisions differ ({difference.agreement:.2%} alike)"
    if finding.precision == "fp32":
        allowed = fp32_tolerance(task, setup)
        too_many = len(difference.changed) > 1 and difference.agreement < FP32_AGREEMENT
        if difference.relative > allowed or too_many:
            message = (
                f"differs from the network: outputs differ by {difference.largest:.3g} "
                f"({difference.relative:.3g} of the largest; tolerance {allowed:.0e}), {changed}"
            )
            return [Problem(message, name, "use the model folder itself: @[engine=dygraph]")]
    if finding.precision == INT8 and difference.agreement < task.int8_agreement:
        message = f"changes too many decisions: {changed}, {task.int8_agreement:.0%} must agree"
        return [Problem(message, name, "use @[precisions=int8], which keeps the methods that pass, or leave it out")]
    return []
