"""Matches by position in the graph: the n-th parameters of a role and shape in both graphs belong together.

This requires a unique order: each parameter depends on the one before, or both graphs come from the same code. If the
graphs differ (in heads or poolers), only the encoder is matched, which comes first in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nlpctl.formats.program import Program
from nlpctl.static_graph.graph import ATTENTION, Place, Role, Shape, forward_part, in_line, needed_for, places
from nlpctl.static_graph.match import Candidate, Matcher
from nlpctl.static_graph.trace import NotTraceable, trace

HOW = "place in the graph"
_Groups = Mapping[tuple[Role, Shape], Sequence[Place]]


def by_place(matcher: Matcher, program: Program, network: Any) -> None:
    """Match what is open by role, shape and order in both graphs. Where that is not certain it is an ambiguity."""
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
        # Both are cut to what their outputs need: an exported graph lacks parts that dygraph computes and drops.
        theirs, ours = needed_for(theirs, program.fetches), needed_for(ours, traced.outputs)
    parameters = {parameter.internal: parameter for parameter in matcher.parameters}
    in_source = places(theirs, {name: variable.shape for name, variable in matcher.variables.items()})
    in_network = places(ours, {internal: parameter.shape for internal, parameter in parameters.items()})
    kinds = [[(each.role, each.shape) for each in found] for found in (in_source, in_network)]
    same_code, same_network = kinds[0] == kinds[1], Counter(kinds[0]) == Counter(kinds[1])
    if not same_network:
        in_network = [each for each in in_network if parameters[each.name].is_needed(matcher.encoder)]
    groups, candidates = _groups(in_source), []
    heads_may_follow = not same_network and _same_depth(groups, _groups(in_network))
    for group, internals in _groups(in_network).items():
        found, free = groups.get(group, []), matcher.free_variables
        left = [parameters[each.name] for each in internals if matcher.is_open(parameters[each.name])]
        names = [each.name for each in found if each.name in free]
        if not names or not left:
            continue
        count = _count(group, len(found), len(internals))
        if len(found) < len(internals) or (len(found) > len(internals) and not heads_may_follow):
            matcher.report_ambiguity(left, names, count)
        elif not (same_code or (in_line(found) and in_line(internals))):
            matcher.report_ambiguity(left, names, f"{count}, and their order in the two graphs is unknown")
        else:
            candidates += [
                Candidate((one.name,), (parameters[other.name].name,), HOW)
                for one, other in zip(found, internals, strict=False)
                if one.name in free
            ]
    matcher.propose(candidates)


def _same_depth(theirs: _Groups, ours: _Groups) -> bool:
    """Whether both have attention in as many layers, so that what one has besides belongs to its head, behind them."""
    layers = [group for group in {**theirs, **ours} if any(name in ATTENTION for name in group[0])]
    return bool(layers) and all(len(theirs.get(group, ())) == len(ours.get(group, ())) for group in layers)


def _count(group: tuple[Role, Shape], variables: int, parameters: int) -> str:
    role, shape = group
    have = "1 variable of shape {} has" if variables == 1 else f"{variables} variables of shape {{}} have"
    why = f"{have.format(list(shape))} the role {' '.join(filter(None, role))}, "
    return why + ("1 parameter has it" if parameters == 1 else f"{parameters} parameters have it")


def _groups(found: Iterable[Place]) -> _Groups:
    groups: dict[tuple[Role, Shape], list[Place]] = {}
    for place in found:
        groups.setdefault((place.role, place.shape), []).append(place)
    return groups
