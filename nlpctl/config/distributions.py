"""Distributions that starting values are drawn from, as recipes and `nlpctl params` write them: normal(0, 0.02).

Reading one needs no NumPy; nlpctl/models/parameters.py draws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nlpctl.names import did_you_mean

# Name -> its arguments in order, with their defaults; None: has to be given.
KINDS: Mapping[str, Mapping[str, float | None]] = {
    "normal": {"mean": 0.0, "std": None},
    "truncated_normal": {"mean": 0.0, "std": None},
    "uniform": {"low": None, "high": None},
    "xavier_normal": {"gain": 1.0},
    "xavier_uniform": {"gain": 1.0},
    "kaiming_normal": {"negative_slope": 0.0},
    "kaiming_uniform": {"negative_slope": 0.0},
    "constant": {"value": None},
}
BY_SHAPE = tuple(name for name in KINDS if name.startswith(("xavier_", "kaiming_")))  # the spread depends on the shape
_WRITTEN = re.compile(r"\s*([A-Za-z_]+)\s*(?:\((.*)\))?\s*")
_CALL = re.compile(r"\s*[A-Za-z_]+\s*\(")


class BadDistribution(ValueError):
    """A text that is meant as a distribution and is none. The message says why; `hint` what to write."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Distribution:
    """One of KINDS with all its arguments."""

    kind: str
    values: Mapping[str, float]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value:g}' for name, value in self.values.items())})"


def is_distribution(text: str) -> bool:
    """Whether `text` is meant as a distribution, and not as a file: words(1).npy is one that was downloaded twice."""
    return not text.endswith(".npy") and bool(_WRITTEN.fullmatch(text) or _CALL.match(text))


def read_distribution(text: str) -> Distribution:
    """normal(0, 0.02), normal(std=0.02), xavier_uniform. BadDistribution: an unknown name or argument, or a bad value.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        hint = "quote it inside braces: {classifier.weight: 'normal(0, 0.02)'}"
        raise BadDistribution(f"{text!r} has no closing parenthesis", hint)
    kind, inside = match[1].lower(), (match[2] or "").strip()
    if kind not in KINDS:
        hint = f"a number, a .npy file, or one of {', '.join(KINDS)}"
        raise BadDistribution(f"there is no distribution {kind!r}{did_you_mean(kind, KINDS)}", hint)
    return Distribution(kind, _checked(kind, _arguments(kind, inside)))


def _arguments(kind: str, inside: str) -> dict[str, float | None]:
    values, hint = dict(KINDS[kind]), _usage(kind)
    names = list(values)
    for place, part in enumerate(inside.split(",") if inside else ()):
        name, equals, text = part.partition("=")
        if not equals:
            text, name = part, names[place] if place < len(names) else ""
        if name.strip() not in values:
            raise BadDistribution(f"{kind} has no argument {part.strip()!r}", hint)
        try:
            values[name.strip()] = float(text)
        except ValueError:
            raise BadDistribution(f"{text.strip()!r} is not a number", hint) from None
    return values


def _checked(kind: str, values: Mapping[str, float | None]) -> dict[str, float]:
    hint = _usage(kind)
    given = {name: value for name, value in values.items() if value is not None}
    missing = [name for name in values if name not in given]
    if missing:
        raise BadDistribution(f"{kind} needs {' and '.join(missing)}", hint)
    if not all(map(math.isfinite, given.values())):
        raise BadDistribution(f"{kind} has an argument that is not finite", hint)
    if given.get("std", 0.0) < 0:
        raise BadDistribution(f"the standard deviation {given['std']:g} is below 0", hint)
    if "low" in given and given["low"] > given["high"]:
        raise BadDistribution(f"{given['low']:g} is above {given['high']:g}", hint)
    return given


def _usage(kind: str) -> str:
    arguments = (name if default is None else f"{name}={default:g}" for name, default in KINDS[kind].items())
    return f"write {kind}({', '.join(arguments)})"
