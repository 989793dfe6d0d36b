"""Decision thresholds: the search finds what trying everything finds, and scores are scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from nlpctl.tasks import sequence_classification
from nlpctl.tasks.sequence_classification import best_thresholds, chosen_labels, counted_score, label_counts


def rows(count: int, labels: int, seed: int, rare: float = 0.15):
    """Probabilities of a classifier that leans to label 0, and the true labels."""
    random = np.random.default_rng(seed)
    gold = np.where(random.random(count) < rare, random.integers(1, labels, count), 0)
    logits = random.normal(size=(count, labels)) + np.eye(labels)[gold] * 1.2
    logits[:, 0] += 1.5
    shifted = np.exp(logits)
    return shifted / shifted.sum(1, keepdims=True), gold


def score(gold, metric, given, labels):
    return float(counted_score(label_counts(gold, given, labels), metric))


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed):
    probabilities, gold = rows(200, 3, seed)
    predicted = probabilities.argmax(1)
    assert score(gold, "accuracy", predicted, 3) == pytest.approx(accuracy_score(gold, predicted))
    for metric in ("macro", "weighted"):
        expected = f1_score(gold, predicted, average=metric, labels=range(4), zero_division=0)
        assert score(gold, f"{metric}_f1", predicted, 4) == pytest.approx(expected)  # label 3 never occurs
    two, gold = rows(200, 2, seed)
    assert score(gold, "f1", two.argmax(1), 2) == pytest.approx(f1_score(gold, two.argmax(1)))


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "weighted_f1", "f1"])
def test_two_labels_get_the_best_cut_there_is(metric):
    probabilities, gold = rows(300, 2, seed=7)
    found = best_thresholds(probabilities, gold, metric)
    reached = score(gold, metric, chosen_labels(probabilities, found), 2)
    cuts = np.linspace(0.001, 0.999, 2000)
    assert reached >= max(score(gold, metric, (probabilities[:, 1] >= cut).astype(int), 2) for cut in cuts)
    assert sum(found) == pytest.approx(1) and reached >= score(gold, metric, probabilities.argmax(1), 2)


def test_the_search_does_not_score_the_rows_cut_by_cut(monkeypatch):
    """It runs at every evaluation, so its time must not grow with the square of the rows."""
    calls = []
    monkeypatch.setattr(
        sequence_classification, "counted_score", lambda *given: calls.append(0) or counted_score(*given)
    )
    monkeypatch.setattr(sequence_classification, "label_counts", lambda *given: calls.append(0) or label_counts(*given))
    best_thresholds(*rows(500, 2, seed=1), "f1")
    assert len(calls) == 1


def test_a_threshold_is_a_probability():
    probabilities = np.array([[0.75, 0.25], [0.65, 0.35], [0.1, 0.9]])
    assert chosen_labels(probabilities, (0.7, 0.3)).tolist() == [0, 1, 1]
    assert chosen_labels(probabilities, None).tolist() == [0, 0, 1]


def test_a_cut_between_numbers_that_are_next_to_each_other():
    ones = np.array([np.nextafter(np.float32(1), np.float32(0)), 1, 1], "float32")
    probabilities = np.stack([1 - ones, ones], 1)
    gold = np.array([0, 1, 1])
    thresholds = best_thresholds(probabilities, gold, "accuracy")
    assert all(threshold > 0 for threshold in thresholds)
    assert chosen_labels(probabilities, thresholds).tolist() == gold.tolist()


def test_a_perfect_classifier_keeps_the_middle():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7]])
    assert best_thresholds(probabilities, np.array([0, 0, 1, 1]), "f1") == (0.5, 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_more_labels_get_better_never_worse(seed):
    probabilities, gold = rows(400, 4, seed)
    plain = score(gold, "macro_f1", probabilities.argmax(1), 4)
    found = best_thresholds(probabilities, gold, "macro_f1")
    # the leaning to label 0 is undone
    assert score(gold, "macro_f1", chosen_labels(probabilities, found), 4) > plain + 0.01
    assert len(found) == 4 and sum(found) == pytest.approx(1)
