"""Whole words and what is hidden of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from nlpctl.data.text.whole_words import NO_WORD, WholeWords, mask_words
from nlpctl.errors import UserError


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
