"""Tokenizers whose own call takes too little."""

from __future__ import annotations

import pytest
from paddlenlp.transformers import BertTokenizer, DistilBertTokenizer, MPNetTokenizer

from nlpctl.data.text.tokenizers import PaddleTextEncoder
from nlpctl.upstream.tokenizer_call import call_of


def tokenizer(kind, tmp_path):
    words = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    return kind(str(tmp_path / "vocab.txt"))


@pytest.mark.parametrize("kind", [DistilBertTokenizer, MPNetTokenizer])
def test_texts_are_cut_all_the_same(kind, tmp_path):
    made = tokenizer(kind, tmp_path)
    assert call_of(made) is not made
    (found,) = PaddleTextEncoder(made).encode(["a b c a b c"], None, 5)
    assert made.convert_ids_to_tokens(found.input_ids)[1:-1] == ["a", "b", "c"] and len(found.input_ids) == 5


@pytest.mark.parametrize("kind", [DistilBertTokenizer, MPNetTokenizer])
def test_their_own_call_still_takes_too_little(kind, tmp_path):
    """Fails when PaddleNLP has mended it."""
    with pytest.raises(TypeError):
        tokenizer(kind, tmp_path)(["a"], None, max_length=5, truncation=True, verbose=False)


def test_others_use_their_own(tmp_path):
    made = tokenizer(BertTokenizer, tmp_path)
    assert call_of(made) is made
