"""The result of a check of recipe values, and access to values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nlpctl.config.schema import Recipe


@dataclass(frozen=True)
class Finding:
    """One conflict between values: its keys, the problem, and the remedy. The line is added by checks.py."""

    keys: tuple[str, ...]
    message: str
    hint: str


Check = Callable[[Recipe], Iterator[Finding]]


def value_of(recipe: Recipe, dotted: str) -> Any:
    """The value of a dotted key; None if its section is absent."""
    value: Any = recipe
    for part in dotted.split("."):
        value = None if value is None else operator.attrgetter(part)(value)
    return value
