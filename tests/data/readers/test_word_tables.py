"""The tables of words that are remembered: right, and bounded."""

from __future__ import annotations

import pickle

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.text import encoder as text_encoder
from nlpctl.data.text import wordpiece
from nlpctl.data.text.tokenizers import FastTextEncoder, PaddleTextEncoder
from nlpctl.data.text.vocabulary import build_vocabulary, write_tokenizer

CORPUS = ["the hotel room was unbelievable 中文酒店", "the staff of the hotel 房间"] * 5


@pytest.fixture(scope="module", params=["bert", "ernie"])
def tokenizer(request, tmp_path_factory):
    vocabulary = build_vocabulary(CORPUS, 300, 1, True)
    return write_tokenizer(tmp_path_factory.mktemp(request.param), vocabulary, request.param, True)


def test_word_table_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(wordpiece, "MAX_WORDS", 10)
    table = wordpiece.WordTable(tokenizer.wordpiece_tokenizer)
    for number in range(1000):
        word = f"the{number}"
        assert table[word] == tokenizer.convert_tokens_to_ids(tokenizer.wordpiece_tokenizer.tokenize(word))
        assert len(table) <= 10
    before = len(table)
    assert table["x" * 101] == [tokenizer.unk_token_id]
    assert len(table) == before


def test_pieces_of_words_are_remembered_but_not_for_ever(tokenizer, monkeypatch):
    monkeypatch.setattr(text_encoder, "MAX_WORDS", 3)
    for encoder in (FastTextEncoder(tokenizer), PaddleTextEncoder(tokenizer)):
        words = ["hotel", "unbelievable", "", "\u200b", "hotel", "x" * 1000, "中", "hotel"]
        expected = [encoder._word(word) or [tokenizer.unk_token_id] for word in words]
        assert encoder.pieces(words) == expected == encoder.pieces(words)
        assert pickle.loads(pickle.dumps(encoder)).pieces(words) == expected
        assert 0 < len(encoder._pieces) <= 3 and "x" * 1000 not in encoder._pieces
