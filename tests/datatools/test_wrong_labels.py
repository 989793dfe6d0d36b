"""Labels that are probably wrong, and texts that are like no others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nlpctl.cli.data import _about_first
from nlpctl.data.rows.tag_scheme import detect_scheme
from nlpctl.datatools.wrong_labels import (
    Worth,
    find_outliers,
    worth_of_first,
    wrong_classes,
    wrong_label_sets,
    wrong_tags,
)

pytest.importorskip("cleanlab")


def shares_of(right, seed=1, surest=()):
    """Probabilities of a model that is right about all rows, more or less sure, and most of the rows `surest`."""
    random = np.random.default_rng(seed)
    own = random.uniform(0.82, 0.95, len(right))
    own[list(surest)] = 0.97
    shares = np.repeat(((1 - own) / 2)[:, None], 3, 1)
    shares[np.arange(len(right)), right] = own
    return shares


def test_classes():
    right = np.arange(300) % 3
    gold = right.copy()
    gold[[5, 50, 151]] = (right[[5, 50, 151]] + 1) % 3
    found = wrong_classes(gold, shares_of(right, surest=(5, 50, 151)))
    assert {each.row for each in found} == {5, 50, 151}
    assert all(each.label == right[each.row] and each.given < 0.1 < 0.8 < each.proposed for each in found)
    assert wrong_classes(np.zeros(20, np.int64), shares_of(np.zeros(20, np.int64))) == []


def findings_of(noise, rows=4000):
    """Labels of which `noise` are wrong, what a model that is as often right as it says thinks of them, the rows in
    which it contradicts them, the surest first, and which labels are wrong."""
    random = np.random.default_rng(3)
    sure = 1 - 0.4 * random.random(rows) ** 3
    right = random.integers(0, 2, rows)
    best = np.where(random.random(rows) < sure, right, 1 - right)
    shares = np.where(np.arange(2) == best[:, None], sure[:, None], 1 - sure[:, None])
    wrong = random.random(rows) < noise
    gold = np.where(wrong, 1 - right, right)
    found = np.flatnonzero(best != gold)
    return gold, shares, found[np.argsort(-sure[found])], wrong


def test_what_the_first_findings_are_worth():
    gold, shares, found, wrong = findings_of(0.1)
    tenth, third, whole = worth_of_first(gold, shares, found)
    assert [each.first for each in (tenth, third, whole)] == [len(found) // 10, len(found) // 3, len(found)]
    assert tenth.pays and not whole.pays and 0.1 < tenth.most == whole.most < 0.15
    for each in (tenth, third, whole):  # 0.8 of them are right where as many labels are wrong as it says
        assert (wrong[found[: each.first]].mean() > 0.8) == (each.needed < 0.1)
    gold, shares, found, _ = findings_of(0.0)
    assert not any(each.pays for each in worth_of_first(gold, shares, found))
    assert worth_of_first(gold[:499], shares[:499], [3, 4]) == []  # too few rows to tell
    assert worth_of_first(gold, shares, []) == []


@pytest.mark.parametrize(
    ("needed", "most", "told"),
    [
        (0.02, 0.05, "the first 9: nlpctl data apply F --first 9 -o FOLDER; 80% of them are right if 2.0 % of all"),
        (0.05, 0.02, "does not pay: of the first 9 80% would be right only if 5.0 % of all labels were wrong, and"),
        (0.15, 0.2, "does not pay: even where the models are surest they contradict 20.0 % of the labels"),
    ],
)
def test_first_is_advised_only_where_it_pays(needed, most, told):
    assert told in _about_first([Worth(9, needed, most), Worth(90, 0.5, most)], "F")


def test_label_sets():
    random = np.random.default_rng(2)
    right = random.random((200, 3)) < 0.5
    gold = right.copy()
    gold[7, 1] ^= True
    gold[120] ^= np.array([True, False, True])
    sure = random.uniform(0.82, 0.95, right.shape)
    sure[gold != right] = 0.97
    shares = np.where(right, sure, 1 - sure)
    found = {each.row: each.label for each in wrong_label_sets(gold, shares)}
    assert found == {row: tuple(np.flatnonzero(right[row])) for row in (7, 120)}


def test_tags_are_corrected_by_entities():
    names = ("O", "B-PER", "I-PER")
    right = [np.array([0, 1, 2, 2, 0, 0, 1, 0])] * 60
    gold = [tags.copy() for tags in right]
    gold[4][2] = 0  # half an entity
    gold[9][6] = 0  # a whole one
    surest = {4: (2,), 9: (6,)}
    shares = [shares_of(tags, i, surest.get(i, ())) for i, tags in enumerate(right)]
    found = wrong_tags(gold, right, shares, names, detect_scheme(names, "tags"))
    assert {(each.row, each.start, each.end) for each in found} == {(4, 1, 4), (9, 6, 7)}


def test_entities_of_another_type_come_first():
    """A name that the model does not know is missed with the highest probability, and its label is right."""
    names = ("B-LOC", "B-PER", "O")
    right = [np.array([2, 2, 0, 2, 1, 2, 2, 0, 2, 1] * 3) for _ in range(20)]
    gold = [tags.copy() for tags in right]
    gold[3][2], gold[5][4], gold[7][1] = 1, 2, 0  # another type, none in the labels, none in the predictions
    surest = {3: (2,), 5: (4,)}
    shares = [shares_of(tags, i, surest.get(i, ())) for i, tags in enumerate(right)]
    shares[7][1] = 0.005, 0.005, 0.99
    found = wrong_tags(gold, right, shares, names, detect_scheme(names, "tags"))
    assert [(each.row, each.start) for each in found] == [(3, 2), (5, 4), (7, 1)]
    assert min(found, key=lambda each: each.given).row == 7


def test_outliers():
    chance = random.Random(1)
    words = "room bed staff view food breakfast lobby street noise".split()
    texts = [" ".join(chance.choices(words, k=9)) for _ in range(80)]
    texts[33] = "0x7f 88231 === {} ;;; 4421"
    assert [row for row, _ in find_outliers(texts)][:1] == [33]
    assert find_outliers(texts[:5]) == [] and find_outliers(["same"] * 50) == []
