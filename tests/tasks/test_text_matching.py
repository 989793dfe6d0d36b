"""Text matching: scores of the matches, and answers with a probability."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.tasks import task_info
from nlpctl.data.rows.text_rows import TextExample


def examples(*labels):
    return [TextExample("a", "b", label) for label in labels]


def logits(*scores):
    """Predictions whose second probability is 1 / (1 + exp(-score))."""
    return [[np.array([0.0, score], "float32")] for score in scores]


@pytest.fixture
def task(make_task_of):
    return make_task_of("text_matching", ("0", "1"))


def test_scores_by_hand(task):
    report = task.report(examples(1, 1, 0, 0, 0), logits(2.0, -1.0, 1.0, -2.0, -3.0))
    assert report["rows"] == 5 and report["accuracy"] == 0.6
    assert report["f1"] == pytest.approx(0.5) == report["labels"]["1"]["f1"]
    assert report["auc"] == pytest.approx(5 / 6)  # one of six (match, no match) pairs is the wrong way round
    assert set(task_info(task.name).metrics) - {"loss"} <= set(report)
    json.dumps(report)


def test_auc_says_nothing_where_there_is_one_label(task):
    assert task.report(examples(1, 1), logits(1.0, 2.0))["auc"] == 0.5


def test_answers(task):
    assert task.answer(examples(1)[0], logits(2.0)[0]) == {"label": "1", "score": 0.880797}
    assert task.answer(examples(1)[0], logits(-2.0)[0]) == {"label": "0", "score": 0.119203}


def test_the_score_is_that_of_a_match_whatever_it_is_called(make_task_of):
    named = make_task_of("text_matching", ("different", "same"))
    assert named.answer(examples(0)[0], logits(-2.0)[0]) == {"label": "different", "score": 0.119203}
