"""Matching by the place in the graph: the n-th parameter of a role and shape is the n-th of the other graph's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nlpctl.static_graph.graph import Place, Role, Shape, forward_part, needed_for, places
from nlpctl.static_graph.match import Candidate, Matcher
from nlpctl.static_graph.program import Program
from nlpctl.static_graph.trace import NotTraceable, trace

HOW = "place in the graph"


def by_place(matcher: Matcher, program: Program, network: Any) -> None:
    """Match what is open by role, shape and order in both graphs. Where the counts differ it is an ambiguity."""
    if not matcher.open_parameters or not matcher.free_variables:
        return
    try:
        traced = trace(network)
    except NotTraceable as error:
        matcher.notes.append(f"the place in the graph was not used: Paddle cannot trace the network ({error})")
        return
    theirs = forward_part(program.operators)
    ours = forward_part(traced.operators)
    if program.fetches:
        theirs, ours = needed_for(theirs, program.fetches), needed_for(ours, traced.outputs)
    shapes = {parameter.internal: parameter.shape for parameter in matcher.parameters}
    parameters = {parameter.internal: parameter for parameter in matcher.parameters}
    in_source = _groups(places(theirs, {name: variable.shape for name, variable in matcher.variables.items()}))
    candidates = []
    for group, internals in _groups(places(ours, shapes)).items():
        free = matcher.free_variables
        names = in_source.get(group, [])
        if len(names) == len(internals):
            pairs = zip(names, internals, strict=True)
            candidates += [
                Candidate((name,), (parameters[internal].name,), HOW) for name, internal in pairs if name in free
            ]
            continue
        names = [name for name in names if name in free]
        left = [parameters[internal] for internal in internals if matcher.is_open(parameters[internal])]
        if names and left:
            role, shape = group
            have = "1 variable of shape {} has" if len(names) == 1 else f"{len(names)} variables of shape {{}} have"
            why = f"{have.format(list(shape))} the role {' '.join(filter(None, role))}, "
            why += "1 parameter has it" if len(left) == 1 else f"{len(left)} parameters have it"
            matcher.report_ambiguity(left, names, why)
    matcher.propose(candidates)


def _groups(found: Iterable[Place]) -> Mapping[tuple[Role, Shape], Sequence[str]]:
    groups: dict[tuple[Role, Shape], list[str]] = {}
    for place in found:
        groups.setdefault((place.role, place.shape), []).append(place.name)
    return groups
