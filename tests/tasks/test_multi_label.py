"""Thresholds, consistency and scores of multi-label classification, against brute force."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.tasks import task_info
from nlpctl.data.rows.multi_label_rows import MultiLabelExample
from nlpctl.tasks.multi_label_classification import (
    MultiLabelClassification,
    best_threshold,
    consistent,
    multi_label_report,
    tuned_thresholds,
)

FLAT = ("a", "b", "c")
TREE = ("a", "a##x", "a##x##y", "b", "b##z")


def f1(gold, given):
    return 2 * (gold & given).sum() / max(gold.sum() + given.sum(), 1)


def closed(gold, names):
    return consistent(gold, names)


def test_ancestors_of_what_is_chosen_are_chosen():
    chosen = np.array([[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], bool)
    assert consistent(chosen, TREE).astype(int).tolist() == [
        [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 1, 0, 1, 1], [0, 0, 0, 0, 0]
    ]  # fmt: skip
    assert chosen[0].tolist() == [False, False, True, False, False]  # the argument is left alone


@pytest.mark.parametrize("seed", range(40))
def test_no_threshold_gives_a_better_f1(seed):
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 40))
    probabilities = np.round(random.random(rows), int(random.integers(1, 4))) * 0.99  # ties; 1 cannot be left out
    gold, implied = random.random(rows) < 0.4, random.random(rows) < random.choice([0.0, 0.3])
    threshold = best_threshold(probabilities, gold, implied, 0.5)
    every = [-1.0, 2.0, *probabilities, *(probabilities + 1e-9)]
    best = max(f1(gold, implied | (probabilities >= cut)) for cut in every)
    if gold.any():
        assert f1(gold, implied | (probabilities >= threshold)) == pytest.approx(best)
    if not gold.any():
        assert threshold == 0.5


def test_a_label_may_be_left_to_its_children():
    """Both rows that have it get it from a child; the most probable row by itself has it not."""
    implied = gold = np.array([False, True, True])
    assert best_threshold(np.array([0.9, 0.8, 0.3]), gold, implied, 0.5) == pytest.approx(0.95)


def test_of_equal_thresholds_the_one_next_to_the_default_is_taken():
    probabilities = np.array([0.9, 0.8, 0.3, 0.1])
    assert best_threshold(probabilities, np.array([1, 1, 0, 0], bool), np.zeros(4, bool), 0.5) == pytest.approx(0.55)
    all_of_them = best_threshold(probabilities, np.ones(4, bool), np.zeros(4, bool), 0.5)
    assert all_of_them == pytest.approx(0.05)


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_of_parents_reckon_with_their_children(seed):
    random = np.random.default_rng(seed)
    gold = closed(random.random((30, len(TREE))) < 0.3, TREE)
    probabilities = np.clip(gold * 0.3 + random.random(gold.shape) * 0.7, 0, 1)
    thresholds = np.array(tuned_thresholds(probabilities, gold, TREE, 0.5))
    given = consistent(probabilities >= thresholds, TREE)
    for label in (3, 0):  # a parent's own threshold cannot be bettered, its children's being what they are
        ours = f1(gold[:, label], given[:, label])
        for cut in [-1.0, 2.0, *probabilities[:, label]]:
            other = thresholds.copy()
            other[label] = cut
            assert f1(gold[:, label], consistent(probabilities >= other, TREE)[:, label]) <= ours + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed):
    random = np.random.default_rng(seed)
    gold, given = random.random((25, 3)) < 0.3, random.random((25, 3)) < 0.3
    gold[:, 2] = given[:, 2] = False  # a label that never occurs
    report = multi_label_report(gold, given, FLAT)
    for average in ("micro", "macro", "weighted"):
        expected = f1_score(gold, given, average=average, zero_division=0)
        assert report[f"{average}_f1"] == pytest.approx(expected)
    assert report["exact_match"] == pytest.approx((gold == given).all(1).mean())
    assert report["labels"]["c"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert "levels" not in report
    json.dumps(report)  # no NumPy types


def test_levels_have_figures_of_their_own():
    gold = closed(np.array([[0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]], bool), TREE)
    given = closed(np.array([[0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]], bool), TREE)
    levels = multi_label_report(gold, given, TREE)["levels"]
    assert levels["1"] == {"micro_f1": 1.0, "macro_f1": 1.0, "labels": 2}
    assert levels["2"]["micro_f1"] == 1.0 and levels["3"] == {"micro_f1": 0.0, "macro_f1": 0.0, "labels": 1}


@pytest.fixture
def make(make_task_of):
    return lambda names, thresholds=None: make_task_of("multi_label_classification", names, thresholds)


def examples(*labels):
    return [MultiLabelExample("t", None, ids) for ids in labels]


def test_report_and_answer_go_by_the_thresholds(make):
    predictions = [[np.array([2.0, -2.0, -0.5], "float32")], [np.array([-2.0, 0.2, -3.0], "float32")]]
    gold = examples((0, 2), (1,))
    default, tuned = make(FLAT), make(FLAT, (0.5, 0.5, 0.3))
    assert isinstance(default, MultiLabelClassification)
    assert default.report(gold, predictions)["exact_match"] == 0.5
    assert tuned.report(gold, predictions)["exact_match"] == 1.0
    assert tuned.answer(gold[0], predictions[0]) == {
        "labels": ["a", "c"], "probabilities": {"a": 0.880797, "b": 0.119203, "c": 0.377541}
    }  # fmt: skip
    assert tuned.answer(gold[0], [np.full(3, -1000.0, "float32")])["labels"] == []
    assert set(task_info(tuned.name).metrics) - {"loss"} <= set(tuned.report(gold, predictions))


def test_an_answer_is_consistent(make):
    low, high = -5.0, 5.0
    logits = np.array([low, low, high, low, low], "float32")
    assert make(TREE).answer(examples(())[0], [logits])["labels"] == ["a", "a##x", "a##x##y"]


def test_tuning_looks_at_every_label(make):
    predictions = [[np.array([-1.0, 1.0, 0.0], "float32")], [np.array([-2.0, 2.0, 0.0], "float32")]]
    thresholds = make(FLAT).tune(examples((0,), (1,)), predictions)
    assert len(thresholds) == 3 and 0.12 < thresholds[0] < 0.27 and 0.73 < thresholds[1] < 0.88
    assert thresholds[2] == 0.5  # never occurs


def test_the_loss_is_binary_cross_entropy(make):
    import paddle

    logits = paddle.to_tensor([[0.0, 2.0, -1.0]])
    gold = np.array([[1.0, 0.0, 0.0]], "float32")
    p = 1 / (1 + np.exp(-logits.numpy()))
    expected = -(gold * np.log(p) + (1 - gold) * np.log(1 - p)).mean()
    assert float(make(FLAT).loss(None, (logits,), {"labels": paddle.to_tensor(gold)})) == pytest.approx(expected)
