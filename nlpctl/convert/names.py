"""Matches by name: by recorded dygraph names, and by the names of Paddle's counter (linear_3.w_0)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nlpctl.convert.match import Candidate, Matcher, TargetParameter
from nlpctl.report.language import later

_COUNTED = re.compile(r"(.+)_(\d{1,18})\.((?:w|b)_\d+)")


def by_recorded_name(matcher: Matcher) -> None:
    """Variables whose dygraph name was recorded when they were exported.

    Where the exported layer held the network as a part of it (model.ernie. ...), that prefix is taken away.
    """
    recorded = {name: variable.structured for name, variable in matcher.free_variables.items() if variable.structured}
    candidates: dict[tuple[str, str], Candidate] = {}
    for prefix in _prefixes(recorded.values(), matcher):
        how = later("recorded name, without {!r}", prefix) if prefix else later("recorded name")
        for name, structured in recorded.items():
            bare = structured.removeprefix(prefix)
            if structured.startswith(prefix) and bare in matcher.by_name:
                # An encoder's parameter has two names, with its prefix and without: model.ernie.X may be either.
                candidates.setdefault((name, matcher.by_name[bare].name), Candidate((name,), (bare,), how))
    matcher.propose(candidates.values())


def _prefixes(recorded: Collection[str], matcher: Matcher) -> list[str]:
    """The prefix of the recorded names; several where each gives as many parameters that are open, as of two towers.

    "" if the network knows the names without removing one.
    """
    # One hit without a prefix is enough: a prefix would be common to all names.
    if any(name in matcher.by_name for name in recorded):
        return [""]
    open_names = {parameter.name for parameter in matcher.open_parameters}
    given: dict[str, set[str]] = {}
    for name in recorded:
        parts = name.split(".")
        for count in range(1, len(parts)):
            parameter = matcher.by_name.get(".".join(parts[count:]))
            if parameter is not None and parameter.name in open_names:
                given.setdefault(".".join(parts[:count]) + ".", set()).add(parameter.name)
    most = max(map(len, given.values()), default=0)
    return [prefix for prefix, parameters in given.items() if len(parameters) == most]


def by_counted_name(matcher: Matcher) -> None:
    """Variables called as Paddle calls the parameters of the same network when it is built first in a process.

    A process that built other networks before counts on from them: where all numbers of a kind are higher by the same
    amount, that is taken away. A kind of which the encoder has more than the source, or in which shapes differ (but for
    its last layer, a head for other labels), is left to other methods: the numbers mean other layers there.
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
            note = later("the names of kind {} do not agree with the network's: they were not used", kind)
            matcher.notes.append(note)
            continue
        how = later("parameter name") if shift == 0 else later("parameter name, counted from {} on", shift)
        candidates += [(name, internal, how) for name, internal in pairs]
    plain = [name for name in parameters if _COUNTED.fullmatch(name) is None and name in matcher.variables]
    candidates += [(name, name, later("parameter name")) for name in plain]
    matcher.propose(
        Candidate((name,), (parameters[internal].name,), how) for name, internal, how in candidates if name in free
    )


@dataclass(frozen=True)
class _Kind:
    """The variables, or parameters, of one kind of layer: (number, part) -> it, such as (3, w_0) of linear."""

    entries: Mapping[tuple[int, str], str]

    @property
    def numbers(self) -> list[int]:
        return sorted({number for number, _ in self.entries})


def _kinds(names: Mapping[str, object]) -> dict[str, _Kind]:
    entries_by_kind: dict[str, dict[tuple[int, str], str]] = {}
    for name in names:
        match = _COUNTED.fullmatch(name)
        if match:
            entries_by_kind.setdefault(match[1], {})[int(match[2]), match[3]] = name
    return {kind: _Kind(entries) for kind, entries in entries_by_kind.items()}


def _shifted(ours: _Kind, theirs: _Kind, shift: int) -> list[tuple[str, str]] | None:
    """(variable, parameter) of equal numbers; None if a variable has no parameter, so that the shift is wrong."""
    moved = {(number - shift, part): name for (number, part), name in theirs.entries.items()}
    if not moved.keys() <= ours.entries.keys():
        return None
    return [(name, ours.entries[place]) for place, name in moved.items()]


def _agree(
    pairs: Sequence[tuple[str, str]], ours: _Kind, parameters: Mapping[str, TargetParameter], matcher: Matcher
) -> bool:
    named = {internal for _, internal in pairs}
    without = [parameters[internal] for internal in ours.entries.values() if internal not in named]
    if any(parameter.is_needed(matcher.encoder) for parameter in without):
        return False
    wrong = set()
    for name, internal in pairs:
        counted = _COUNTED.fullmatch(internal)
        if counted is not None and matcher.variables[name].shape != parameters[internal].shape:
            wrong.add(counted[2])
    last = str(ours.numbers[-1])
    return not wrong or (wrong == {last} and last != "0")
