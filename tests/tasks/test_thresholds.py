"""Decision thresholds: the search finds what trying everything finds, and scores are scikit-learn's."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from nlpctl.tasks.scores import label_score
from nlpctl.tasks.thresholds import best_thresholds, chosen_labels


def rows(count: int, labels: int, seed: int, rare: float = 0.15):
    """Probabilities of a classifier that leans to label 0, and the true labels."""
    random = np.random.default_rng(seed)
    gold = np.where(random.random(count) < rare, random.integers(1, labels, count), 0)
    logits = random.normal(size=(count, labels)) + np.eye(labels)[gold] * 1.2
    logits[:, 0] += 1.5
    shifted = np.exp(logits)
    return shifted / shifted.sum(1, keepdims=True), gold


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed):
    probabilities, gold = rows(200, 3, seed)
    predicted = probabilities.argmax(1)
    assert label_score(gold, "accuracy", predicted) == pytest.approx(accuracy_score(gold, predicted))
    for metric in ("macro", "weighted"):
        expected = f1_score(gold, predicted, average=metric, labels=range(3), zero_division=0)
        assert label_score(gold, f"{metric}_f1", predicted) == pytest.approx(expected)
    two, gold = rows(200, 2, seed)
    assert label_score(gold, "f1", two.argmax(1)) == pytest.approx(f1_score(gold, two.argmax(1)))


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "f1"])
def test_two_labels_get_the_best_cut_there_is(metric):
    probabilities, gold = rows(300, 2, seed=7)
    score = functools.partial(label_score, gold, metric)
    thresholds = best_thresholds(probabilities, score)
    reached = score(chosen_labels(probabilities, thresholds))
    cuts = np.linspace(0.001, 0.999, 2000)
    assert reached >= max(score((probabilities[:, 1] >= cut).astype(int)) for cut in cuts)
    assert sum(thresholds) == pytest.approx(1) and reached >= score(probabilities.argmax(1))


def test_a_threshold_is_a_probability():
    probabilities = np.array([[0.75, 0.25], [0.65, 0.35], [0.1, 0.9]])
    assert chosen_labels(probabilities, (0.7, 0.3)).tolist() == [0, 1, 1]
    assert chosen_labels(probabilities, None).tolist() == [0, 0, 1]


def test_a_perfect_classifier_keeps_the_middle():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7]])
    assert best_thresholds(probabilities, functools.partial(label_score, np.array([0, 0, 1, 1]), "f1")) == (0.5, 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_more_labels_get_better_never_worse(seed):
    probabilities, gold = rows(400, 4, seed)
    score = functools.partial(label_score, gold, "macro_f1")
    plain = score(probabilities.argmax(1))
    thresholds = best_thresholds(probabilities, score)
    assert score(chosen_labels(probabilities, thresholds)) > plain + 0.01  # the leaning to label 0 is undone
    assert len(thresholds) == 4 and sum(thresholds) == pytest.approx(1)
