"""Whether the graphs of an export answer as the network does, in every engine that this machine has."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nlpctl import console
from nlpctl.errors import Problem, RunFailed
from nlpctl.export.plan import Plan
from nlpctl.export.write_graphs import Refused, remove_graph
from nlpctl.inference.auto import choices, open_choice
from nlpctl.inference.choice import Choice
from nlpctl.inference.parity import LARGEST_BATCH, Difference, Parity
from nlpctl.models.export_folder import Check, ExportManifest, Graph
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task

FP32_AGREEMENT = 0.99  # two answers may be as good within the tolerance; one row always may
CARD_FACTOR = 50  # cards from Ampere on multiply fp32 matrices in TF32, which keeps 10 bits of a factor


@dataclass(frozen=True)
class Finding:
    """What one engine and precision made of one graph."""

    graph: Graph
    engine: str
    precision: str
    difference: Difference


def compare_graphs(
    folder: Path, manifest: ExportManifest, plan: Plan, setup: ProcessSetup, parity: Parity
) -> tuple[ExportManifest, list[Finding], list[Refused]]:
    """The manifest with its checks, all findings, and the graphs that were refused and deleted: those that `plan` may
    lack. RunFailed, graph by graph, where another one is beyond the tolerance of the task.

    Only a graph's own precision can fail; bf16 and fp16 are noted for those who choose an engine.
    """
    findings, problems = run_graphs(folder, manifest, setup, parity)
    for found in findings:
        problems[found.graph] += _beyond(found, parity.task, setup)
    fatal = [each for graph in manifest.graphs if not plan.may_lack(graph) for each in problems[graph]]
    if fatal:
        raise RunFailed(problems=fatal)
    refused = [Refused(graph, tuple(problems[graph])) for graph in manifest.graphs if problems[graph]]
    for each in refused:
        remove_graph(folder, each.graph)
    kept = (graph for graph in manifest.graphs if not problems[graph])
    graphs = tuple(with_checks(graph, findings) for graph in kept)
    return dataclasses.replace(manifest, graphs=graphs), findings, refused


def run_graphs(
    folder: Path, manifest: ExportManifest, setup: ProcessSetup, parity: Parity
) -> tuple[list[Finding], dict[Graph, list[Problem]]]:
    """What every engine of this machine makes of the graphs, and why it is nothing for some graphs."""
    findings: list[Finding] = []
    problems: dict[Graph, list[Problem]] = defaultdict(list)
    ways = choices(manifest, setup)
    with console.progress(len(ways), "compare", unit="engines") as bar:
        for choice in ways:
            found = _compared(folder, manifest, choice, setup, parity)
            if isinstance(found, Finding):
                findings.append(found)
            else:
                problems[choice.graph] += _failing(choice, found)
            bar.advance()
    tried = {choice.graph for choice in ways if choice.precision == choice.graph.precision}
    for graph in manifest.graphs:
        if graph not in tried:
            message = "no engine on this machine runs it, so it could not be compared with the network"
            hint = "export it where one does: `nlpctl doctor` tells what a machine has"
            problems[graph].append(Problem(message, graph.files[0], hint))
    return findings, problems


def with_checks(graph: Graph, findings: Sequence[Finding]) -> Graph:
    """`graph` with what was found of it."""
    checks = tuple(
        Check(each.engine, each.precision, each.difference.largest, each.difference.agreement)
        for each in findings
        if each.graph == graph
    )
    return dataclasses.replace(graph, checks=checks)


def warn_refused(refused: Sequence[Refused]) -> None:
    """Tell which graphs the export goes without."""
    for each in refused:
        console.warn(f"{each.graph.files[0]} is left out: {each.reason}")


def _compared(
    folder: Path, manifest: ExportManifest, choice: Choice, setup: ProcessSetup, parity: Parity
) -> Finding | str:
    """What an engine makes of a graph, or why that is nothing."""
    try:
        predictor = open_choice(folder, manifest, choice, setup, LARGEST_BATCH)
        difference = parity.difference(predictor.outputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if math.isnan(difference.relative):  # also where only an extreme shape gives it, which no decision would show
        return "its outputs are no numbers, or have another shape than the network's"
    return Finding(choice.graph, choice.engine, choice.precision, difference)


def _failing(choice: Choice, reason: str) -> list[Problem]:
    """A problem of the graph, but not in a precision that it is not written in: nobody has to have that."""
    told = f"{choice.name} fails: {reason}"
    if choice.precision == choice.graph.precision:
        return [Problem(told, choice.graph.files[0], f"leave out --format {choice.graph.format}")]
    console.warn(f"{choice.graph.files[0]}: {told}")
    return []


def fp32_tolerance(task: Task, setup: ProcessSetup) -> float:
    """The most that an fp32 graph's outputs may differ on this device, as a share of them where above 1."""
    return task.graph_tolerance * (1 if setup.device == "cpu" else CARD_FACTOR)


def _beyond(found: Finding, task: Task, setup: ProcessSetup) -> list[Problem]:
    """What is wrong with a graph in its own precision."""
    if found.precision != found.graph.precision:
        return []
    difference, name = found.difference, f"{found.graph.files[0]} ({found.engine})"
    if found.precision == "fp32":
        allowed = fp32_tolerance(task, setup)
        too_many = len(difference.changed) > 1 and difference.agreement < FP32_AGREEMENT
        if difference.relative > allowed or too_many:
            message = (
                f"answers otherwise than the network: outputs differ by {difference.largest:.3g} "
                f"({difference.relative:.3g} of the largest; {allowed:.0e} is allowed), "
                f"{_changed(difference)}"
            )
            return [Problem(message, name, "use the model folder itself: --engine dygraph")]
        return []
    if difference.agreement < task.int8_agreement:
        message = f"decides too many rows otherwise: {_changed(difference)}, {task.int8_agreement:.0%} have to be"
        return [Problem(message, name, "take --precision int8, which keeps the methods that pass, or leave it out")]
    return []


def _changed(difference: Difference) -> str:
    return f"{len(difference.changed)} decisions differ ({difference.agreement:.2%} alike)"
