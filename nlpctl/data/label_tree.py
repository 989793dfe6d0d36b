"""Hierarchical label names: `food##fruit` is the label fruit below the label food, which it implies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SEPARATOR = "##"


def tidy(name: str) -> str:
    """`name` without blanks around its levels. ValueError if a level is blank, as in `food##`."""
    levels = [level.strip() for level in name.split(SEPARATOR)]
    if not all(levels):
        raise ValueError(f"bad label: {name!r} has an empty level (levels are joined by {SEPARATOR})")
    return SEPARATOR.join(levels)


def depth(name: str) -> int:
    """The level of a label, 1 for one without a parent."""
    return name.count(SEPARATOR) + 1


def ancestors(name: str) -> tuple[str, ...]:
    """The labels above `name`, the topmost first: a##b##c has a and a##b."""
    levels = name.split(SEPARATOR)
    return tuple(SEPARATOR.join(levels[:count]) for count in range(1, len(levels)))


def with_ancestors(names: Iterable[str]) -> tuple[str, ...]:
    """`names` in their order, with missing ancestors inserted right before their first descendant."""
    given = tuple(names)
    known, closed = set(given), []
    for name in given:
        missing = [above for above in ancestors(name) if above not in known]
        known.update(missing)
        closed += [*missing, name]
    return tuple(closed)


def ancestor_ids(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Per label the ids (positions in `names`) of its ancestors, which must be among `names`."""
    ids = {name: i for i, name in enumerate(names)}
    return tuple(tuple(ids[above] for above in ancestors(name)) for name in names)
