"""Duplicates and near-duplicates within and across splits, and rows with contradicting labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from nlpctl.data.inspection.rows import InspectedRow
from nlpctl.data.near_duplicates import aligned_similarity, near_rows, row_key

NEAR = 0.8  # similarity from which texts are almost the same


@dataclass(frozen=True)
class NearPair:
    """Two rows that are almost the same, and how similar they are: the least of their texts' similarities."""

    first: InspectedRow
    second: InspectedRow
    similarity: float


@dataclass(frozen=True)
class Overlap:
    """Rows of `inside` that occur in `other` too: as they are, and almost. `rows`: how many `inside` has."""

    inside: str
    other: str
    rows: int
    exact: int
    near: int


@dataclass(frozen=True)
class Repeats:
    """Rows of one split that repeat an earlier one of it: as it is (`exact`), or else almost (`near`)."""

    split: str
    exact: int
    near: int


@dataclass(frozen=True)
class Duplicates:
    """`same`: groups of rows with the same texts, the largest first; `near`: the most similar pairs first.

    `conflicts`: groups with the same texts and different targets; `near_conflicts`: pairs that
    are almost the same, with different labels.
    """

    same: list[list[InspectedRow]]
    near: list[NearPair]
    repeats: list[Repeats]
    overlaps: list[Overlap]
    conflicts: list[list[InspectedRow]]
    near_conflicts: list[NearPair]


def find_duplicates(rows: Sequence[InspectedRow], splits: Sequence[str], *, symmetric: bool) -> Duplicates:
    """Compare all rows with each other. `splits`: their names, in order.

    The texts of a row count in any order: (B, A) repeats (A, B). Whether two such rows contradict each other, too, is
    `symmetric`, that of the TaskRows.
    """
    groups: dict[bytes, list[InspectedRow]] = defaultdict(list)
    for row in rows:
        groups[row_key(row.passages)].append(row)
    distinct = list(groups.values())
    links = list(near_rows([group[0].passages for group in distinct], NEAR))
    same = sorted((group for group in distinct if len(group) > 1), key=len, reverse=True)
    near = [
        NearPair(*_across(distinct[i], distinct[j]), similarity)
        for i, j, similarity in sorted(links, key=lambda link: -link[2])
    ]
    comparable = same if symmetric else [part for group in same for part in _in_order(group)]
    return Duplicates(
        same,
        near,
        _repeats(rows, distinct, links, splits),
        _overlaps(distinct, links, splits),
        [group for group in comparable if len({row.target for row in group}) > 1],
        [
            pair
            for pair in near
            if set(pair.first.labels) != set(pair.second.labels)
            and (symmetric or aligned_similarity(pair.first.passages, pair.second.passages) >= NEAR)
        ],
    )


def _in_order(group: Sequence[InspectedRow]) -> list[list[InspectedRow]]:
    """The rows of a group apart by the order of their texts."""
    parts: dict[bytes, list[InspectedRow]] = defaultdict(list)
    for row in group:
        parts[row_key(row.passages, ordered=True)].append(row)
    return list(parts.values())


def _across(first: Sequence[InspectedRow], second: Sequence[InspectedRow]) -> tuple[InspectedRow, InspectedRow]:
    """A row of each group, of different splits where there are such: those matter most."""
    by_split: dict[str, InspectedRow] = {}  # a text may occur thousands of times: not each row with each
    for other in second:
        by_split.setdefault(other.split, other)
    for one in first:
        for split, other in by_split.items():
            if split != one.split:
                return one, other
    return first[0], second[0]


def _repeats(
    rows: Sequence[InspectedRow],
    distinct: Sequence[Sequence[InspectedRow]],
    links: Sequence[tuple[int, int, float]],
    splits: Sequence[str],
) -> list[Repeats]:
    exact: Counter[str] = Counter()
    firsts: list[dict[str, int]] = []  # per group: the place, in each split, of the row that no earlier one repeats
    place = {id(row): i for i, row in enumerate(rows)}
    for group in distinct:
        first: dict[str, int] = {}
        for row in group:
            exact[row.split] += row.split in first
            first.setdefault(row.split, place[id(row)])
        firsts.append(first)
    near: dict[str, set[int]] = defaultdict(set)
    for i, j, _ in links:
        for split in firsts[i].keys() & firsts[j].keys():
            near[split].add(max(firsts[i][split], firsts[j][split]))
    return [Repeats(split, exact[split], len(near[split])) for split in splits]


def _overlaps(
    distinct: Sequence[Sequence[InspectedRow]], links: Sequence[tuple[int, int, float]], splits: Sequence[str]
) -> list[Overlap]:
    """The overlaps of each split with every earlier one: dev in train, test in train, test in dev."""
    counts = [Counter(row.split for row in group) for group in distinct]
    neighbours: dict[int, set[int]] = defaultdict(set)
    for i, j, _ in links:
        neighbours[i].add(j)
        neighbours[j].add(i)
    overlaps = []
    for other, inside in combinations(splits, 2):
        exact = near = 0
        for i, count in enumerate(counts):
            if not count[inside]:
                continue
            if count[other]:
                exact += count[inside]
            elif any(counts[j][other] for j in neighbours[i]):
                near += count[inside]
        overlaps.append(Overlap(inside, other, sum(count[inside] for count in counts), exact, near))
    return overlaps
