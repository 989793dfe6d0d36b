"""Scores that say that a model is of no use."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.data.rows.tag_scheme import Span
from nlpctl.tasks.degenerate import degenerate_reason
from nlpctl.tasks.multi_label_classification import multi_label_report
from nlpctl.tasks.sequence_classification import classification_report
from nlpctl.tasks.token_classification import entity_report

NAMES = ("neg", "pos", "mixed")


def classified(gold: list[int], given: list[int]):
    return classification_report(np.array(gold), np.array(given), NAMES)


@pytest.mark.parametrize(
    ("gold", "given", "told"),
    [
        ([0] * 60 + [1] * 40, [0] * 100, "all 100 rows get the label 'neg', and 40 have another one"),
        ([0] * 7 + [1] * 5, [1] * 12, "all 12 rows get the label 'pos', and 7 have another one"),
        ([0] * 7 + [1] * 4, [0] * 11, None),  # so few may be chance
        ([0] * 7, [0] * 7, None),  # there is no other
        ([0] * 60 + [1] * 40, [0] * 99 + [1], None),
        ([0] * 3 + [1] * 3, [2] * 6, "micro_f1 is 0"),
    ],
)
def test_one_answer_to_every_row(gold, given, told):
    assert degenerate_reason("sequence_classification", classified(gold, given)) == told


def test_entities_of_which_none_is_found():
    gold = [[Span("PER", 0, 2)], []]
    assert degenerate_reason("token_classification", entity_report(gold, [[], [Span("LOC", 0, 1)]])) == "f1 is 0"
    assert degenerate_reason("token_classification", entity_report(gold, gold)) is None
    assert degenerate_reason("token_classification", entity_report([[], []], [[], []])) is None  # nothing is there


def test_labels_of_which_none_is_given():
    gold = np.array([[True, False], [False, True], [False, False]])
    report = multi_label_report(gold, gold & False, NAMES[:2])
    assert degenerate_reason("multi_label_classification", report) == "micro_f1 is 0"


def test_the_score_that_chose_the_model():
    report = {"rows": 9, "accuracy": 0.5, "f1": 0.0, "auc": 0.4}
    assert degenerate_reason("text_matching", report | {"f1": 0.1}, "f1") is None
    assert degenerate_reason("text_matching", report, "f1") == "f1 is 0"
    assert degenerate_reason("semantic_indexing", {"recall@1": 0.0, "mrr": 0.1}) is None
    assert degenerate_reason("semantic_indexing", {"recall@1": 0.0, "mrr": 0.0}) == "recall@1 is 0"
    assert degenerate_reason("question_answering", {"rows": 9, "em": 0.0, "f1": 0.1, "loss": 0.0}) is None
    report = {"perplexity": 9.0, "masked_accuracy": 0.0}
    assert degenerate_reason("masked_language_model", report) == "masked_accuracy is 0"
