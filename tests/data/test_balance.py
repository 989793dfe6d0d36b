"""Rows drawn by label: the counts, the seed, and that nothing but repetition is added."""

from __future__ import annotations

from collections import Counter

import pytest

from nlpctl.config.schema import BalanceSection
from nlpctl.data.balance import balanced
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.errors import UserError

LABELS = LabelSet(("neg", "pos"))
ROWS = ExampleList(TextExample(str(i), None, int(i % 10 < 7)) for i in range(100))  # 30 neg, 70 pos


def test_undersample():
    drawn, before, after = balanced(ROWS, LABELS, BalanceSection(method="undersample"), 1)
    assert before == {"neg": 30, "pos": 70} and after == {"neg": 30, "pos": 30}
    assert len({example.text for example in drawn}) == 60  # none twice
    assert [example.text for example in drawn if example.label == 0] == [e.text for e in ROWS if e.label == 0]


def test_oversample():
    drawn, _, after = balanced(ROWS, LABELS, BalanceSection(method="oversample"), 1)
    assert after == {"neg": 70, "pos": 70}
    times = Counter(example.text for example in drawn)
    assert set(times) == {example.text for example in ROWS}  # none is lost
    assert {times[example.text] for example in ROWS if example.label == 0} == {2, 3}


def test_counts_and_order():
    drawn, _, after = balanced(ROWS, LABELS, BalanceSection(counts={"neg": 45}), 1)
    assert after == {"neg": 45, "pos": 70}
    numbers = [int(example.text) for example in drawn]
    assert numbers == sorted(numbers)


def test_many_labels_do_not_cost_a_pass_each():
    passes = []

    class Counted(ExampleList):
        def __iter__(self):
            passes.append(self)
            return super().__iter__()

    names = LabelSet(tuple(f"l{i}" for i in range(50)))
    rows = Counted(TextExample(str(i), None, min(i % 60, 49)) for i in range(600))
    _, _, after = balanced(rows, names, BalanceSection(method="oversample"), 1)
    assert set(after.values()) == {110} and len(passes) <= 3


def test_the_seed_decides():
    texts = [
        [example.text for example in balanced(ROWS, LABELS, BalanceSection(method="undersample"), seed)[0]]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("counts", "message"),
    [({"bad": 3}, "no label 'bad'"), ({"neg": 0}, "0 is not a number"), ({"neg": "x"}, "'x' is not a number")],
)
def test_bad_counts(counts, message):
    with pytest.raises(UserError, match=message):
        balanced(ROWS, LABELS, BalanceSection(counts=counts), 1)
    one_label = ExampleList(example for example in ROWS if example.label)
    with pytest.raises(UserError, match="no training row has the label 'neg'"):
        balanced(one_label, LABELS, BalanceSection(counts={"neg": 3}), 1)
