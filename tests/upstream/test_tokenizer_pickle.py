"""Fails when PaddleNLP's tokenizers can be pickled: then nlpctl/upstream/tokenizer_pickle.py can go."""

from __future__ import annotations

import pickle

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
from paddlenlp.transformers import BertTokenizer

from nlpctl.upstream.tokenizer_pickle import PickledTokenizer


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n", encoding="utf-8")
    return BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False)


def test_upstream_still_cannot(tokenizer):
    with pytest.raises(AttributeError, match="lambda"):
        pickle.dumps(tokenizer)


def test_workaround_gives_an_equal_tokenizer(tokenizer):
    tokenizer.add_tokens(["extra"])
    copy = pickle.loads(pickle.dumps(PickledTokenizer.pack(tokenizer))).unpack()
    assert type(copy) is BertTokenizer
    assert copy.do_lower_case is False
    assert copy.get_vocab() == tokenizer.get_vocab()
    assert copy("ab extra A")["input_ids"] == [2, 5, 6, 7, 1, 3]
