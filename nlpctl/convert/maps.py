"""Name maps: which static variables become which parameters, as YAML.

    families: [ernie]          # of built-in maps: the networks that it is tried for
    extends: transformer_1x    # a built-in map whose rules come with it
    prefixes: ["@HUB_*@"]      # what may stand before the static names of the rules
    rules:
    - static: word_embedding
      dygraph: ernie.embeddings.word_embeddings.weight
    - static: encoder_layer_{layer}_qkv.w_0
      dygraph: ["ernie.encoder.layers.{layer}.self_attn.q_proj.weight", ...]   # in quotes: YAML reads { otherwise
      steps: [{split: {axis: 1, parts: 3}}]

In names, {layer} (or any other word) stands for a number, * for anything; what they stand for goes over into the
dygraph names. {encoder} in a dygraph name is the prefix of the network's encoder, such as ernie. static and dygraph
are one name or a list of them. The steps are those of `_STEPS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.config.positions import ListNode, Node, ScalarNode, TableNode, parse_yaml
from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.files import small_text
from nlpctl.names import did_you_mean, listed

BUILT_IN = Path(__file__).parent / "maps"
ENCODER = "{encoder}"
_INTEGER = re.compile(r"-?\d{1,18}")
_PLACEHOLDER = re.compile(r"\{(\w+)\}|\*")


@dataclass(frozen=True)
class NameMap:
    """`name`: a built-in map's name, or the file. `target`: what the map itself knows of the network it leads to."""

    name: str
    built_in: bool
    families: tuple[str, ...]
    prefixes: tuple[str, ...]
    rules: tuple[Rule, ...]
    target: Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """Variables `static` become parameters `dygraph` by `steps`. Names may be patterns."""

    static: tuple[str, ...]
    dygraph: tuple[str, ...]
    steps: tuple[Step, ...]
    where: str


def built_in_names() -> list[str]:
    """The built-in maps that can be asked for, by name."""
    return sorted(path.stem for path in BUILT_IN.glob("*.yaml"))


def built_in_map(name: str) -> NameMap:
    """UserError if there is no such map."""
    names = built_in_names()
    if name not in names:
        raise UserError(
            f"there is no map {name!r}{did_you_mean(name, names)}", "@[map]", f"built in: {listed(names)}; or FILE.yaml"
        )
    return _read(BUILT_IN / f"{name}.yaml", name, built_in=True)


def built_in_maps_for(model_type: str) -> list[NameMap]:
    """The built-in maps that name this family of networks, such as ernie."""
    maps = [built_in_map(name) for name in built_in_names()]
    return [each for each in maps if model_type in each.families]


def read_map(file: Path) -> NameMap:
    """Read a map file. UserError, file and line, for everything that is wrong in it."""
    return _read(file, display(file), built_in=False)


# -- reading a map file -----------------------------------------------------------------------------------------------


def _read(file: Path, name: str, *, built_in: bool) -> NameMap:
    try:
        text = small_text(file)
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", str(error))
        raise UserError(f"the map cannot be read: {reason}", str(file), "give a .yaml file") from None
    problems: list[Problem] = []
    root = parse_yaml(text, name, file.parent, problems)
    if problems:
        raise UserError(problems=problems)
    rule_nodes = root.entries.get("rules") if isinstance(root, TableNode) else None
    if not isinstance(root, TableNode) or not isinstance(rule_nodes, ListNode):
        raise UserError("a map is a mapping with a list of rules", name, "write `rules:` and below it - static: ...")
    known = ("families", "extends", "prefixes", "target", "rules")
    for key, node in root.entries.items():
        if key not in known:
            hint = f"keys: {listed(known)}"
            raise UserError(f"unknown key {key!r}{did_you_mean(key, known)}", str(node.origin), hint)
    values = {key: _plain(node) for key, node in root.entries.items() if key != "rules"}
    rules = tuple(_rule(node) for node in rule_nodes.items)
    prefixes = _names(values.get("prefixes", []), name, "prefixes")
    if "extends" in values:
        below = built_in_map(values["extends"])
        rules, prefixes = (*below.rules, *rules), tuple(dict.fromkeys([*below.prefixes, *prefixes]))
    families = _names(values.get("families", []), name, "families")
    return NameMap(name, built_in, families, prefixes, rules, values.get("target", {}))


def _rule(node: Node) -> Rule:
    where = str(node.origin)
    content = _plain(node)
    known = ("static", "dygraph", "steps")
    if not isinstance(content, dict) or not {"static", "dygraph"} <= content.keys() <= set(known):
        raise UserError("a rule has the keys static, dygraph and, where needed, steps", where, "- static: NAME")
    steps = content.get("steps") or []
    if not isinstance(steps, list):
        raise UserError("steps is a list", where, "steps: [transpose]")
    rule = Rule(
        _names(content["static"], where, "static"),
        _names(content["dygraph"], where, "dygraph"),
        tuple(parse_step(step, where) for step in steps),
        where,
    )
    _check_placeholders(rule)
    return rule


def _check_placeholders(rule: Rule) -> None:
    given = _words(rule.static[0])
    twice = next((word for word in given if word != "*" and given.count(word) > 1), None)
    if twice is not None:
        raise UserError(f"{rule.static[0]!r} has {{{twice}}} twice", rule.where, "give each placeholder its own name")
    for name in (*rule.static, *rule.dygraph):
        words = [word for word in _words(name) if word != ENCODER.strip("{}")]
        if set(words) - set(given) or words.count("*") > given.count("*"):
            raise UserError(
                f"{name!r} has a placeholder that {rule.static[0]!r} has not",
                rule.where,
                "the first static name gives the values of all placeholders",
            )


def _names(value: Any, where: str, key: str) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name for name in names) or (key not in ("families", "prefixes") and not names):
        raise UserError(f"{key} is a name or a list of names", where, f"{key}: NAME")
    return tuple(names)


def _plain(node: Node) -> Any:
    """Text, whole numbers, lists and mappings; quoted numbers stay text."""
    if isinstance(node, TableNode):
        return {key: _plain(entry) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    if node.is_null:
        return None
    # YAML would read 1.0 or yes as other types; names in maps must stay text.
    return int(node.text) if node.plain and _INTEGER.fullmatch(node.text) else node.text


# -- rules and the names they fit -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleMatch:
    """A rule with real names: the variables `static`, which exist, become the parameters `dygraph`, which may not."""

    static: tuple[str, ...]
    dygraph: tuple[str, ...]
    rule: Rule


def match_rule(rule: Rule, prefixes: Sequence[str], names: Iterable[str], encoder: str) -> list[RuleMatch]:
    """All places where `rule` fits variables called `names`. A rule of several variables needs all of them.

    `prefixes`: patterns of what may stand before the rule's names, the same before all of its names.
    """
    # A dict keeps the source's order, which decides the order of the report.
    known = dict.fromkeys(names)
    first, others = rule.static[0], rule.static[1:]
    matches = []
    for before in ("", *prefixes):
        pattern = _expression(before + first)
        for name in known:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            stars = before.count("*")
            values = _Values(match.groups()[:stars], match.groups()[stars:], _words(first))
            static = (name, *(values.fill(before + other, with_prefix=True) for other in others))
            if all(other in known for other in static):
                dygraph = tuple(values.fill(each.replace(ENCODER, encoder)) for each in rule.dygraph)
                matches.append(RuleMatch(static, dygraph, rule))
    return matches


class _Values:
    """The values of the placeholders of a rule in one match."""

    def __init__(self, before: Sequence[str], groups: Sequence[str], words: Sequence[str]):
        self._before = before
        self._stars = [value for value, word in zip(groups, words, strict=True) if word == "*"]
        self._words = {word: value for word, value in zip(words, groups, strict=True) if word != "*"}

    def fill(self, name: str, *, with_prefix: bool = False) -> str:
        stars = iter([*(self._before if with_prefix else ()), *self._stars])
        return _PLACEHOLDER.sub(lambda match: next(stars) if match[0] == "*" else self._words[match[1]], name)


def _words(pattern: str) -> list[str]:
    """The placeholders in their order; * stands for itself."""
    return [match[1] or "*" for match in _PLACEHOLDER.finditer(pattern)]


def _expression(pattern: str) -> re.Pattern[str]:
    end, parts = 0, []
    for match in _PLACEHOLDER.finditer(pattern):
        parts += [re.escape(pattern[end : match.start()]), r"(.*)" if match[0] == "*" else r"(\d+)"]
        end = match.end()
    return re.compile("".join(parts) + re.escape(pattern[end:]))


# -- steps, which transform the arrays of static variables into parameters --------------------------------------------
#
# A step maps a list of arrays to a list: most change each array, some join all into one, `split` cuts each.

TARGET = "target"  # in place of a shape: that of the parameter
Arrays = list[np.ndarray]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Step:
    """One step. `value`: what stands behind its name in the map, None if nothing does; `where`: file and line."""

    name: str
    value: Any
    where: str

    def plain(self) -> Any:
        """The step as a map file has it."""
        return self.name if self.value is None else {self.name: self.value}


def parse_step(content: Any, where: str) -> Step:
    """A step as written, `transpose` or `{split: {axis: 1}}`. UserError: no such step, or a value that it cannot take.
    """
    if isinstance(content, str):
        content = {content: None}
    if not isinstance(content, dict) or len(content) != 1:
        raise UserError("a step is a name, or one name with a value", where, "such as - transpose, or - concatenate: 0")
    name, value = next(iter(content.items()))
    if name not in _STEPS:
        raise UserError(f"there is no step {name!r}{did_you_mean(name, _STEPS)}", where, f"steps: {listed(_STEPS)}")
    if not _STEPS[name].accepts(value):
        raise UserError(f"{name} cannot take {value!r}", where, f"write it as {_STEPS[name].example}")
    return Step(name, value, where)


def run_steps(steps: Sequence[Step], arrays: Sequence[np.ndarray], targets: Shapes) -> Arrays:
    """The arrays after all steps. `targets`: the shapes of the parameters. UserError: a step does not fit."""
    current = list(arrays)
    for step in steps:
        try:
            current = _STEPS[step.name].run(current, step.value, targets)
        except (ValueError, IndexError) as error:  # NumPy's words for what does not fit
            shapes = " and ".join(str(list(array.shape)) for array in current)
            raise UserError(f"{step.name} does not fit arrays of shape {shapes} ({error})", step.where, _MEND) from None
    return current


_SMALL = 1 << 20  # values that any array may have
_MEND = "correct the step; `nlpctl convert-static ... --plan` shows the shapes of all variables and parameters"


@dataclass(frozen=True)
class _StepKind:
    """`accepts`: whether a value is of the right form. `example`: as in a map file."""

    run: Callable[[Arrays, Any, Shapes], Arrays]
    accepts: Callable[[Any], bool]
    example: str


def _transpose(arrays: Arrays, order: list[int] | None, targets: Shapes) -> Arrays:
    return [np.transpose(array, order) for array in arrays]


def _reshape(arrays: Arrays, shape: list[int] | str, targets: Shapes) -> Arrays:
    return [array.reshape(to) for array, to in zip(arrays, _shapes(arrays, shape, targets), strict=True)]


def _split(arrays: Arrays, how: Mapping[str, Any], targets: Shapes) -> Arrays:
    axis = how["axis"]
    if "parts" in how:
        return [part for array in arrays for part in np.split(array, how["parts"], axis)]
    return [part for array in arrays for part in np.split(array, np.cumsum(_sizes(array, how))[:-1], axis)]


def _sizes(array: np.ndarray, how: Mapping[str, Any]) -> list[int]:
    """The sizes of a split's parts; a -1 stands for the rest."""
    sizes, have = how["sizes"], array.shape[how["axis"]]
    rest = have - sum(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or rest < 0 or (rest > 0 and -1 not in sizes):
        raise ValueError(f"sizes {sizes} are not those of axis {how['axis']}, which has {have}")
    return [rest if size == -1 else size for size in sizes]


def _concatenate(arrays: Arrays, axis: int, targets: Shapes) -> Arrays:
    return [np.concatenate(arrays, axis)]


def _stack(arrays: Arrays, axis: int, targets: Shapes) -> Arrays:
    return [np.stack(arrays, axis)]


def _add(arrays: Arrays, value: None, targets: Shapes) -> Arrays:
    if len({array.size for array in arrays}) != 1:
        raise ValueError("they differ in size")
    return [np.sum([array.reshape(arrays[0].shape) for array in arrays], axis=0, dtype=arrays[0].dtype)]


def _reorder(arrays: Arrays, order: list[int], targets: Shapes) -> Arrays:
    if sorted(order) != list(range(len(arrays))):
        raise ValueError(f"the order does not name each of {len(arrays)} arrays once")
    return [arrays[index] for index in order]


def _pad(arrays: Arrays, to: list[int] | str, targets: Shapes) -> Arrays:
    """Zeros behind the end of each axis."""
    shapes, known = _shapes(arrays, to, targets), sum(map(math.prod, targets)) + sum(array.size for array in arrays)
    for shape in shapes:
        if math.prod(shape) > max(known, _SMALL):
            raise ValueError(f"{list(shape)} is larger than all that goes in, and than the parameters")
    return [
        np.pad(array, [(0, size - have) for have, size in zip(array.shape, shape, strict=True)])
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def _shapes(arrays: Arrays, shape: list[int] | str, targets: Shapes) -> Shapes:
    if isinstance(shape, list):  # else TARGET
        return [tuple(shape)] * len(arrays)
    if len(arrays) != len(targets):
        raise ValueError(f"{len(arrays)} arrays for {len(targets)} parameters")
    return targets


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_integer, value))


def _shape_value(value: Any) -> bool:
    return value == TARGET or _integers(value)


def _split_value(value: Any) -> bool:
    if not isinstance(value, dict) or not _integer(value.get("axis")):
        return False
    parts = set(value) == {"axis", "parts"} and _integer(value["parts"]) and value["parts"] > 0
    sizes = value.get("sizes")
    if parts or set(value) != {"axis", "sizes"} or not isinstance(sizes, list):
        return parts
    return _integers(sizes) and all(size >= -1 for size in sizes)


_STEPS = {
    "transpose": _StepKind(
        _transpose, lambda value: value is None or _integers(value), "transpose, or transpose: [1, 0]"
    ),
    "reshape": _StepKind(_reshape, _shape_value, "reshape: [12, -1], or reshape: target"),
    "split": _StepKind(_split, _split_value, "split: {axis: 1, parts: 3}, or split: {axis: 0, sizes: [1, 2, -1]}"),
    "concatenate": _StepKind(_concatenate, _integer, "concatenate: 0, the axis"),
    "stack": _StepKind(_stack, _integer, "stack: 0, the new axis"),
    "add": _StepKind(_add, lambda value: value is None, "add"),
    "reorder": _StepKind(_reorder, _integers, "reorder: [1, 0], places in the list of arrays"),
    "pad": _StepKind(_pad, _shape_value, "pad: target, or pad: [100, 8]"),
}
