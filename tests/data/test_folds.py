"""Cutting rows into folds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from nlpctl.data.inspection.duplicates import NEAR
from nlpctl.data.partition import SplitRows, cut, fold_rows
from nlpctl.data.readers.row import Row
from nlpctl.errors import UserError

WORDS = "room bed staff view food breakfast lobby street noise price window door lamp chair".split()


def readable(texts, labels, **columns):
    rows = [Row("f", i, {name: values[i] for name, values in columns.items()}) for i in range(len(texts))]
    passages, places = [{"text": text} for text in texts], list(range(len(texts)))
    return SplitRows(rows, rows, passages, [(label,) for label in labels], {}, {"f": places}, places)


def texts(count, seed=1):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=14)) for _ in range(count)]


def test_every_row_is_in_one_fold_and_labels_have_their_share():
    labels = ["rare" if i % 10 == 0 else "usual" for i in range(100)]
    folds = fold_rows(readable(texts(100), labels), 5, 3)
    assert sorted(row for fold in folds for row in fold) == list(range(100))
    assert [Counter(labels[row] for row in fold) for fold in folds] == [Counter(usual=18, rare=2)] * 5


def test_near_duplicates_and_groups_stay_together():
    written = texts(40)
    written[20] = written[3].replace(written[3].split()[-1], "lamp", 1)[:-1]
    written[7] = written[3] + "!"
    authors = [i % 8 for i in range(40)]
    near = fold_rows(readable(written, ["a"] * 40), 4, 1, near=NEAR)
    assert any({3, 7} <= set(fold) for fold in near)
    grouped = fold_rows(readable(written, ["a"] * 40, author=authors), 4, 1, group_by="author")
    assert [len({*fold} & {row for row in range(40) if authors[row] == 2}) for fold in grouped].count(5) == 1
    assert sorted(len(fold) for fold in grouped) == [10] * 4


def test_a_group_that_fits_nowhere_is_not_lost():
    authors = ["one"] * 30 + [str(i) for i in range(6)]
    unknown = fold_rows(readable(texts(40), ["a"] * 40, author=["", None] * 20), 4, 1, group_by="author")
    assert [len(fold) for fold in unknown] == [10] * 4
    folds = fold_rows(readable(texts(36), ["a"] * 36, author=authors), 3, 1, group_by="author")
    assert sorted(row for fold in folds for row in fold) == list(range(36)) and all(folds)


def test_a_group_is_one_however_it_is_written(capsys: pytest.CaptureFixture[str]):
    authors = [7, 7.0, "7", " 7", "Jos\u00e9", "Jose\u0301 ", "Ann", "ann", "01", "1"] * 4
    folds = fold_rows(readable(texts(40), ["a"] * 40, author=authors), 4, 1, group_by="author")
    for names in (authors[:4], authors[4:6]):
        assert len({i for i, fold in enumerate(folds) for row in fold if authors[row] in names}) == 1
    told = capsys.readouterr().err
    assert "data.columns.group: the groups 'Ann' and 'ann' differ in case or width only, and count as two" in told
    assert "the groups '01' and '1' are one number" in told and told.count("count as two") == 2


def test_too_few_groups():
    with pytest.raises(UserError, match="2 groups of rows stay together"):
        fold_rows(readable(texts(10), ["a"] * 10, author=["x", "y"] * 5), 3, 1, group_by="author")
    with pytest.raises(UserError, match="no column 'author'") as failed:
        fold_rows(readable(texts(10), ["a"] * 10, book=["x"] * 10), 3, 1, group_by="author")
    assert failed.value.problems[0].where == "data.columns.group"


def test_mirrored_pairs_stay_together():
    """Exact ones always, almost equal ones with `near`; a pair that shares its first text alone goes its own way."""
    first, second = texts(40, seed=1), texts(40, seed=2)
    first[20:], second[20:] = second[:20], first[:20]
    first[25], second[26] = first[25] + " chair", "chair " + second[26]
    rows = readable(first, ["a"] * 40)
    for row, other in zip(rows.passages, second, strict=True):
        row["text_pair"] = other
    for parts in (fold_rows(rows, 4, 1, near=NEAR), list(cut(rows, {"train": 30, "dev": 10}, 1, near=NEAR).values())):
        where = {row: number for number, part in enumerate(parts) for row in part}
        assert len(where) == 40 and all(where[row] == where[row + 20] for row in range(20))
    parts = cut(rows, {"train": 30, "dev": 10}, 1)
    where = {row: name for name, part in parts.items() for row in part}
    assert all(where[row] == where[row + 20] for row in range(20) if row not in (5, 6))
    rows = readable([first[0]] * 20, ["a"] * 20)
    for row, other in zip(rows.passages, second, strict=False):
        row["text_pair"] = other
    assert len(cut(rows, {"train": 15, "dev": 5}, 1, near=NEAR)["dev"]) == 5
