"""Windows over a context: what they cover, where the answer is marked, and what a batch holds."""

from __future__ import annotations

import random

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.collate import FAILURE_KEY
from nlpctl.data.batches.question_features import (
    WindowCollator,
    free_window,
    gold_pieces,
    question_windows,
    window_ranges,
)
from nlpctl.data.rows.question_rows import GoldAnswer, QuestionExample
from nlpctl.data.text.piece_spans import Pieces, read_pieces
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer
from nlpctl.errors import UserError

TEXT = "一二三四五六七八九十 34 foxes"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    vocabulary = build_vocabulary([TEXT, "什么", *["34"] * 9, *["foxes"] * 9], 200, 1, True)
    return build_encoder(make_tokenizer(vocabulary, "ernie", True))


def pieces(count):
    """A context of one-character pieces."""
    spans = np.stack([np.arange(count), np.arange(1, count + 1)], axis=1).astype(np.int32)
    return Pieces(np.arange(100, 100 + count, dtype=np.int32), spans)


def example(answers=()):
    return QuestionExample(None, "", "", tuple(answers))


def marked(context, answers, free, stride):
    windows = question_windows(example(answers), pieces(2), 4, context, free, stride)
    return [(window.begin, window.end, window.first, window.last) for window in windows]


def test_places_of_windows():
    """One behind the other; each begins with [CLS]."""
    windows = question_windows(example(), pieces(2), 4, pieces(11), 6, 3)
    assert [window.places.tolist() for window in windows] == [[0, *range(4, 10)], [0, *range(4, 10)], [0, *range(4, 9)]]
    assert [window.earlier for window in windows] == [0, 7, 14]


@pytest.mark.parametrize(
    ("length", "free", "stride", "expected"),
    [
        (10, 10, 4, [(0, 10)]),
        (11, 10, 4, [(0, 10), (4, 11)]),
        (20, 10, 4, [(0, 10), (4, 14), (8, 18), (12, 20)]),
        (20, 10, 10, [(0, 10), (10, 20)]),
        (20, 10, 99, [(0, 10), (10, 20)]),
        (3, 1, 1, [(0, 1), (1, 2), (2, 3)]),
        (0, 10, 4, [(0, 0)]),
    ],
)
def test_ranges(length, free, stride, expected):
    """The window moves on by the stride: PaddleNLP's meaning, not Hugging Face's overlap."""
    assert list(window_ranges(length, free, stride)) == expected


def test_ranges_cover_everything_and_end():
    chance = random.Random(0)
    for _ in range(500):
        length, free, stride = chance.randint(1, 60), chance.randint(1, 20), chance.randint(1, 25)
        ranges = list(window_ranges(length, free, stride))
        assert {i for begin, end in ranges for i in range(begin, end)} == set(range(length))
        assert all(end - begin <= free for begin, end in ranges) and ranges[-1][1] == length
        assert [begin for begin, _ in ranges] == sorted({begin for begin, _ in ranges})


def test_the_answer_is_marked_in_every_window_that_holds_it_whole():
    answer = GoldAnswer("xyz", 8)
    assert marked(pieces(20), [answer], 10, 4) == [
        (0, 10, None, None), (4, 14, 8, 10), (8, 18, 8, 10), (12, 20, None, None)
    ]  # fmt: skip
    assert marked(pieces(20), [], 10, 10) == [(0, 10, None, None), (10, 20, None, None)]


def test_an_answer_that_fits_no_window_is_marked_in_parts():
    assert marked(pieces(20), [GoldAnswer("wxyz", 8)], 10, 10) == [(0, 10, 8, None), (10, 20, None, 11)]
    long = GoldAnswer("a" * 20, 5)
    assert marked(pieces(30), [long], 10, 10) == [(0, 10, 5, None), (10, 20, None, None), (20, 30, None, 24)]


def test_the_first_answer_on_piece_boundaries_is_learned(encoder):
    context = read_pieces(TEXT, encoder)
    ten, number = GoldAnswer("十", 9), GoldAnswer("34", 11)
    inside = GoldAnswer("4", 12)  # "34" is one piece
    assert encoder.forms(context.ids)[10] == "34"
    assert gold_pieces(context, [ten, number]) == (9, 9)
    assert gold_pieces(context, [inside, number]) == (10, 10)
    assert gold_pieces(context, [inside, ten]) == (9, 9)
    assert gold_pieces(context, [inside]) == (10, 10)  # what it touches
    assert gold_pieces(context, [GoldAnswer("own words", None), ten]) == (9, 9)
    assert gold_pieces(context, [GoldAnswer("own words", None)]) == (None, None)
    assert gold_pieces(context, []) == (None, None)


def test_a_question_that_fills_the_window_is_told(encoder):
    question = read_pieces("什么" * 5, encoder)
    assert free_window(encoder, len(question), 14, "什么" * 5) == 1
    with pytest.raises(UserError, match=r"the question '(什么){5}' has 10 tokens .* in 13: 0 of at least 1") as caught:
        free_window(encoder, len(question), 13, "什么" * 5)
    (problem,) = caught.value.problems
    assert problem.where == "data.max_seq_length" and "set it to 14 at the very least" in problem.hint


def test_a_question_leaves_a_sixteenth_of_the_window(encoder):
    """One that left a place or two made a window of 384 tokens for each token of its context: gigabytes for 50 kB."""
    question = read_pieces("么" * 357, encoder)
    assert free_window(encoder, len(question), 384, "么" * 357) == 24
    with pytest.raises(UserError, match=r"384: 23 of at least 24"):
        free_window(encoder, len(question) + 1, 384, "么" * 358)


def test_batches(encoder):
    """Labels are places of the row: the pieces that they point at are the answer's."""
    text, question = "一二三四五六七八九十", read_pieces("什么", encoder)
    context = read_pieces(text, encoder)
    _, row_start = encoder.starts(len(question), pair=True)
    windows = question_windows(example([GoldAnswer("四五", 3)]), question, row_start, context, 6, 3)
    batch = WindowCollator(encoder, 11, with_labels=True)(windows)
    assert batch["input_ids"].shape == (3, 11)
    assert batch["input_ids"].dtype == batch["start_positions"].dtype == np.int64
    rows = [encoder.forms(row) for row in batch["input_ids"]]
    assert rows[0] == ["[CLS]", "什", "么", "[SEP]", *"一二三四五六", "[SEP]"]
    assert rows[2] == ["[CLS]", "什", "么", "[SEP]", *"七八九十", "[SEP]", "[PAD]", "[PAD]"]
    assert [row[i] for row, i in zip(rows, batch["start_positions"], strict=True)] == ["四", "四", "[CLS]"]
    assert [row[i] for row, i in zip(rows, batch["end_positions"], strict=True)] == ["五", "五", "[CLS]"]
    allowed = [[rows[i][j] for j in np.flatnonzero(batch["places"][i])] for i in range(3)]
    assert allowed == [["[CLS]", *"一二三四五六"], ["[CLS]", *"四五六七八九"], ["[CLS]", *"七八九十"]]
    assert batch["token_type_ids"][0].tolist() == [0] * 4 + [1] * 7
    unlabelled = WindowCollator(encoder, 11, with_labels=False)(windows)
    assert unlabelled.keys() == {"input_ids", "token_type_ids"}


def test_a_failure_travels_in_the_batch(encoder):
    assert FAILURE_KEY in WindowCollator(encoder, 11, with_labels=True)([None])
