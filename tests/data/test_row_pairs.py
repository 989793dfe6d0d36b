"""Pairs of rows for contrastive training."""

from __future__ import annotations

from nlpctl.data.row_pairs import PairDraw
from nlpctl.data.rows.text_rows import TextExample

ROWS = [TextExample(f"text {i}", None, label) for i, label in enumerate((0, 0, 0, 1, 1, 2))]


def drawn(seed: int, pairs: int = 50):
    draw = PairDraw(ROWS, pairs, seed)
    return [pair for row in ROWS for pair in draw(row)]


def test_every_row_has_as_many_equal_as_different_pairs() -> None:
    made = drawn(1)
    assert len(made) == 2 * 50 * len(ROWS)
    for row in ROWS:
        own = [pair for pair in made if pair.first is row]
        assert sum(pair.second.label == row.label for pair in own) == 50
        seen = {pair.second.text for pair in own}
        alone = row.label == 2  # the only row of its label stands beside itself
        assert seen == {other.text for other in ROWS if other is not row or alone}


def test_pairs_are_a_function_of_the_seed() -> None:
    assert drawn(1) == drawn(1) != drawn(2)


def test_equal_rows_may_stand_beside_each_other() -> None:
    twins = [TextExample("same", None, 0), TextExample("same", None, 0), TextExample("other", None, 1)]
    draw = PairDraw(twins, 5, 1)
    assert all(pair.second is twins[1] for pair in draw(twins[0]) if pair.second.label == 0)


def test_a_row_that_balancing_repeats_stands_beside_none_of_its_copies() -> None:
    repeated = [row for row in ROWS for _ in range(3)]
    draw = PairDraw(repeated, 50, 1)
    for row in ROWS[:5]:
        alike = {pair.second.text for pair in draw(row) if pair.second.label == row.label}
        assert alike == {other.text for other in ROWS if other.label == row.label and other is not row}
    assert all(pair.second is ROWS[5] for pair in draw(ROWS[5]) if pair.second.label == 2)


def test_rows_of_one_label_have_no_different_ones() -> None:
    draw = PairDraw(ROWS[:3], 5, 1)
    assert len(draw(ROWS[0])) == 5


def test_the_longer_text_sorts_a_pair() -> None:
    short, long = TextExample("a", None, 0), TextExample("a" * 9, None, 1)
    (_, different) = PairDraw([short, long], 1, 1)(short)
    assert different.byte_length == 9
