"""Text -> typed values, by the type in the schema instead of YAML's type rules."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from typing import Any

from nlpctl.config.keys import SECTIONS, Key, keys_of, nearest_key
from nlpctl.config.positions import ListNode, LoadLog, Mismatch, Node, ScalarNode, TableNode
from nlpctl.config.schema import Origin, Scalar
from nlpctl.config.search_space import read_space
from nlpctl.errors import Problem
from nlpctl.names import full_width_signs, nearest

TRUE = {"true", "yes", "on", "1"}
FALSE = {"false", "no", "off", "0"}
ALL = {"all", "none", "null"}  # words for the entry None of a list; None is what PaddleNLP's documents write
_GUESSED = 100  # problems; beyond them unknown keys get no guess
_FRACTION = re.compile(r"\s*([+-]?\d+(?:\.\d*)?)\s*/\s*(\d+(?:\.\d*)?)\s*")
_LARGEST = 2**63 - 1  # what Paddle and NumPy hold
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d+)?")
_ARTICLES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def coerce_sections(tree: TableNode, log: LoadLog) -> dict[str, Any]:
    """Section name -> section object. A bad value is reported and replaced by its default."""
    for name, node in tree.entries.items():
        if name not in SECTIONS and name != "task":
            _unknown(name, node, log)
    values = {}
    for name, section in SECTIONS.items():
        content = tree.entries.get(name)
        empty = isinstance(content, ScalarNode) and content.is_null  # `data:` with nothing below it
        values[name] = _section(section, name, None if empty else content, log)
    return values


def coerce_scalar(text: str, kind: type) -> Any:
    """`text` as str, int, float or bool. Raises Mismatch."""
    # The schema's types decide, so version: 1.10 stays text and lr: 1e-5 is a number, unlike in YAML 1.1.
    readers: dict[type, Callable[[str], Any]] = {str: str, int: _int, float: _float, bool: _bool}
    return readers[kind](text)


def resolve_scalar(node: ScalarNode) -> Scalar:
    """The value of a scalar without a declared type (model.config, runtime.flags): as YAML has it, but
    `1e-5` is a number too."""
    if not node.plain:
        return node.text
    if node.is_null:
        return None
    if node.text.lower() in (TRUE | FALSE) - {"0", "1"}:
        return _bool(node.text)
    if _NUMBER.fullmatch(node.text):
        return _int(node.text) if re.fullmatch(r"[+-]?[\d_]+", node.text) else _float(node.text)
    return node.text


def _section(section: type, prefix: str, node: Node | None, log: LoadLog) -> Any:
    keys = keys_of(section, prefix)
    entries: dict[str, Node] = {}
    if isinstance(node, TableNode):
        entries = node.entries
    elif node is not None:
        hint = f"keys of {prefix}: {', '.join(list(keys)[:6])}, ..."
        hint += full_width_signs(node.text) if isinstance(node, ScalarNode) else ""
        log.report(prefix, node.origin, "a section is a mapping of keys to values", hint)
    for name, entry in entries.items():
        if name not in keys:
            _unknown(f"{prefix}.{name}", entry, log)
    return section(**{name: _value(key, entries.get(name), log) for name, key in keys.items()})


def _value(key: Key, node: Node | None, log: LoadLog) -> Any:
    """The value that `node` gives `key`; the default without a node, and for a wrong value, which `log` then has."""
    log.origins[key.dotted] = Origin("default") if node is None else node.origin
    if key.section and (node is not None or not key.optional):
        if isinstance(node, ScalarNode) and node.is_null:
            return None if key.optional else _section(key.section, key.dotted, None, log)
        return _section(key.section, key.dotted, node, log)
    if node is None:
        return key.default
    try:
        return _leaf(key, node, log)
    except Mismatch as mismatch:
        log.report(key.dotted, node.origin, str(mismatch), _expected(key))
        return key.default


def _leaf(key: Key, node: Node, log: LoadLog) -> Any:
    """The value of a key that is no section. Mismatch: `node` is not of its type."""
    if isinstance(node, ScalarNode) and node.is_null:
        if key.optional:
            return None
        if key.is_list:
            return ()
        if key.free or key.axes:
            return {}
        raise Mismatch("has no value, and null is not allowed")
    if key.axes:
        return read_space(node, key.dotted, log, _inner)
    if key.free:
        return _free_mapping(key, node, log)
    if key.entry:
        items = node.items if isinstance(node, ListNode) else (node,)
        entries = {f"{key.dotted}.{i}": item for i, item in enumerate(items)}
        log.origins |= {dotted: item.origin for dotted, item in entries.items()}
        return tuple(_section(key.entry, dotted, item, log) for dotted, item in entries.items())
    if key.lists:
        lists = [item for item in node.items if isinstance(item, ListNode)] if isinstance(node, ListNode) else []
        if not isinstance(node, ListNode) or len(lists) < len(node.items):
            raise Mismatch("expected a list of lists")
        return tuple(tuple(_one(key, str, text) for text in each.items) for each in lists)
    if key.item:
        if isinstance(node, ListNode):
            return tuple(_one(key, key.item, item) for item in node.items)
        return _one(key, key.scalar, node) if key.scalar else (_one(key, key.item, node),)
    return _one(key, key.scalar or str, node)


def _inner(key: Key, node: Node, log: LoadLog) -> Any:
    """The value of `key`, or of a name in the mapping that `key` is."""
    if not key.free:
        return _leaf(key, node, log)
    if not isinstance(node, ScalarNode):
        raise Mismatch("expected single values")
    return resolve_scalar(node) if key.scalar is None else node.text


def _one(key: Key, kind: type, node: Node) -> Any:
    if not isinstance(node, ScalarNode):
        what = "a list" if isinstance(node, ListNode) else "a mapping"
        raise Mismatch(f"expected {_ARTICLES[kind]}, found {what}")
    if key.all_item and (node.is_null or node.text.strip().lower() in ALL):
        return None
    if node.is_null:
        raise Mismatch("an entry of the list has no value")
    value = coerce_scalar(node.text, kind)
    if key.choices and value not in key.choices:
        near = nearest(value, key.choices)
        raise Mismatch(f"{value!r} is not one of its values" + (f"; did you mean {near}?" if near else ""))
    return value


def _free_mapping(key: Key, node: Node, log: LoadLog) -> dict[str, Scalar]:
    if not isinstance(node, TableNode):
        raise Mismatch("expected a mapping of names to values")
    values: dict[str, Scalar] = {}
    for name, entry in node.entries.items():
        dotted = f"{key.dotted}.{name}"
        log.origins[dotted] = entry.origin
        if isinstance(entry, ScalarNode):
            values[name] = resolve_scalar(entry) if key.scalar is None else "" if entry.is_null else entry.text
        else:
            log.report(dotted, entry.origin, "expected a single value", "write a number, a word or true/false")
    return values


_FORMER = {"data.tokenizer": "leave it out: every vocabulary of BERT's kind is read by the tokenizers library"}


def _unknown(dotted: str, node: Node, log: LoadLog) -> None:
    near = nearest_key(dotted) if len(log.problems) < _GUESSED else None  # a guess takes milliseconds
    log.broken |= {dotted} | ({near} if near else set())
    hint = _FORMER.get(dotted) or (f"did you mean {near}?" if near else "`nlpctl recipe schema` lists the keys")
    log.problems.append(Problem(f"unknown key {dotted}", where=str(node.origin), hint=hint + full_width_signs(dotted)))


def _expected(key: Key) -> str:
    if key.section:
        return f"{key.dotted} is a section"
    return f"{key.dotted} takes: {key.type_text}"


def _int(text: str) -> int:
    plain, value = text.strip(), None
    with contextlib.suppress(ValueError):
        value = int(plain)
    if value is None and _NUMBER.fullmatch(plain) and math.isfinite(float(plain)) and float(plain).is_integer():
        value = int(float(plain))
    if value is None:
        raise Mismatch(f"{text!r} is not a whole number")
    if abs(value) > _LARGEST:
        raise Mismatch(f"{text!r} is too large: whole numbers go up to {_LARGEST:,}")
    return value


def _float(text: str) -> float:
    fraction = _FRACTION.fullmatch(text)
    try:
        value = float(fraction[1]) / float(fraction[2]) if fraction else float(text)
    except (ValueError, ZeroDivisionError):
        raise Mismatch(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise Mismatch(f"{text!r} is not a finite number")
    return value


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise Mismatch(f"{text!r} is neither true nor false")
