"""Writes a new recipe: values by section, each with its reason as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from nlpctl.config.dump import to_yaml
from nlpctl.config.tasks import Start

_WIDTH = 120
_SMALL = 0.01  # smaller numbers are written as 5e-3
_COMMENT_AT = 36  # the column of the comments, where the line is short enough

Tree = dict[str, Any]  # name -> Start or Tree


def recipe_text(head: Sequence[str], starts: Sequence[Start], hints: Sequence[Start] = ()) -> str:
    """The text of a recipe. `head`: the lines of the comment above; `hints`: values that stand as comments below.

    Of several starts with the same key the last one counts, at the place of the first.
    """
    lines = [f"# {line}".rstrip() for line in head]
    lines += _lines(_tree(starts), "")
    if hints:
        lines += ["", "# To try:"]
        lines += [line for hint in hints for line in _hint(hint)]
    return "\n".join(lines) + "\n"


def value_text(value: Any) -> str:
    """A value as YAML in one line: 5e-5, [a, b], {a: b}."""
    return to_yaml({"": value}).partition(":")[2].strip() if isinstance(value, str) else _inner(value)


def _inner(value: Any) -> str:
    """A value inside brackets or braces as YAML."""
    if isinstance(value, float):
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}" if 0 < abs(value) < _SMALL else f"{value:g}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_inner(name)}: {_inner(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inner, value))}]"
    return to_yaml([value]).strip()[1:-1]


def _tree(starts: Sequence[Start]) -> Tree:
    tree: Tree = {}
    for start in starts:
        *sections, name = start.key.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = start
    return tree


def _lines(tree: Tree, indent: str) -> list[str]:
    lines: list[str] = []
    for name, entry in tree.items():
        if isinstance(entry, Start):
            lines += _commented(f"{indent}{name}: {value_text(entry.value)}", entry.why, indent)
        else:
            lines += [f"{indent}{name}:", *_lines(entry, f"{indent}  ")]
    return lines


def _hint(hint: Start) -> list[str]:
    """A value as a comment that works once its mark is removed."""
    section, _, rest = hint.key.partition(".")
    inner: Any = hint.value
    for name in reversed(rest.split(".") if rest else []):
        inner = {name: inner}
    return _commented(f"# {section}: {value_text(inner)}", hint.why, "")


def _commented(line: str, why: str, indent: str) -> list[str]:
    """The line with its comment behind it, or above it where there is no room."""
    if not why:
        return [line]
    behind = f"{line:<{_COMMENT_AT - 1}} # {why}"
    if len(behind) <= _WIDTH:
        return [behind]
    return [*textwrap.wrap(why, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "), line]
