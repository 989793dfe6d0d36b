"""Parts that keep the shares of the labels, and groups that stay whole."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate

import pytest

from nlpctl.data.partition import Group, SplitRows, absent_kinds, group_rows, stratify


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


def test_a_large_group_does_not_make_a_part_larger() -> None:
    """Two texts without labels, which are repeated and fit into no other part than train: the labels make up for it."""
    keys = [[i] for i in range(1500)] + [["x"]] * 81 + [["y"]] * 67
    labels = [("a", "b", "c")[i % 3 : i % 3 + 1 + i % 2] for i in range(1500)] + [()] * 148
    for seed in range(3):
        parts = stratify(group_rows(keys, labels), [1318, 165, 165], seed)
        assert [len(part) for part in parts] == pytest.approx([1318, 165, 165], abs=2)
        counts = [Counter(label for i in part for label in labels[i]) for part in parts]
        for label in "abc":
            total = sum(count[label] for count in counts)
            assert [count[label] / total for count in counts] == pytest.approx([0.78, 0.11, 0.11], abs=0.03)
    many = [(str(group), size) for group in range(40) for size in (50, 10, 2, 1, 1, 1, 1, 1, 1, 1)]
    keys = [[i] for i, (_, size) in enumerate(many) for _ in range(size)]
    labels = [(label,) for label, size in many for _ in range(size)]
    total = len(labels)
    parts = stratify(group_rows(keys, labels), [total - 2 * (total // 10), total // 10, total // 10], 0)
    assert [len(part) / total for part in parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def split_rows(labels: list[tuple[str, ...]], texts: list[str]) -> SplitRows:
    return SplitRows([], [], [{"text": text} for text in texts], labels, {}, {}, [])


@pytest.mark.parametrize("labels", ["", "ab"])
def test_groups_of_each_size_are_in_each_part_by_its_share(labels: str) -> None:
    """As authors with one to eight texts, or passages with many questions: the busy ones are not all in train."""
    sizes = [size for size in range(1, 9) for _ in range(40)]
    ends = list(accumulate(sizes))
    groups = [
        Group(tuple(range(end - size, end)), Counter({labels[i % 2]: size} if labels else {}))
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    total = ends[-1]
    for seed in range(3):
        parts = stratify(groups, [total - 2 * (total // 10), total // 10, total // 10], seed)
        assert [len(part) for part in parts] == pytest.approx([0.8 * total, 0.1 * total, 0.1 * total], abs=3)
        part_of = {row: part for part, rows in enumerate(parts) for row in rows}
        placed = Counter((len(group.rows), part_of[group.rows[0]]) for group in groups)
        for size in range(1, 9):
            assert [placed[size, part] for part in range(3)] == pytest.approx([32, 4, 4], abs=3), size


def test_groups_of_any_size_fill_the_parts() -> None:
    """A part is not filled by half of a group that does not fit while another has room for all of it."""
    sizes, labels = (2, 1, 1, 1, 1, 2, 3, 2, 1, 3, 2, 3), "12 2 0 2 4 30 022 00 1 210 03 005".split()
    ends = list(accumulate(sizes))
    groups = [Group(tuple(range(end - n, end)), Counter(own)) for n, end, own in zip(sizes, ends, labels, strict=True)]
    for seed in range(6):
        assert [len(part) for part in stratify(groups, [19, 1, 2], seed)] == [19, 1, 2]
    chance = random.Random(3)
    sizes = [chance.randint(1, 40) for _ in range(26)] + [1, 1, 2, 3]
    ends = list(accumulate(sizes))
    groups = [Group(tuple(range(end - n, end)), Counter(x=n)) for n, end in zip(sizes, ends, strict=True)]
    wanted = [ends[-1] - 2 * (ends[-1] // 10), ends[-1] // 10, ends[-1] // 10]
    assert [len(part) for part in stratify(groups, wanted, 0)] == pytest.approx(wanted, abs=6)


def test_labels_that_a_part_lacks_are_told() -> None:
    labels = [("pos",)] * 20 + [("neg",)] * 10 + [()] * 12
    texts = [f"text {i}" for i in range(20)] + ["bad"] * 4 + ["Bad"] * 6 + ["x"] * 7 + ["y"] * 5
    read = split_rows(labels, texts)
    parts = {"train": [*range(14), *range(20, 42)], "dev": [14, 15, 16], "test": [17, 18, 19]}
    expected = "no row of neg in dev and test (10 rows are copies of 1 text)"
    assert "there is no row of neg" not in absent_kinds(read, parts, "without entities", False)  # too few: 10 * 3 < 42
    parts = {"train": [*range(10), *range(20, 42)], "dev": [*range(10, 15)], "test": [*range(15, 20)]}
    told = absent_kinds(read, parts, "without entities", False)
    assert expected in told and "no row without entities in dev and test (12 rows are copies of 2 texts)" in told
    alone = split_rows(labels, [str(i) for i in range(42)])
    assert absent_kinds(alone, parts, "without entities", False) == ""
    assert "neg in dev and test (10 rows stay together with others)" in absent_kinds(alone, parts, "-", True)
    pair = split_rows(labels, [*(str(i) for i in range(41)), "29"])  # one copy is not why a part has none
    assert absent_kinds(pair, parts, "without entities", False) == ""
    whole = {"train": [0, 20, 30], "dev": [1, 21, 31]}
    assert absent_kinds(read, whole, "without entities", False) == ""


def test_rows_are_one_group_by_way_of_a_third() -> None:
    groups = group_rows([["x"], ["y"], ["x", "y"], ["z"]], [("a",), ("b",), ("a",), ()])
    assert groups == [Group((0, 1, 2), Counter(a=2, b=1)), Group((3,), Counter())]


def test_rows_without_labels_fill_the_parts() -> None:
    assert [len(part) for part in stratify(singles([()] * 10), [7, 3], seed=0)] == [7, 3]
