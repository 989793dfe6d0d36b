"""Prediction without training: `--task NAME`, and task:NAME wherever a model is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FIRST = Path(__file__).with_name("lac_sentences.txt").read_text(encoding="utf-8").splitlines()[2]
WORDS = [tuple(pair.rsplit("/", 1)) for pair in FIRST.split(" ")]
TEXT = "".join(word for word, _ in WORDS)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def words_of(line: str) -> list[tuple[str, str]]:
    return [(word["text"], word["tag"]) for word in json.loads(line)["words"]]


@pytest.mark.slow
def test_lexical_analysis_without_training(work, cache, monkeypatch):
    """It is made once for a cache folder, by another process."""
    monkeypatch.setenv("PPNLP_HOME", str(cache))
    done = work.nlpctl("predict", "--task", "lexical_analysis", "-", stdin=f"{TEXT}\n")
    assert done.returncode == 0, done.stderr
    assert words_of(done.stdout) == WORDS
    assert "preparing python:jieba/lac_small/model_baseline" in done.stderr and "licence: MIT" in done.stderr
    (made,) = (cache / "nlpctl" / "ready").iterdir()

    (work / "sentence.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    monkeypatch.delenv("PPNLP_HOME")
    words = ("predict", "task:pos_tagging", "sentence.txt", "--threads", "1", "--cache_dir", cache)
    again = work.nlpctl(*words)
    assert again.stdout == done.stdout and "preparing" not in again.stderr
    assert [path.name for path in (cache / "nlpctl" / "ready").iterdir()] == [made.name]


def test_wrong_names(work, cache, monkeypatch):
    monkeypatch.setenv("PPNLP_HOME", str(cache))
    for words in (("--task", "lexical_analysys", "x.txt"), ("--task=sentiment", "x.txt"), ("x.txt", "--task")):
        done = work.nlpctl("predict", *words)
        assert done.returncode == 2 and "--task: " in done.stderr, done.stderr
        assert "lexical_analysis, word_segmentation, pos_tagging: Chinese words" in " ".join(done.stderr.split())
    done = work.nlpctl("train", "recipe.yaml", "--task", "lexical_analysis")
    assert done.returncode == 2 and "--task: there is no such flag" in done.stderr


@pytest.mark.slow
def test_a_model_that_must_be_downloaded(work, cache, monkeypatch):
    monkeypatch.setenv("PPNLP_HOME", str(cache))
    done = work.nlpctl("predict", "task:fill_mask_en", "train.tsv")
    assert done.returncode == 2 and "bert-base-uncased: cannot be downloaded" in done.stderr
    assert "fill the cache" in done.stderr and not (cache / "nlpctl" / "ready" / "fill_mask_en").exists()
