"""Texts as windows of tokens: nothing lost, words known, masks where they stand."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from paddlenlp.transformers import RobertaBPETokenizer

from nlpctl.data.text.corpus_tokens import CorpusTokens
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.vocabulary import build_vocabulary, write_tokenizer
from nlpctl.data.text.whole_words import NO_WORD, WholeWords
from nlpctl.data.text.word_spans import word_spans

TEXTS = ["这家酒店的房间很干净，服务态度也非常好。", "the room was unbelievably clean , and the staff were great"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    return build_encoder(write_tokenizer(folder, build_vocabulary(TEXTS, 90, 1, True), "bert", True), "auto")


def words_of(window, tokenizer):
    tokens = tokenizer.convert_ids_to_tokens(window.ids.tolist())
    grouped = itertools.groupby(zip(window.words, tokens, strict=True), key=lambda pair: pair[0])
    return ["|".join(token for _, token in word) for _, word in grouped]


def test_pieces_of_a_word_share_its_number(bert):
    text = "房间很干净, the staff were unbelievably great"
    (window,) = CorpusTokens(bert, WholeWords(None), 100).windows(text)
    words = words_of(window, bert.tokenizer)
    assert words[:4] == ["房|间", "很", "干|净", ","]
    assert len(words) == 9 and any(word.count("|##") > 2 for word in words)  # unbelievably
    (window,) = CorpusTokens(bert, None, 100).windows(text)
    assert len(set(window.words.tolist())) == len(window.ids)


@pytest.mark.parametrize("whole", [WholeWords(None), None])
def test_the_ids_are_those_of_the_text(bert, whole, shared_data):
    """Tokenising word by word gives what tokenising the text gives, on 2,000 real sentences."""
    lines = (shared_data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:1001]
    lines += (shared_data / "chnsenticorp" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:1001]
    texts = [max(line.split("\t"), key=len) for line in lines]
    tokens = CorpusTokens(bert, whole, 100_000)
    for text, expected in zip(texts, bert.encode(texts, None, 100_000), strict=True):
        (window,) = tokens.windows(text)
        assert window.ids.tolist() == expected.input_ids[1:-1], text


def test_long_texts_are_cut_between_words_and_nothing_is_lost(bert):
    text = " ".join(TEXTS * 5)
    (whole,) = CorpusTokens(bert, WholeWords(None), 100_000).windows(text)
    for room in (7, 16, 33):
        windows = CorpusTokens(bert, WholeWords(None), room).windows(text)
        assert max(len(window.ids) for window in windows) <= room
        assert np.concatenate([window.ids for window in windows]).tolist() == whole.ids.tolist()
        longest = max(np.bincount(whole.words))
        if room >= longest:
            for left, right in itertools.pairwise(windows):
                assert left.words[-1] != right.words[0]
    assert len(CorpusTokens(bert, WholeWords(None), 3).windows("unbelievably")) > 1  # a word beyond the window
    assert CorpusTokens(bert, None, 8).windows("\u200b") == []


def test_every_mask_stands_in_one_window_with_text_around(bert):
    text = "房间[MASK]干净 " * 40 + "[MASK]"
    tokens = CorpusTokens(bert, WholeWords(None), 20)
    windows = tokens.around_masks(text)
    assert sum(len(window.masks) for window in windows) == 41
    for window in windows:
        assert len(window.ids) == 20
        assert all(window.ids[mask] == bert.tokenizer.mask_token_id for mask in window.masks)
        assert (window.words == NO_WORD).all()
    for window in windows[1:-1]:
        assert window.masks[0] >= 4 and window.masks[-1] < 16
    assert tokens.around_masks("没有") == []
    assert [window.masks for window in tokens.around_masks("[MASK]")] == [(0,)]


def test_what_only_looks_like_a_mask_is_none(bert):
    tokens = CorpusTokens(bert, None, 30)
    (window,) = tokens.around_masks("[ MASK ] [mask] [MA\u200bSK] [MASK] [CLS]")
    mask = bert.tokenizer.mask_token_id
    assert window.masks == tuple(np.flatnonzero(window.ids == mask)) and len(window.masks) == 1
    (window,) = tokens.windows("[MASK] in a text to be trained on is text")
    assert mask not in window.ids


def test_words_of_a_byte_pair_vocabulary_begin_with_a_blank(tmp_path):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "ab", "Ġ", "Ġab"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ ab\n", encoding="utf-8")
    encoder = build_encoder(
        RobertaBPETokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")), "auto"
    )
    (window,) = CorpusTokens(encoder, WholeWords(None), 10).windows("aba ab abb")
    assert window.ids.tolist() == encoder.encode(["aba ab abb"], None, 20)[0].input_ids[1:-1] == [7, 5, 9, 9, 6]
    assert window.words.tolist() == [0, 0, 1, 2, 2]
    (window,) = CorpusTokens(encoder, None, 10).around_masks("ab<mask> ab")
    assert window.ids.tolist() == [7, 4, 9] and window.masks == (1,)


def test_units_cover_all_that_is_not_blank():
    for text in TEXTS:
        covered = "".join(text[start:end] for start, end in word_spans(text))
        assert covered == "".join(text.split())
