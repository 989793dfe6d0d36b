"""Parts that keep the shares of the labels, and groups that stay whole."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from nlpctl.data.partition import Group, group_rows, stratify


def singles(labels: list[tuple[str, ...]]) -> list[Group]:
    return group_rows([[i] for i in range(len(labels))], labels)


@pytest.mark.parametrize("seed", range(5))
def test_every_label_has_its_share(seed: int) -> None:
    labels = [("often",)] * 700 + [("seldom",)] * 280 + [("rare",)] * 20
    parts = stratify(singles(labels), [800, 100, 100], seed)
    assert [len(part) for part in parts] == [800, 100, 100]
    assert sorted(i for part in parts for i in part) == list(range(1000))
    counts = [Counter(labels[i][0] for i in part) for part in parts]
    assert counts[0] == {"often": 560, "seldom": 224, "rare": 16}
    assert counts[1] == counts[2] == {"often": 70, "seldom": 28, "rare": 2}


def test_rows_with_several_labels() -> None:
    chance = random.Random(2)
    names = "abcdef"
    labels = [tuple(name for k, name in enumerate(names) if chance.random() < 0.5 / (k + 1)) for _ in range(2000)]
    parts = stratify(singles(labels), [1600, 200, 200], seed=1)
    assert [len(part) for part in parts] == [1600, 200, 200]
    totals = Counter(label for row in labels for label in row)
    for part, share in zip(parts, (0.8, 0.1, 0.1), strict=True):
        counts = Counter(label for i in part for label in labels[i])
        for name in names:
            assert counts[name] == pytest.approx(totals[name] * share, abs=2)


def test_the_same_seed_cuts_the_same_way() -> None:
    groups = singles([("a",), ("b",)] * 100)
    assert stratify(groups, [150, 50], seed=3) == stratify(groups, [150, 50], seed=3)
    assert stratify(groups, [150, 50], seed=3) != stratify(groups, [150, 50], seed=4)


def test_rows_may_be_left_out() -> None:
    parts = stratify(singles([("a",)] * 60 + [("b",)] * 40), [25, 10], seed=0)
    assert [len(part) for part in parts] == [25, 10]
    assert sum(i < 60 for i in parts[0]) == 15 and sum(i < 60 for i in parts[1]) == 6


def test_groups_stay_whole() -> None:
    keys = [[f"author{i // 7}"] for i in range(700)]
    labels = [("pos",) if i % 3 else ("neg",) for i in range(700)]
    groups = group_rows(keys, labels)
    assert len(groups) == 100
    parts = stratify(groups, [560, 70, 70], seed=5)
    assert [len(part) for part in parts] == [560, 70, 70]
    authors = [{i // 7 for i in part} for part in parts]
    assert not authors[0] & authors[1] and not authors[0] & authors[2] and not authors[1] & authors[2]


def test_a_large_group_goes_where_there_is_room() -> None:
    groups = group_rows([["big"]] * 60 + [[i] for i in range(40)], [("a",)] * 100)
    train, dev = stratify(groups, [80, 20], seed=0)
    assert set(range(60)) <= set(train) and len(dev) == 20


def test_rows_are_one_group_by_way_of_a_third() -> None:
    groups = group_rows([["x"], ["y"], ["x", "y"], ["z"]], [("a",), ("b",), ("a",), ()])
    assert groups == [Group((0, 1, 2), Counter(a=2, b=1)), Group((3,), Counter())]


def test_rows_without_labels_fill_the_parts() -> None:
    assert [len(part) for part in stratify(singles([()] * 10), [7, 3], seed=0)] == [7, 3]
