"""The tables of words that are remembered: right, and bounded."""

from __future__ import annotations

import pickle

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.text import encoder as text_encoder
from nlpctl.data.text.tokenizers import PaddleTextEncoder, build_encoder
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer
from tests.helpers.paddle_tokenizer import paddle_tokenizer

CORPUS = ["the hotel room was unbelievable 中文酒店", "the staff of the hotel 房间"] * 5


@pytest.fixture(scope="module", params=["bert", "ernie"])
def tokenizer(request):
    vocabulary = build_vocabulary(CORPUS, 300, 1, True)
    return make_tokenizer(vocabulary, request.param, True)


def test_pieces_of_words_are_remembered_but_not_for_ever(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(text_encoder, "MAX_WORDS", 3)
    for encoder in (build_encoder(tokenizer), PaddleTextEncoder(paddle_tokenizer(tokenizer, tmp_path))):
        words = ["hotel", "unbelievable", "", "\u200b", "hotel", "x" * 1000, "中", "hotel"]
        expected = [encoder._word(word) or [tokenizer.unk_token_id] for word in words]
        assert encoder.pieces(words) == expected == encoder.pieces(words)
        assert pickle.loads(pickle.dumps(encoder)).pieces(words) == expected
        assert 0 < len(encoder._pieces) <= 3 and "x" * 1000 not in encoder._pieces
