"""What a check of a recipe finds, and how it looks at values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nlpctl.config.schema import Recipe


@dataclass(frozen=True)
class Finding:
    """The keys that are at odds, what is wrong with them, and the remedy."""

    keys: tuple[str, ...]
    message: str
    hint: str


Check = Callable[[Recipe], Iterator[Finding]]


def value_of(recipe: Recipe, dotted: str) -> Any:
    """The value of a dotted key; None where its section is absent."""
    value: Any = recipe
    for part in dotted.split("."):
        value = None if value is None else operator.attrgetter(part)(value)
    return value
