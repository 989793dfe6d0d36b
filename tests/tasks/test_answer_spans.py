"""From logits to answers: the best spans of a window, of several windows, and no answer."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.question_features import Window, window_ranges
from nlpctl.data.rows.question_rows import QuestionExample
from nlpctl.data.text.piece_spans import Pieces
from nlpctl.tasks.question_answering import AnswerCandidate, best_answers, probabilities, window_scores

ROW_START = 4  # [CLS] q q [SEP]
EXAMPLE = QuestionExample(None, "", "", None)


def context(length):
    """Pieces of one character with a space between: piece i is text[2 * i : 2 * i + 1]."""
    starts = 2 * np.arange(length, dtype=np.int32)
    return Pieces(np.arange(length, dtype=np.int32), np.stack([starts, starts + 1], axis=1))


def offsets(first, last):
    return 2 * first, 2 * last + 1


def scored(pieces, ranges, starts, ends, n_best=5, longest=50, null=(0.0, 0.0)):
    """WindowScores of windows that all see the same scores of the context's pieces; padding says nonsense."""
    made = []
    for begin, end in ranges:
        row = np.full((2, ROW_START + end - begin + 3), 99.0, np.float32)
        row[:, 0] = null
        row[0, ROW_START : ROW_START + end - begin] = starts[begin:end]
        row[1, ROW_START : ROW_START + end - begin] = ends[begin:end]
        window = Window(EXAMPLE, 0, np.zeros(2, np.int32), ROW_START, pieces, begin, end, None, None)
        made.append(window_scores(window, *row, n_best, longest))
    return made


def all_answers(starts, ends, longest, ranges):
    """Every (score, span) by its definition, the slow way."""
    count = len(starts)
    pairs = ((i, j) for i in range(count) for j in range(i, min(i + longest, count)))
    return sorted(((-float(starts[i] + ends[j]), offsets(i, j)) for i, j in pairs))


@pytest.mark.parametrize("stride", [3, 9, 40])
def test_the_best_of_all_spans(stride):
    """Random scores, many sizes: the same answers as trying every pair, also across windows."""
    chance = np.random.default_rng(stride)
    for _ in range(60):
        length, longest = int(chance.integers(1, 40)), int(chance.integers(1, 12))
        pieces, ranges = context(length), list(window_ranges(length, 9, stride))
        starts, ends = chance.normal(size=(2, length)).astype(np.float32)
        windows = scored(pieces, ranges, starts, ends, n_best=200, longest=longest)
        answers = best_answers(windows, 200, longest, None)
        expected = all_answers(starts, ends, longest, ranges)[:200]
        assert [(one.start, one.end) for one in answers] == [place for _, place in expected]
        assert [one.score for one in answers] == pytest.approx([-score for score, _ in expected], abs=1e-5)


def test_few_candidates_are_kept_of_a_long_window():
    chance = np.random.default_rng(0)
    starts, ends = chance.normal(size=(2, 500)).astype(np.float32)
    (window,) = scored(context(500), [(0, 500)], starts, ends, n_best=5)
    arrays = [window.spans, window.span_scores, window.firsts, window.first_scores, window.lasts, window.last_scores]
    assert sum(array.nbytes for array in arrays) < 500
    best = all_answers(starts, ends, 50, None)[:5]
    assert [(one.start, one.end) for one in best_answers([window], 5, 50, None)] == [place for _, place in best]


def test_question_padding_and_special_tokens_are_never_answers():
    """They have the highest scores here."""
    windows = scored(context(3), [(0, 3)], np.zeros(3), np.zeros(3))
    assert {(one.start, one.end) for one in best_answers(windows, 50, 50, None)} <= {
        offsets(i, j) for i in range(3) for j in range(i, 3)
    }


def test_an_answer_across_windows_is_joined_once_no_window_holds_it():
    starts, ends = np.zeros(20), np.zeros(20)
    starts[8] = ends[11] = 5
    windows = scored(context(20), [(0, 10), (10, 20)], starts, ends)
    assert best_answers(windows, 1, 50, None) == [AnswerCandidate(*offsets(8, 11), 10.0)]
    assert best_answers(windows, 1, 3, None)[0].score == 5.0  # longer than max_answer_length
    # A window that holds it whole has seen both ends and thinks little of them: that counts.
    whole = scored(context(20), [(5, 15)], np.zeros(20), np.zeros(20))
    assert best_answers([windows[0], *whole, windows[1]], 1, 50, None)[0].score == 5.0


def test_overlapping_windows_give_an_answer_once_with_its_best_score():
    low, high = np.zeros(12), np.zeros(12)
    low[6], high[6] = 1, 3
    windows = [*scored(context(12), [(0, 8)], low, low), *scored(context(12), [(4, 12)], high, high)]
    answers = best_answers(windows, 50, 50, None)
    assert answers[0] == AnswerCandidate(*offsets(6, 6), 6.0)
    assert len({(one.start, one.end) for one in answers}) == len(answers)


@pytest.mark.parametrize(
    ("null", "threshold", "first"),
    [
        ((1.0, 1.5), 0.0, AnswerCandidate(None, None, 2.5)),
        ((1.0, 1.5), 0.6, AnswerCandidate(*offsets(1, 1), 2.0)),
        ((1.0, 1.0), 0.0, AnswerCandidate(*offsets(1, 1), 2.0)),  # above, not equal
        ((9.0, 9.0), None, AnswerCandidate(*offsets(1, 1), 2.0)),
        ((-9.0, -9.0), -30.0, AnswerCandidate(None, None, -18.0)),
    ],
)
def test_null_threshold(null, threshold, first):
    scores = np.array([0.0, 1.0, 0.0])
    windows = scored(context(3), [(0, 3)], scores, scores, null=null)
    answers = best_answers(windows, 9, 50, threshold)
    assert answers[0] == first
    assert sum(one.start is None for one in answers) == (threshold is not None)


def test_no_answer_counts_with_its_lowest_score_over_the_windows():
    """One window that sees an answer is enough, as in SQuAD 2.0."""
    scores = np.ones(4)
    sure = scored(context(4), [(0, 2)], scores, scores, null=(5, 5))
    unsure = scored(context(4), [(2, 4)], scores, scores, null=(0, 0))
    assert best_answers(sure, 5, 50, 0.0)[0].start is None
    assert best_answers([*sure, *unsure], 5, 50, 0.0)[0].start is not None


def test_n_best_is_kept_and_ranked():
    chance = random.Random(0)
    for _ in range(50):
        scores = np.array([chance.gauss(0, 1) for _ in range(9)])
        answers = best_answers(scored(context(9), [(0, 9)], scores, scores), 5, 50, 0.0)
        assert len(answers) == 5
        null = [one for one in answers if one.start is None]
        if answers[0] not in null:
            assert [one.score for one in answers] == sorted((one.score for one in answers), reverse=True)


def test_a_context_without_text_has_no_answer():
    windows = scored(context(0), [(0, 0)], np.zeros(0), np.zeros(0))
    assert best_answers(windows, 5, 50, None) == []
    assert best_answers(windows, 5, 50, 0.0) == [AnswerCandidate(None, None, 0.0)]
    assert probabilities([]) == []


def test_probabilities():
    shares = probabilities([AnswerCandidate(0, 1, 1000.0), AnswerCandidate(0, 2, 1000.0 - math.log(3))])
    assert shares == pytest.approx([0.75, 0.25])
