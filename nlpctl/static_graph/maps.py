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
are one name or a list of them; steps.py has the steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.positions import ListNode, Node, ScalarNode, TableNode, display, parse_yaml
from nlpctl.errors import Problem, UserError
from nlpctl.files import small_text
from nlpctl.names import did_you_mean, listed
from nlpctl.static_graph.steps import Step, parse_step

BUILT_IN = Path(__file__).parent / "maps"
ENCODER = "{encoder}"
_INTEGER = re.compile(r"-?\d+")
_PLACEHOLDER = re.compile(r"\{(\w+)\}|\*")


@dataclass(frozen=True)
class Rule:
    """Variables `static` become parameters `dygraph` by `steps`. Names may be patterns."""

    static: tuple[str, ...]
    dygraph: tuple[str, ...]
    steps: tuple[Step, ...]
    where: str


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
class Found:
    """A rule with real names: the variables `static`, which exist, become the parameters `dygraph`, which may not."""

    static: tuple[str, ...]
    dygraph: tuple[str, ...]
    rule: Rule


def built_in_names() -> list[str]:
    """The built-in maps that can be asked for, by name."""
    return sorted(path.stem for path in BUILT_IN.glob("*.yaml"))


def built_in_map(name: str) -> NameMap:
    """UserError if there is no such map."""
    names = built_in_names()
    if name not in names:
        raise UserError(
            f"there is no map {name!r}{did_you_mean(name, names)}", "--map", f"built in: {listed(names)}; or FILE.yaml"
        )
    return _read(BUILT_IN / f"{name}.yaml", name, built_in=True)


def read_map(file: Path) -> NameMap:
    """Read a map file. UserError, file and line, for everything that is wrong in it."""
    return _read(file, display(file), built_in=False)


def found_by(rule: Rule, prefixes: Sequence[str], names: Iterable[str], encoder: str) -> list[Found]:
    """All places where `rule` fits variables called `names`. A rule of several variables needs all of them.

    `prefixes`: patterns of what may stand before the rule's names, the same before all of its names.
    """
    # A dict keeps the source's order, which decides the order of the report.
    known = dict.fromkeys(names)
    first, others = rule.static[0], rule.static[1:]
    found = []
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
                found.append(Found(static, dygraph, rule))
    return found


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


# -- reading ------------------------------------------------------------------------------------


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
    if not isinstance(root, TableNode) or not isinstance(root.entries.get("rules"), ListNode):
        raise UserError("a map is a mapping with a list of rules", name, "write `rules:` and below it - static: ...")
    known = ("families", "extends", "prefixes", "target", "rules")
    for key, node in root.entries.items():
        if key not in known:
            hint = f"keys: {listed(known)}"
            raise UserError(f"unknown key {key!r}{did_you_mean(key, known)}", str(node.origin), hint)
    values = {key: _plain(node) for key, node in root.entries.items() if key != "rules"}
    rules = tuple(_rule(node) for node in root.entries["rules"].items)
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
