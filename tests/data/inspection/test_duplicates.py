"""Rows that occur again: inside a split, across splits, with other labels."""

from __future__ import annotations

from collections.abc import Callable

from nlpctl.data.inspection.duplicates import Overlap, Repeats, _across, find_duplicates
from nlpctl.data.inspection.rows import InspectedRow

LONG = "the room was large and quiet and the breakfast was good and the staff were friendly"
NEAR = LONG.replace("friendly", "friendlier")


def test_the_same_text_whatever_its_case_width_and_blanks(seen: Callable[..., InspectedRow]) -> None:
    rows = [seen("Very  clean"), seen("very clean", line=2), seen("ＶＥＲＹ clean ", line=3), seen("not clean", line=4)]
    found = find_duplicates(rows, ["train"], symmetric=False)
    assert [[row.line for row in group] for group in found.same] == [[1, 2, 3]]
    assert found.repeats == [Repeats("train", exact=2, near=0)]
    assert found.near == [] and found.conflicts == []


def test_texts_that_differ_in_punctuation_are_almost_the_same(seen: Callable[..., InspectedRow]) -> None:
    found = find_duplicates(
        [seen("很好！"), seen("很好。", line=2), seen("不好。", line=3)], ["train"], symmetric=False
    )
    assert [(pair.first.line, pair.second.line, pair.similarity) for pair in found.near] == [(1, 2, 1.0)]
    assert found.repeats == [Repeats("train", exact=0, near=1)]


def test_a_row_that_repeats_an_earlier_one_counts_once(seen: Callable[..., InspectedRow]) -> None:
    """As it is, or else almost; the first of all repeats nothing. Dev has them in another order than train."""
    texts = ["很好！", "很好！", "很好。", "很好。", "很好，"]
    train = [seen(text, line=line) for line, text in enumerate(texts, 1)]
    dev = [seen("很好，", split="dev"), seen("很好！", split="dev", line=2), seen("新的", split="dev", line=3)]
    found = find_duplicates([*train, *dev], ["train", "dev"], symmetric=False)
    assert found.repeats == [Repeats("train", exact=2, near=2), Repeats("dev", exact=0, near=1)]


def test_overlap_counts_rows_of_the_later_split(seen: Callable[..., InspectedRow]) -> None:
    rows = [
        seen(LONG), seen(LONG, line=2), seen("something else entirely", line=3),
        seen(LONG, split="dev", line=1), seen(NEAR, split="dev", line=2), seen("quite new", split="dev", line=3),
        seen("quite new", split="test", line=1), seen("unheard of", split="test", line=2),
    ]  # fmt: skip
    found = find_duplicates(rows, ["train", "dev", "test"], symmetric=False)
    assert found.overlaps == [
        Overlap("dev", "train", rows=3, exact=1, near=1),
        Overlap("test", "train", rows=2, exact=0, near=0),
        Overlap("test", "dev", rows=2, exact=1, near=0),
    ]
    assert found.repeats[0] == Repeats("train", exact=1, near=0)


def test_near_pairs_show_rows_of_different_splits(seen: Callable[..., InspectedRow]) -> None:
    rows = [seen(LONG), seen(NEAR, line=2), seen(NEAR, split="dev", line=5)]
    (pair,) = find_duplicates(rows, ["train", "dev"], symmetric=False).near
    assert {pair.first.where, pair.second.where} == {"train.tsv:1", "dev.tsv:5"}


def test_frequent_texts_are_not_compared_row_by_row() -> None:
    looks = []

    class Row:
        @property
        def split(self) -> str:
            looks.append(self)
            return "train"

    first, second = ([Row() for _ in range(300)] for _ in range(2))
    assert _across(first, second) == (first[0], second[0])
    assert len(looks) <= 1200  # not 300 x 300


def test_conflicting_labels(seen: Callable[..., InspectedRow]) -> None:
    rows = [seen("fine", label="pos"), seen("Fine", label="neg", line=2), seen("bad", label="neg", line=3),
            seen("bad", label="neg", line=4), seen(LONG, line=5), seen(NEAR, label="neg", line=6)]  # fmt: skip
    found = find_duplicates(rows, ["train"], symmetric=False)
    assert [[row.line for row in group] for group in found.conflicts] == [[1, 2]]
    assert [(pair.first.line, pair.second.line) for pair in found.near_conflicts] == [(5, 6)]


def test_pairs_are_the_same_only_in_both_texts(seen: Callable[..., InspectedRow]) -> None:
    rows = [
        seen(LONG, "a question about the room"),
        seen(NEAR, "something completely different", line=2),
        seen(NEAR, "a question about the rooms", line=3),
        seen(LONG, "A question about the room", line=4),
    ]
    found = find_duplicates(rows, ["train"], symmetric=False)
    assert [[row.line for row in group] for group in found.same] == [[1, 4]]
    assert [(pair.first.line, pair.second.line) for pair in found.near] == [(1, 3)]
    assert found.near[0].similarity < 1.0


def test_a_mirrored_pair_is_the_same_row(seen: Callable[..., InspectedRow]) -> None:
    other = "where is the lift, please, and when does the pool open"
    rows = [seen(LONG, other), seen(other, LONG, split="dev"), seen(other, NEAR, split="dev", line=2),
            seen("one", "two", line=2), seen("Two", "one", split="dev", line=3)]  # fmt: skip
    found = find_duplicates(rows, ["train", "dev"], symmetric=True)
    assert found.overlaps == [Overlap("dev", "train", rows=3, exact=2, near=1)]


def test_mirrored_pairs_contradict_each_other_only_where_both_orders_mean_the_same(
    seen: Callable[..., InspectedRow],
) -> None:
    premise = "a man in a red shirt plays the guitar on the street in the evening"
    rows = [seen(premise, LONG, label="entailment"), seen(LONG, premise, label="neutral", line=2),
            seen(NEAR, premise, label="contradiction", line=3)]  # fmt: skip
    directed, either_way = (find_duplicates(rows, ["train"], symmetric=symmetric) for symmetric in (False, True))
    assert directed.conflicts == [] and [[row.line for row in group] for group in either_way.conflicts] == [[1, 2]]
    assert len(directed.near) == len(either_way.near) == 1  # the row that stands for 1 and 2 is the first
    assert directed.near_conflicts == [] and len(either_way.near_conflicts) == 1
