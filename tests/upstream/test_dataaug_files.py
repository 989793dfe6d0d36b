"""PaddleNLP's augmentation still wants files that it does not need; ours does without."""

from __future__ import annotations

import json
import random

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.upstream.dataaug_files import make_augmenter

WORDS = ["房间", "很", "干净", "，", "早餐", "也", "不错"]
TEXT = "".join(WORDS)


def cut(text):
    return WORDS if text == TEXT else [text]


def test_stock_augmenters_still_download(monkeypatch):
    """When this fails, upstream has mended it: make_augmenter can go."""
    from paddlenlp import dataaug
    from paddlenlp.dataaug import base_augment

    asked = []

    def download(url, folder, digest):
        asked.append(url.rpartition("/")[2])
        raise RuntimeError("no network")

    monkeypatch.setattr(base_augment, "get_path_from_url", download)
    monkeypatch.setattr(base_augment, "DATA_HOME", "/nonexistent")
    with pytest.raises(RuntimeError):
        dataaug.WordDelete()
    assert asked == ["stopwords.txt"]


@pytest.mark.parametrize("kind", ["swap", "delete"])
def test_without_any_file(kind):
    random.seed(1)
    (made,) = make_augmenter(kind, cut, None, 2, 0.1).augment(TEXT)
    assert made and all(text != TEXT for text in made)
    if kind == "swap":
        assert all(sorted(text) == sorted(TEXT) for text in made)
    else:
        assert all(len(text) < len(TEXT) for text in made)


def test_the_share_of_words_is_obeyed():
    random.seed(1)
    long = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"
    ((changed,),) = make_augmenter("swap", list, None, 1, 0.3).augment(long)
    assert sum(a != b for a, b in zip(changed, long, strict=True)) > 4


@pytest.mark.parametrize("kind", ["swap", "delete", "synonym"])
def test_the_share_of_a_long_text_too(kind, tmp_path):
    random.seed(1)
    long = [f"{chr(0x4E00 + i)}{chr(0x5000 + i)}" for i in range(200)]
    (tmp_path / "mine.json").write_text(json.dumps({word: ["换"] for word in long}), encoding="utf-8")
    ((changed,),) = make_augmenter(kind, lambda _: long, tmp_path / "mine.json", 1, 0.2).augment("".join(long))
    left = sum(word in changed for word in long)
    assert left == (200 if kind == "swap" else 160)
    if kind == "swap":
        assert sum(changed[2 * i : 2 * i + 2] != word for i, word in enumerate(long)) > 40  # 10 swaps move 20


@pytest.mark.parametrize("kind", ["synonym", "insert"])
def test_synonyms_of_ones_own(kind, tmp_path):
    random.seed(1)
    (tmp_path / "mine.json").write_text(json.dumps({"干净": ["整洁"]}), encoding="utf-8")
    ((changed,),) = make_augmenter(kind, cut, tmp_path / "mine.json", 1, 0.1).augment(TEXT)
    assert "整洁" in changed and ("干净" in changed) == (kind == "insert")
