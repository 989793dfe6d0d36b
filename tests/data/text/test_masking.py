"""Texts as windows of tokens: nothing lost, words known, masks where they stand."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
from paddlenlp.transformers import RobertaBPETokenizer

from nlpctl.data.text.masking import NO_WORD, CorpusTokens, WholeWords, mask_words
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer
from nlpctl.data.text.word_spans import word_spans
from nlpctl.errors import UserError

TEXTS = ["这家酒店的房间很干净，服务态度也非常好。", "the room was unbelievably clean , and the staff were great"]


@pytest.fixture(scope="module")
def bert():
    return build_encoder(make_tokenizer(build_vocabulary(TEXTS, 90, 1, True), "bert", True))


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
    assert not any(window.truncated for window in windows)


@pytest.mark.parametrize("text", ["{0} [MASK]", "[MASK] {0}", "[MASK] {0} [MASK]"])
def test_text_that_no_window_around_a_mask_has(text, bert):
    tokens = CorpusTokens(bert, None, 20)
    assert all(window.truncated for window in tokens.around_masks(text.format("干净" * 30)))
    assert not any(window.truncated for window in tokens.around_masks(text.format("干净" * 7)))


def test_a_window_has_few_masks_to_fill(bert):
    """A text of masks alone asked for scores of every word in every place of a batch at once: gigabytes."""
    windows = CorpusTokens(bert, None, 100).around_masks("[MASK]" * 90)
    assert [len(window.masks) for window in windows] == [16] * 5 + [10]
    assert len({len(window.ids) for window in windows}) == 1


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
    encoder = build_encoder(RobertaBPETokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    (window,) = CorpusTokens(encoder, WholeWords(None), 10).windows("aba ab abb")
    assert window.ids.tolist() == encoder.encode(["aba ab abb"], None, 20)[0].input_ids[1:-1] == [7, 5, 9, 9, 6]
    assert window.words.tolist() == [0, 0, 1, 2, 2]
    (window,) = CorpusTokens(encoder, None, 10).around_masks("ab<mask> ab")
    assert window.ids.tolist() == [7, 4, 9] and window.masks == (1,)


def test_units_cover_all_that_is_not_blank():
    for text in TEXTS:
        covered = "".join(text[start:end] for start, end in word_spans(text))
        assert covered == "".join(text.split())


def shown(words: WholeWords, text: str) -> list[str]:
    """The words as text, their units joined by a stroke."""
    return ["|".join(text[start:end] for start, end in word) for word in words.words(text)]


def test_chinese_words_are_jiebas_and_others_are_runs():
    text = " 我喜欢深度学习，don't WiFi太慢😀 state-of-the-art\u3000ｆｕｌｌ"
    assert shown(WholeWords(None), text) == [
        "我", "喜|欢", "深|度", "学|习", "，", "don", "'", "t", "WiFi", "太|慢", "😀",
        "state", "-", "of", "-", "the", "-", "art", "ｆｕｌｌ",
    ]  # fmt: skip


def test_words_of_the_dictionary_are_kept_whole(tmp_path):
    (tmp_path / "words.txt").write_text("深度学习\n\n5G网络\n深度学习\n", encoding="utf-8")
    words = WholeWords(tmp_path / "words.txt")
    assert words.kept_whole == ("深度学习", "5G网络")
    assert shown(words, "用5G网络做深度学习") == ["用", "5G|网|络", "做", "深|度|学|习"]
    assert shown(WholeWords(None), "用5G网络做深度学习") == ["用", "5G", "网|络", "做", "深|度", "学|习"]
    again = pickle.loads(pickle.dumps(words))
    assert shown(again, "深度学习") == ["深|度|学|习"]


def test_a_bad_dictionary_is_told_line_by_line(tmp_path):
    (tmp_path / "words.txt").write_bytes("好\n深度 学习\n".encode() + b"\xff\xfe\n")
    with pytest.raises(UserError) as caught:
        WholeWords(tmp_path / "words.txt")
    assert [problem.where.rsplit(":", 1)[1] for problem in caught.value.problems] == ["2", "3"]
    with pytest.raises(UserError, match="cannot read the dictionary"):
        WholeWords(tmp_path / "missing.txt")


IDS = np.arange(100, 140)
# Ten words of 1, 2, 3, ... tokens would not fit 40; these do: sizes 1 to 8, then special tokens at both ends.
WORDS = np.array([NO_WORD, *np.repeat(np.arange(8), np.arange(1, 9)), *[NO_WORD] * 3])
OTHERS = np.arange(1000, 2000)


def hide(seed: int, probability: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    return mask_words(IDS, WORDS, np.random.default_rng(seed), probability, 5, OTHERS)


def test_whole_words_are_hidden_and_never_special_tokens():
    sizes = set()
    for seed in range(200):
        hidden, positions = hide(seed)
        chosen = set(WORDS[positions])
        assert NO_WORD not in chosen
        assert sorted(positions) == sorted(np.flatnonzero(np.isin(WORDS, list(chosen))))  # all of a word or nothing
        assert 1 <= len(positions) <= round(36 * 0.3)
        kept = np.setdiff1d(np.arange(len(IDS)), positions)
        assert (hidden[kept] == IDS[kept]).all()
        sizes.add(len(positions))
    assert max(sizes) == round(36 * 0.3)


def test_eight_of_ten_are_masked_one_is_another_and_one_stays():
    fates = np.zeros(3)
    for seed in range(600):
        hidden, positions = hide(seed)
        masked, kept = hidden[positions] == 5, hidden[positions] == IDS[positions]
        assert np.isin(hidden[positions][~masked & ~kept], OTHERS).all()
        fates += masked.sum(), (~masked & ~kept).sum(), kept.sum()
    assert fates / fates.sum() == pytest.approx([0.8, 0.1, 0.1], abs=0.015)


def test_no_word_is_spared():
    counts = np.zeros(8)
    for seed in range(3000):
        counts[np.unique(WORDS[hide(seed, 0.22)[1]])] += 1
    assert counts.min() > 0  # not even the longest, which fills the share alone


def test_a_row_without_words_hides_nothing():
    hidden, positions = mask_words(IDS[:3], np.full(3, NO_WORD), np.random.default_rng(0), 0.15, 5, OTHERS)
    assert (hidden == IDS[:3]).all() and len(positions) == 0


def test_at_least_one_word_is_hidden():
    ids, words = np.array([1, 7, 8, 9, 2]), np.array([NO_WORD, 0, 0, 0, NO_WORD])
    _, positions = mask_words(ids, words, np.random.default_rng(0), 0.01, 5, OTHERS)
    assert positions.tolist() == [1, 2, 3]
