"""Scores computed by hand, and answers in words."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.tasks import sequence_classification
from nlpctl.tasks.base import make_task
from nlpctl.tasks.sequence_classification import classification_report, softmax

NAMES = ("neg", "neutral", "pos", "never")


def test_scores_by_hand():
    gold = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2])
    predicted = np.array([0, 0, 0, 1, 1, 2, 2, 2, 0, 2])
    report = classification_report(gold, predicted, NAMES)
    assert report["rows"] == 10 and report["accuracy"] == 0.7 == pytest.approx(report["micro_f1"])
    assert report["confusion"] == [[3, 1, 0, 0], [0, 1, 1, 0], [1, 0, 3, 0], [0, 0, 0, 0]]
    assert list(report["labels"]) == list(NAMES)
    assert report["labels"]["neg"] == {"precision": 0.75, "recall": 0.75, "f1": 0.75, "support": 4}
    assert report["labels"]["neutral"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}
    assert report["labels"]["never"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert report["macro_f1"] == pytest.approx((0.75 + 0.5 + 0.75 + 0) / 4)
    assert report["weighted_f1"] == pytest.approx((4 * 0.75 + 2 * 0.5 + 4 * 0.75) / 10)
    json.dumps(report)  # no NumPy types


def test_many_labels_have_no_table_of_all_pairs():
    """That of 10,000 labels would have 100 million cells."""
    names = [f"label {i}" for i in range(10_000)]
    gold = np.arange(10_000)
    predicted = np.where(gold < 3, 7, gold)
    gold, predicted = np.append(gold, [1, 1]), np.append(predicted, [7, 7])
    report = classification_report(gold, predicted, names)
    assert "confusion" not in report and len(json.dumps(report)) < 1_500_000
    expected = [["label 1", "label 7", 3], ["label 0", "label 7", 1], ["label 2", "label 7", 1]]
    assert report["confusions"] == expected


@pytest.mark.parametrize("thresholds", [None, (0.2, 0.8)])
def test_probabilities_of_parts_are_those_of_all_rows(monkeypatch, thresholds):
    """Confidence and mistakes are computed a part of the rows at a time, for the memory."""
    recipe, chance = load_recipe("quickstart"), np.random.default_rng(3)
    examples = [TextExample(f"text {i}", None, int(chance.integers(2))) for i in range(10)]
    predictions = [[chance.normal(size=2).astype("float32")] for _ in examples]
    found = []
    for rows in (1024, 3):
        monkeypatch.setattr(sequence_classification, "_AT_ONCE", rows)
        task = make_task(recipe, LabelSet(("neg", "pos")), thresholds)
        judged = task.confidences(examples, predictions)
        found.append((judged.confidence.tolist(), judged.right.tolist(), task.mistakes(examples, predictions)))
    assert found[0] == found[1]
    shares = softmax(np.stack([logits for (logits,) in predictions]))
    chosen = shares.argmax(-1) if thresholds is None else (shares / thresholds).argmax(-1)
    assert found[0][0] == shares[np.arange(10), chosen].tolist()


@pytest.fixture
def task():
    return make_task(load_recipe("quickstart"), LabelSet(("neg", "pos")))


def examples(*labels):
    return [TextExample("text", None, label) for label in labels]


def test_report_counts_the_highest_logits(task):
    predictions = [[np.array([2.0, 1.0])], [np.array([0.0, 3.0])], [np.array([1.0, 0.0])]]
    report = task.report(examples(0, 1, 1), predictions)
    assert report["accuracy"] == pytest.approx(2 / 3) and report["rows"] == 3


def test_what_a_recipe_may_name_as_the_best_metric_is_what_evaluation_gives(task):
    report = task.report(examples(0, 1), [[row] for row in np.eye(2, dtype="float32")])
    assert set(task_info(task.name).metrics) - {"loss"} < set(report)


def test_answers(task):
    (example,) = examples(None)
    low, high = (task.answer(example, [np.array(logits, "float32")]) for logits in ([1.0, 0.0], [-1000.0, 1000.0]))
    assert low == {"label": "neg", "probabilities": {"neg": 0.731059, "pos": 0.268941}}
    assert high == {"label": "pos", "probabilities": {"neg": 0.0, "pos": 1.0}}


def test_softmax():
    logits = np.random.default_rng(0).normal(size=(5, 4)).astype("float32") * 30
    exact = np.exp(logits.astype("float64"))
    np.testing.assert_allclose(softmax(logits), exact / exact.sum(-1, keepdims=True), rtol=1e-12)
    assert softmax(np.array([[1e4, -1e4]])).tolist() == [[1.0, 0.0]]


def test_loss_is_the_mean_over_the_batch(task):
    import paddle

    logits, labels = paddle.to_tensor([[1.0, 0.0], [0.0, 2.0]]), paddle.to_tensor([0, 0])
    expected = (np.log1p(np.exp(-1.0)) + np.log1p(np.exp(2.0))) / 2
    loss = task.loss(None, (logits,), {"labels": labels})
    assert loss.shape == [] and float(loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["sequence_classification", "text_matching", "multi_label_classification"])
def test_many_answers_are_those_of_each_alone(name):
    """Also to the last digit, with and without thresholds, and ready for JSON."""
    recipe = dataclasses.replace(load_recipe("quickstart"), task=name)
    logits = np.random.default_rng(3).normal(0, 3, (5000, 2)).astype("float32")
    rows, predictions = examples(*[None] * len(logits)), [[row] for row in logits]
    for thresholds in (None, (0.3, 0.7)):
        task = make_task(recipe, LabelSet(("neg", "pos")), thresholds)
        answers = task.answers(rows, predictions)
        assert answers == [task.answer(row, parts) for row, parts in zip(rows, predictions, strict=True)]
        assert json.loads(json.dumps(answers)) == answers
        assert len({json.dumps(answer) for answer in answers}) > 4000
        assert task.answers([], []) == []
