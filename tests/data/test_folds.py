"""Cutting rows into folds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from nlpctl.data.inspect.duplicates import NEAR
from nlpctl.data.row import Row
from nlpctl.data.split_rows import Readable, fold_rows
from nlpctl.errors import UserError

WORDS = "room bed staff view food breakfast lobby street noise price window door lamp chair".split()


def readable(texts, labels, **columns):
    rows = [Row("f", i, {name: values[i] for name, values in columns.items()}) for i in range(len(texts))]
    passages, places = [{"text": text} for text in texts], list(range(len(texts)))
    return Readable(rows, rows, passages, [(label,) for label in labels], {}, {"f": places}, places)


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
    folds = fold_rows(readable(texts(36), ["a"] * 36, author=authors), 3, 1, group_by="author")
    assert sorted(row for fold in folds for row in fold) == list(range(36)) and all(folds)


def test_too_few_groups():
    with pytest.raises(UserError, match="2 groups of rows stay together"):
        fold_rows(readable(texts(10), ["a"] * 10, author=["x", "y"] * 5), 3, 1, group_by="author")
    with pytest.raises(UserError, match="no column 'author'") as failed:
        fold_rows(readable(texts(10), ["a"] * 10, book=["x"] * 10), 3, 1, group_by="author")
    assert failed.value.problems[0].where == "data.columns.group"
