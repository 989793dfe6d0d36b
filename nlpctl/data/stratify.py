"""Stratified splitting of groups of rows: every label has its share in each part.

Iterative stratification (Sechidis, Tsoumakas, Vlahavas: On the stratification of multi-label data, 2011): labels
are handed out from the rarest on, each group to the part that lacks most of that label. With one label per row this
is the usual stratified split. Groups, here, are rows that have to stay together.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Rows that stay together: their indexes, and how often they have each label."""

    rows: tuple[int, ...]
    labels: Counter[str]


def group_rows(keys: Sequence[Iterable[Hashable]], labels: Sequence[Sequence[str]]) -> list[Group]:
    """Rows that share any key are one group, also by way of a third row; groups in the order of their first row."""
    parents = list(range(len(keys)))

    def root(i: int) -> int:
        while parents[i] != i:
            # Path halving keeps union-find nearly linear; a data set may have a million rows.
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    first: dict[Hashable, int] = {}
    for i, own in enumerate(keys):
        for key in own:
            earlier = root(first.setdefault(key, i))
            parents[root(i)] = earlier
    members: dict[int, list[int]] = defaultdict(list)
    for i in range(len(keys)):
        members[root(i)].append(i)
    return [Group(tuple(rows), Counter(label for i in rows for label in labels[i])) for rows in members.values()]


def stratify(groups: Sequence[Group], targets: Sequence[int], seed: int) -> list[list[int]]:
    """Row indexes per part, sorted. `targets`: rows wanted in each part; less than all leaves rows out.

    Equal arguments give equal parts. A part gets more or less than wanted only where groups do not fit into it.
    """
    total = sum(len(group.rows) for group in groups)
    targets = [*targets, max(total - sum(targets), 0)]  # the last part is what is left out
    order = list(groups)
    random.Random(seed).shuffle(order)
    # Stable: groups of one size keep their random order.
    order.sort(key=lambda group: -len(group.rows))  # while there is room everywhere
    parts = _Parts(targets, sum((group.labels for group in groups), Counter()), total)
    by_label: dict[str, list[int]] = defaultdict(list)
    for i, group in enumerate(order):
        for label in group.labels:
            by_label[label].append(i)
    waiting = Counter({label: sum(order[i].labels[label] for i in members) for label, members in by_label.items()})
    placed: dict[int, int] = {}
    while waiting:
        rarest = min(waiting, key=lambda label: (waiting[label], label))
        del waiting[rarest]
        for i in by_label[rarest]:
            if i not in placed:
                placed[i] = parts.take(order[i], rarest)
                for label in order[i].labels.keys() & waiting.keys():
                    waiting[label] -= order[i].labels[label]
    for i, group in enumerate(order):
        if i not in placed:
            placed[i] = parts.take(group, None)
    rows: list[list[int]] = [[] for _ in targets]
    for i, part in placed.items():
        rows[part].extend(order[i].rows)
    return [sorted(each) for each in rows[:-1]]


class _Parts:
    """The number of rows, and of examples of each label, that each part still lacks."""

    def __init__(self, targets: Sequence[int], labels: Counter[str], total: int):
        self._rows = list(targets)
        shares = [target / max(total, 1) for target in targets]
        self._labels = {label: [count * share for share in shares] for label, count in labels.items()}

    def take(self, group: Group, label: str | None) -> int:
        """Put `group` where `label` is lacking most, among the parts that have room; returns the part."""
        size = len(group.rows)
        room = [part for part, lacking in enumerate(self._rows) if lacking > 0 and 2 * lacking >= size]
        candidates = room or range(len(self._rows))
        lacking = self._rows if label is None else self._labels[label]
        chosen = max(candidates, key=lambda part: (lacking[part], self._rows[part], -part))
        self._rows[chosen] -= size
        for name, count in group.labels.items():
            self._labels[name][chosen] -= count
        return chosen
