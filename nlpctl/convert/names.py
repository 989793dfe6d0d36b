"""Matches by recorded dygraph names, and by the names of Paddle's counter (linear_3.w_0)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.convert.graph import (
    ATTENTION,
    NotTraceable,
    Place,
    Role,
    Shape,
    forward_part,
    in_line,
    needed_for,
    places,
    trace,
)
from nlpctl.convert.match import Candidate, Matcher
from nlpctl.convert.parameters import TargetParameter
from nlpctl.formats.program import Program

_COUNTED = re.compile(r"(.+)_(\d+)\.((?:w|b)_\d+)")


def by_recorded_name(matcher: Matcher) -> None:
    """Variables whose dygraph name was recorded when they were exported.

    Where the exported layer held the network as a part of it (model.ernie. ...), that prefix is taken away.
    """
    recorded = {name: variable.structured for name, variable in matcher.free_variables.items() if variable.structured}
    prefix = _common_prefix(recorded, matcher)
    how = f"recorded name, without {prefix!r}" if prefix else "recorded name"
    matcher.propose(
        Candidate((name,), (structured.removeprefix(prefix),), how)
        for name, structured in recorded.items()
        if structured.startswith(prefix) and structured.removeprefix(prefix) in matcher.by_name
    )


def _common_prefix(recorded: Mapping[str, str], matcher: Matcher) -> str:
    """The prefix of the recorded names; "" if the network knows the names without removing one."""
    # One hit without a prefix is enough: a prefix would be common to all names.
    if any(name in matcher.by_name for name in recorded.values()):
        return ""
    parts = [name.split(".") for name in recorded.values()]
    prefixes = dict.fromkeys(".".join(each[:count]) + "." for each in parts for count in range(1, len(each)))
    hits = {
        prefix: sum(name.startswith(prefix) and name.removeprefix(prefix) in matcher.by_name
                    for name in recorded.values())
        for prefix in prefixes
    }  # fmt: skip
    best = max(hits, key=hits.__getitem__, default="")
    return best if hits and hits[best] else ""


@dataclass(frozen=True)
class _Kind:
    """The variables, or parameters, of one kind of layer: (number, part) -> it, such as (3, w_0) of linear."""

    entries: Mapping[tuple[int, str], str]

    @property
    def numbers(self) -> list[int]:
        return sorted({number for number, _ in self.entries})


def by_counted_name(matcher: Matcher) -> None:
    """Variables called as Paddle calls the parameters of the same network when it is built first in a process.

    A process that built other networks before counts on from them: where all numbers of a kind are higher by the same
    amount, that is taken away. A kind of which the encoder has more than the source, or in which shapes differ (but for
    its last layer, a head for other labels), is left to other ways: the numbers mean other layers there.
    """
    parameters = {parameter.internal: parameter for parameter in matcher.parameters}
    ours, theirs = _kinds(parameters), _kinds(matcher.variables)
    candidates, free = [], matcher.free_variables
    for kind in sorted(ours.keys() & theirs.keys()):
        if not free.keys() & set(theirs[kind].entries.values()):
            continue
        # Paddle numbers layers per process: a network built second has linear_74 where the first has linear_0.
        shift = theirs[kind].numbers[0] - ours[kind].numbers[0]
        pairs = _shifted(ours[kind], theirs[kind], shift)
        if pairs is None or not _agree(pairs, ours[kind], parameters, matcher):
            matcher.notes.append(f"the names of kind {kind} do not agree with the network's: they were not used")
            continue
        how = "parameter name" if shift == 0 else f"parameter name, counted from {shift} on"
        candidates += [(name, internal, how) for name, internal in pairs]
    plain = [name for name in parameters if _COUNTED.fullmatch(name) is None and name in matcher.variables]
    candidates += [(name, name, "parameter name") for name in plain]
    matcher.propose(
        Candidate((name,), (parameters[internal].name,), how) for name, internal, how in candidates if name in free
    )


def _kinds(names: Mapping[str, object]) -> dict[str, _Kind]:
    found: dict[str, dict[tuple[int, str], str]] = {}
    for name in names:
        match = _COUNTED.fullmatch(name)
        if match:
            found.setdefault(match[1], {})[int(match[2]), match[3]] = name
    return {kind: _Kind(entries) for kind, entries in found.items()}


def _shifted(ours: _Kind, theirs: _Kind, shift: int) -> list[tuple[str, str]] | None:
    """(variable, parameter) of equal numbers; None if a variable has no parameter, so that the shift is wrong."""
    moved = {(number - shift, part): name for (number, part), name in theirs.entries.items()}
    if not moved.keys() <= ours.entries.keys():
        return None
    return [(name, ours.entries[place]) for place, name in moved.items()]


def _agree(
    pairs: Sequence[tuple[str, str]], ours: _Kind, parameters: Mapping[str, TargetParameter], matcher: Matcher
) -> bool:
    found = {internal for _, internal in pairs}
    without = [parameters[internal] for internal in ours.entries.values() if internal not in found]
    if any(parameter.is_needed(matcher.encoder) for parameter in without):
        return False
    wrong = set()
    for name, internal in pairs:
        counted = _COUNTED.fullmatch(internal)
        if counted is not None and matcher.variables[name].shape != parameters[internal].shape:
            wrong.add(counted[2])
    last = str(ours.numbers[-1])
    return not wrong or (wrong == {last} and last != "0")


# Matches by position in the graph: the n-th parameters of a role and shape in both graphs belong together.
#
# This requires a unique order: each parameter depends on the one before, or both graphs come from the same code. If the
# graphs differ (in heads or poolers), only the encoder is matched, which comes first in both.

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
