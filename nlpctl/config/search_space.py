"""What `nlpctl sweep` tries: search.space is read, by the types of the keys that it names, and its grid is walked.

Keys that no trial may have of its own are refused, with the reason in their KeyUse.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nlpctl.config.keys import SECTIONS, Key, all_keys, find_key, nearest_key, use_of
from nlpctl.config.positions import ListNode, LoadLog, Mismatch, Node, TableNode
from nlpctl.config.ranges import RANGES
from nlpctl.config.refused_keys import REFUSED
from nlpctl.config.schema import RANGE_FORMS, TRIALS, Axis, SearchSection

CHOICES, STEP, WHEN = "choices", "step", "when"
_FORMS = "a list of values, {log: [LOW, HIGH]}, {uniform: [LOW, HIGH]} or {int: [LOW, HIGH]}"
_MOST_CHOICES = 1_000
MOST_TRIALS = 100_000

# Reads the value of a key, as coerce.py does, which calls this module; raises Mismatch.
ReadValue = Callable[[Key, Node, LoadLog], Any]


class BadAxis(Exception):
    """The message says what is wrong with what is tried of a key; `hint`: the next step."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint


def read_space(node: Node, prefix: str, log: LoadLog, read: ReadValue) -> dict[str, Axis]:
    """What is tried, by dotted key, in `node`, the value of `prefix`. What is wrong is reported in `log`, and left out.

    Mismatch: it is no mapping.
    """
    if not isinstance(node, TableNode):
        raise Mismatch("expected a mapping of keys to what is tried")
    space: dict[str, Axis] = {}
    # A run that is opened tries nothing any more; an earlier version may have allowed what its recipe says.
    nodes = {
        dotted: entry for dotted, entry in _unfolded(node).items()
        if entry.origin.opened is None or not _not_searchable(dotted)
    }
    for dotted, entry in nodes.items():
        place = f"{prefix}.{dotted}"
        log.origins[place] = entry.origin
        try:
            space[dotted] = _axis(_searchable(dotted, log), entry, log, read)
        except BadAxis as error:
            log.report(place, entry.origin, str(error), error.hint)
        except Mismatch as error:
            log.report(place, entry.origin, str(error), f"write {_FORMS}")
    if len(space) == len(nodes):
        space = _with_conditions(space, nodes, prefix, log, read)
    return space


def _unfolded(table: TableNode, prefix: str = "") -> dict[str, Node]:
    """The axes by their dotted keys: `training: {learning_rate: ...}` is `training.learning_rate: ...`, too."""
    nodes: dict[str, Node] = {}
    for name, node in table.entries.items():
        dotted = f"{prefix}{name}"
        key = all_keys().get(dotted)
        section = "." not in dotted or (key is not None and (key.section or key.free))
        if isinstance(node, TableNode) and section and not node.entries.keys() & {*RANGE_FORMS, CHOICES}:
            nodes |= _unfolded(node, f"{dotted}.")
        else:
            nodes[dotted] = node
    return nodes


def _searchable(dotted: str, log: LoadLog) -> Key:
    """The key, if it can be tried. BadAxis: it cannot."""
    if dotted in SECTIONS:
        raise BadAxis("it is a section, not a value", "name a key inside it")
    key = find_key(dotted)
    if key is None:
        near = nearest_key(dotted)
        raise BadAxis(
            "there is no such key", f"did you mean {near}?" if near else "`nlpctl recipe schema` lists the keys"
        )
    if (reason := _not_searchable(dotted)) is not None:
        raise BadAxis(f"it cannot be tried: {reason}", "leave it out")
    if key.section or key.entry or key.axes or (key.free and key.dotted == dotted):
        raise BadAxis("it is a section, not a value", "name a key inside it")
    if dotted in log.referenced:
        message = f"${{{dotted}}} is used elsewhere in the recipe, and a trial changes the key alone"
        raise BadAxis(message, "write the value out there, or try both keys")
    return key


def _not_searchable(dotted: str) -> str | None:
    """Why a key or a section cannot be tried; None: it can, or there is none of the name."""
    key = find_key(dotted)
    if key is None:
        return None
    inside = [name for name in all_keys() if f"{name}.".startswith(f"{key.dotted}.")]  # several in a section
    reasons = {use_of(name).not_searchable for name in inside if not all_keys()[name].section}
    return REFUSED.get(dotted) or (reasons.pop() if len(reasons) == 1 else None)


def _axis(key: Key, node: Node, log: LoadLog, read: ReadValue) -> Axis:
    """What is tried of `key`, without its condition."""
    if isinstance(node, ListNode):
        return _choices(key, node, log, read)
    if not isinstance(node, TableNode):
        raise Mismatch("expected what is to be tried, found a single value")
    forms = [name for name in (*RANGE_FORMS, CHOICES) if name in node.entries]
    unknown = node.entries.keys() - {*RANGE_FORMS, CHOICES, STEP, WHEN}
    if unknown or len(forms) != 1:
        message = f"{min(unknown)!r} means nothing here" if unknown else "expected one of log, uniform, int and choices"
        raise BadAxis(message, f"write {_FORMS}")
    form, entry = forms[0], node.entries[forms[0]]
    if form == CHOICES:
        if STEP in node.entries or not isinstance(entry, ListNode):
            raise BadAxis("choices are a list, without a step", "write {choices: [a, b]}")
        return _choices(key, entry, log, read)
    return _range(key, form, entry, node.entries.get(STEP), log, read)


def _choices(key: Key, node: ListNode, log: LoadLog, read: ReadValue) -> Axis:
    values = tuple(read(key, item, log) for item in node.items)
    if len(values) < 2:
        raise BadAxis(f"{len(values)} values leave nothing to try", "name two or more, or set the key itself")
    if len(values) > _MOST_CHOICES:
        raise BadAxis(f"{len(values):,} values are too many", "name fewer, or give a range")
    twice = [value for place, value in enumerate(values) if value in values[:place]]
    if twice:
        raise BadAxis(f"{twice[0]!r} is there twice", "name each value once")
    for value in values:
        _refuse_outside(key, value)
    return Axis(choices=values)


def _range(key: Key, form: str, node: Node, step: Node | None, log: LoadLog, read: ReadValue) -> Axis:
    whole = key.scalar is int
    if not key.free and (key.scalar not in (int, float) or key.item):
        raise BadAxis(f"a range is for numbers, and it takes {key.type_text}", "name the values: [a, b]")
    if form == "uniform" and whole:
        raise BadAxis("it takes whole numbers", "write {int: [LOW, HIGH]}, or log")
    number = dataclasses.replace(key, scalar=int if whole or form == "int" else float, optional=False, free=False)
    if not isinstance(node, ListNode) or len(node.items) != 2:
        raise BadAxis(f"{form} takes the least and the greatest value", f"write {{{form}: [LOW, HIGH]}}")
    low, high = (read(number, item, log) for item in node.items)
    if low >= high:
        raise BadAxis(f"the range from {low:g} to {high:g} is empty", "write the least value first")
    if form == "log" and low <= 0:
        raise BadAxis(f"a logarithmic range cannot begin at {low:g}", "begin above 0, or write uniform")
    for value in (low, high):
        _refuse_outside(key, value)
    by = None
    if step is not None:
        if form == "log":
            raise BadAxis("a logarithmic range has no step", "leave step out, or name the values")
        by = float(read(number, step, log))
        if not 0 < by <= high - low:
            raise BadAxis(f"the step {by:g} does not fit the range", f"write one up to {high - low:g}")
    ends: dict[str, Any] = {form: (low, high)}
    return Axis(step=by, whole=whole or form == "int", **ends)


def _refuse_outside(key: Key, value: Any) -> None:
    allowed = RANGES.get(key.dotted)
    for each in value if isinstance(value, tuple) else (value,):
        if allowed is not None and each is not None and each not in allowed:
            raise BadAxis(f"{each} cannot be tried", f"{key.dotted} {allowed}")


def _with_conditions(
    space: dict[str, Axis], nodes: Mapping[str, Node], prefix: str, log: LoadLog, read: ReadValue
) -> dict[str, Axis]:
    """The axes with what their `when` says; each names keys that are tried themselves."""
    conditional = dict(space)
    for dotted, node in nodes.items():
        entry = node.entries.get(WHEN) if isinstance(node, TableNode) else None
        if entry is None:
            continue
        try:
            conditional[dotted] = dataclasses.replace(space[dotted], when=_condition(space, entry, log, read))
        except BadAxis as error:
            log.report(f"{prefix}.{dotted}", entry.origin, str(error), error.hint)
        except Mismatch as error:
            log.report(f"{prefix}.{dotted}", entry.origin, f"when: {error}", "write when: {KEY: value}")
    for dotted in in_circle(conditional):
        message = "its condition depends on itself, or on a key whose condition does"
        log.report(f"{prefix}.{dotted}", nodes[dotted].origin, message, "leave one `when` out")
    return conditional


def _holds_lists(node: ListNode) -> bool:
    return bool(node.items) and all(isinstance(item, ListNode) for item in node.items)


def _condition(space: Mapping[str, Axis], node: Node, log: LoadLog, read: ReadValue) -> dict[str, tuple[Any, ...]]:
    if not isinstance(node, TableNode) or not node.entries:
        raise BadAxis("when names a key and its value", "write when: {KEY: value}")
    condition: dict[str, tuple[Any, ...]] = {}
    for name, wanted in _unfolded(node).items():
        axis, key = space.get(name), find_key(name)
        if axis is None or key is None:
            raise BadAxis(f"when: {name} is not tried", "name a key of search.space; else the key needs no condition")
        items: tuple[Node, ...] = (wanted,)
        if isinstance(wanted, ListNode) and (not key.is_list or _holds_lists(wanted)):
            items = wanted.items
        values = tuple(read(key, item, log) for item in items)
        if axis.points is None:
            raise BadAxis(f"when: {name} is tried in a range", "depend on a key with single values")
        missing = [value for value in values if value not in axis.points]
        if missing:
            raise BadAxis(f"when: {name} never is {missing[0]!r}", f"it is {axis.text}")
        condition[name] = values
    return condition


def applies(axis: Axis, values: Mapping[str, Any]) -> bool:
    """Whether the key of `axis` is tried where others have `values`."""
    return all(name in values and values[name] in wanted for name, wanted in axis.when.items())


def ordered(space: Mapping[str, Axis]) -> Iterator[tuple[str, Axis]]:
    """The axes, each after those that its `when` names. A circle ends the order; `in_circle` finds it."""
    done: set[str] = set()
    while ready := [name for name in space if name not in done and done >= space[name].when.keys()]:
        done |= {ready[0]}
        yield ready[0], space[ready[0]]


def in_circle(space: Mapping[str, Axis]) -> list[str]:
    """The keys whose `when` depend on each other, or on such a key."""
    reached = {name for name, _ in ordered(space)}
    return [name for name in space if name not in reached]


def grid(space: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
    """Every combination of an axis' points, in order; the last key changes fastest."""
    axes = list(ordered(space))

    def further(begun: dict[str, Any], left: Sequence[tuple[str, Axis]]) -> Iterator[dict[str, Any]]:
        if not left:
            yield begun
            return
        (name, axis), *rest = left
        here = applies(axis, begun)
        for value in (() if axis.points is None else axis.points) if here else (None,):
            yield from further({**begun, name: value} if here else begun, rest)

    return further({}, axes)


def grid_size(space: Mapping[str, Axis], most: int) -> int:
    """How many points the grid has, counted up to `most`."""
    return sum(1 for _ in itertools.islice(grid(space), most))


def trials_wanted(section: SearchSection) -> int | None:
    """How many trials a sweep has; None: as many as its budget allows."""
    if section.sampler == "grid":
        return grid_size(section.space, section.trials or MOST_TRIALS)
    if section.trials is None and section.budget is None:
        return TRIALS
    return section.trials
