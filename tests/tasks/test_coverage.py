"""How much a least confidence keeps, and which one reaches a precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nlpctl.data.rows.multi_label_rows import MultiLabelExample
from nlpctl.runs.comparison import format_target
from nlpctl.tasks.confidence import Confidences, coverage, ece
from nlpctl.tasks.coverage import Target, coverage_at, least_confidence
from nlpctl.tasks.multi_label_classification import consistent

RANDOM = np.random.default_rng(7)


def judged(confidence, right):
    return Confidences("rows", np.asarray(confidence, float), np.asarray(right, bool), np.arange(len(right)))


def test_the_least_confidence_for_a_precision():
    confidence = np.linspace(0, 1, 1001)
    found = judged(confidence, RANDOM.random(1001) < confidence)
    least = least_confidence(found, 0.9)
    assert found.right[confidence >= least].mean() >= 0.9
    assert 0.7 < least < 0.85  # from c on, (1 + c) / 2 is right
    assert least_confidence(found, 1.01) is None
    tied = judged([0.9] * 30 + [0.8] * 30, [1] * 30 + [1] * 15 + [0] * 15)
    assert least_confidence(tied, 0.9) == 0.9  # none of the equal ones is left out
    kept = coverage_at(found, least, None)
    assert kept.coverage == pytest.approx(float((confidence >= least).mean()))
    for value, (low, high) in ((kept.coverage, kept.coverage_interval), (kept.precision, kept.precision_interval)):
        assert low < value < high < 1 and high - low < 0.1


def test_a_precision_without_a_mistake_is_as_sure_as_what_was_kept():
    """25 of 25 right, of 1,000 rows: Clopper and Pearson's 0.863, not the 0.996 of 1,000."""
    kept = coverage_at(judged([0.99] * 25 + [0.5] * 975, [1] * 1000), 0.9, None)
    assert kept.precision == 1.0 and kept.precision_interval == (pytest.approx(0.025 ** (1 / 25)), 1.0)
    by_group = coverage_at(judged([0.99] * 25 + [0.5] * 975, [1] * 1000), 0.9, np.arange(1000) // 5)
    assert by_group.precision_interval == (pytest.approx(0.025 ** (1 / 5)), 1.0)


def test_the_least_confidence_is_one_that_answers_have():
    found = judged([0.9999704, 0.9999696] * 50 + [0.999969] * 100, [1] * 100 + [0] * 100)
    least = least_confidence(found, 0.95)
    assert least == 0.99997  # both kinds of answers say so
    kept = coverage_at(found, least, None)
    assert (kept.coverage, kept.precision) == (0.5, 1.0)
    told = format_target(Target(0.95, least, {"dev": kept}))
    assert told.startswith("--min-confidence 0.99997 gives 95.0% right answers on dev")


def test_the_table_of_coverage_counts_what_is_withheld(make_task_of):
    """Of each least confidence: as many labels as predict leaves, as many of them right; the ECE is of each label's
    own."""
    names = ("a", "a##b", "a##b##c", "d")
    task = make_task_of("multi_label_classification", names)
    logits = RANDOM.normal(size=(300, 4)) * 3 + [0.5, 0.5, 1.5, 0]
    gold = consistent(RANDOM.random((300, 4)) < 1 / (1 + np.exp(-logits)), names)
    examples = [MultiLabelExample(f"text {i}", None, tuple(np.flatnonzero(row))) for i, row in enumerate(gold)]
    predictions = [[row] for row in logits]
    found, answers = task.confidences(examples, predictions), task.answers(examples, predictions)

    def left(least):
        return [(row, name) for row, answer in enumerate(answers) for name in task.abstain(answer, least)["labels"]]

    least = least_confidence(found, 0.9)
    for level, told in [(each["min_confidence"], each) for each in coverage(found)] + [(least, None)]:
        kept = left(level)
        right = [bool(gold[row, names.index(name)]) for row, name in kept]
        told = vars(coverage_at(found, level, None)) if told is None else told
        assert told["coverage"] == pytest.approx(len(kept) / len(left(0)))
        assert told["precision"] == pytest.approx(np.mean(right))
    assert (found.kept_up_to > found.confidence).any() and ece(found) == ece(replace(found, kept_up_to=None))
