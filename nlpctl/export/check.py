"""Whether the graphs of an export answer as the network does, in every engine that this machine has."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from nlpctl.errors import Problem, RunFailed
from nlpctl.export.parity import LARGEST_BATCH, Difference, Parity
from nlpctl.inference.choice import Choice
from nlpctl.inference.choose import choices, open_choice
from nlpctl.models.export_folder import Check, ExportManifest, Graph
from nlpctl.runtime import console
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task

FP32_AGREEMENT = 0.99  # two answers may be as good within the tolerance
CARD_FACTOR = 50  # cards from Ampere on multiply fp32 matrices in TF32, which keeps 10 bits of a factor


@dataclass(frozen=True)
class Finding:
    """What one engine and precision made of one graph."""

    graph: Graph
    engine: str
    precision: str
    difference: Difference


def compare_graphs(
    folder: Path, manifest: ExportManifest, setup: ProcessSetup, parity: Parity
) -> tuple[ExportManifest, list[Finding]]:
    """The manifest with its checks. RunFailed, graph by graph, where one is beyond the tolerance of the task.

    Only a graph's own precision can fail; bf16 and fp16 are noted for those who choose an engine.
    """
    findings, problems = [], []
    ways = choices(manifest, setup)
    with console.progress(len(ways), "compare", unit="engines") as bar:
        for choice in ways:
            found = _compared(folder, manifest, choice, setup, parity)
            if found is not None:
                findings.append(found)
                problems += _beyond(found, parity.task, setup)
            bar.advance()
    checked = {each.graph for each in findings if each.precision == each.graph.precision}
    problems += [
        Problem(f"{graph.files[0]}: no engine on this machine runs it, so it could not be compared with the network")
        for graph in manifest.graphs
        if graph not in checked
    ]
    if problems:
        raise RunFailed(problems=problems)
    graphs = tuple(dataclasses.replace(graph, checks=_checks(graph, findings)) for graph in manifest.graphs)
    return dataclasses.replace(manifest, graphs=graphs), findings


def _compared(
    folder: Path, manifest: ExportManifest, choice: Choice, setup: ProcessSetup, parity: Parity
) -> Finding | None:
    """None where a precision that the graph is not written in fails: nobody has to have it."""
    try:
        predictor = open_choice(folder, manifest, choice, setup, LARGEST_BATCH)
        return Finding(choice.graph, choice.engine, choice.precision, parity.difference(predictor.outputs))
    except Exception as error:
        told = f"{choice.name} fails on {choice.graph.files[0]}: {type(error).__name__}: {error}"
        if choice.precision == choice.graph.precision:
            raise RunFailed(told) from error
        console.warn(told)
        return None


def _checks(graph: Graph, findings: list[Finding]) -> tuple[Check, ...]:
    return tuple(
        Check(each.engine, each.precision, each.difference.largest, each.difference.agreement)
        for each in findings
        if each.graph == graph
    )


def fp32_tolerance(task: Task, setup: ProcessSetup) -> float:
    """The most that an fp32 graph's outputs may differ on this device, as a share of them where above 1."""
    return task.graph_tolerance * (1 if setup.device == "cpu" else CARD_FACTOR)


def _beyond(found: Finding, task: Task, setup: ProcessSetup) -> list[Problem]:
    """What is wrong with a graph in its own precision."""
    if found.precision != found.graph.precision:
        return []
    difference, name = found.difference, f"{found.graph.files[0]} ({found.engine})"
    if found.precision == "fp32":
        # `not <=` also where it is NaN
        allowed = fp32_tolerance(task, setup)
        if not difference.relative <= allowed or difference.agreement < FP32_AGREEMENT:
            message = (
                f"answers otherwise than the network: outputs differ by {difference.largest:.3g} "
                f"({difference.relative:.3g} of the largest; {allowed:.0e} is allowed), "
                f"{_changed(difference)}"
            )
            return [Problem(message, name, "use the model folder itself: --engine dygraph")]
        return []
    if difference.agreement < task.int8_agreement:
        message = f"decides too many rows otherwise: {_changed(difference)}, {task.int8_agreement:.0%} have to be"
        return [Problem(message, name, "leave out --precision int8, or take another method: int8-dynamic, int8-static")]
    return []


def _changed(difference: Difference) -> str:
    return f"{len(difference.changed)} decisions differ ({difference.agreement:.2%} alike)"
