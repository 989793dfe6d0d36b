"""Added words stay whole where text is cut by rules other than the tokenizer's."""

from __future__ import annotations

import random

import pytest

from nlpctl.config.schema import ScratchSection
from nlpctl.data.text.masking import CorpusTokens, WholeWords
from nlpctl.data.text.piece_spans import read_pieces
from nlpctl.data.text.tokenizers import AddedWords, build_encoder
from nlpctl.data.text.word_spans import word_spans
from nlpctl.models.add_tokens import add_tokens
from nlpctl.models.scratch import make_vocabulary

ADDED = ["新冠肺炎", "新冠", "长江大桥", "New York", "covid-19", "桥上"]
TEXTS = [
    "新冠肺炎在New York，新冠也在。",
    "武汉长江大桥上的新 冠",
    "COVID-19 和covid-190 new  york",
    "长江大桥",
    "x新冠y新冠肺炎新冠肺",
    "没有",
    "",
]


@pytest.fixture(scope="module")
def encoder():
    text = "武汉的在也 和没有 x y 0 new york covid - 19 新 冠 肺 炎 长 江 大 桥 上 ， 。"
    _, _, tokenizer = make_vocabulary(ScratchSection(min_frequency=1), lambda: [text])
    return build_encoder(add_tokens(tokenizer, ADDED).tokenizer)


class Words:
    """A tokenizer that has added words."""

    do_lower_case = False

    def __init__(self, *words):
        self.words = words

    def get_added_vocab(self):
        return dict.fromkeys(self.words, 0)


def test_units_become_one_and_are_divided():
    added = AddedWords(Words("cd e", "g"))
    text = "abcd efghg"
    assert added.keep_whole(text, [[(0, 2)], [(2, 3), (3, 4)], [(5, 10)]]) == [
        [(0, 2)],
        [(2, 6), (6, 7), (7, 8), (8, 9), (9, 10)],  # one word: "cd e" reaches into the last
    ]
    assert added.keep_whole(text, [[(0, 4)], [(5, 7)], [(7, 10)]]) == [
        [(0, 2), (2, 6), (6, 7)],
        [(7, 8), (8, 9), (9, 10)],
    ]
    assert AddedWords(Words()).keep_whole(text, [[(0, 4)], [(5, 10)]]) == [[(0, 4)], [(5, 10)]]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_those_of_the_whole_text(encoder, text):
    pieces = read_pieces(text, encoder)
    assert pieces.ids.tolist() == encoder.pieces([text])[0] if text else len(pieces) == 0
    for piece, (start, end) in zip(pieces.ids.tolist(), pieces.spans.tolist(), strict=True):
        (form,) = encoder.forms([piece])
        assert form == "[UNK]" or text[start:end].lower() in (form, form.removeprefix("##")) or end - start > len(form)


@pytest.mark.parametrize("text", TEXTS)
def test_hidden_words_are_made_of_the_same_tokens(encoder, text):
    windows = CorpusTokens(encoder, WholeWords(None), 100).windows(text)
    ids = [i for window in windows for i in window.ids.tolist()]
    assert ids == (encoder.pieces([text])[0] if text else [])


def test_an_added_word_belongs_to_one_hidden_word(encoder):
    text = "武汉长江大桥上的新冠肺炎"
    (window,) = CorpusTokens(encoder, WholeWords(None), 100).windows(text)
    forms = encoder.forms(window.ids.tolist())
    assert "长江大桥" in forms and "新冠肺炎" in forms
    assert sorted(window.words.tolist()) == window.words.tolist()


def test_nothing_is_lost_or_doubled_in_random_text(encoder):
    draw = random.Random(3)
    for _ in range(200):
        text = "".join(draw.choices(["新", "冠", "肺炎", "长江", "大桥", "上", "New ", "York", " ", "x"], k=12))
        assert read_pieces(text, encoder).ids.tolist() == encoder.pieces([text])[0]
        units = [[span] for span in word_spans(text)]
        kept = [unit for word in AddedWords(encoder.tokenizer).keep_whole(text, units) for unit in word]
        covered = [i for start, end in kept for i in range(start, end) if not text[i].isspace()]
        assert covered == [i for (span,) in units for i in range(*span)]
