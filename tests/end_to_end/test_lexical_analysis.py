"""Lexical analysis through the command line: dictionaries, a CRF, a killed run, words with offsets, new labels."""

from __future__ import annotations

import json
import random
import signal

import numpy as np
import pytest

RECIPE = """\
task: lexical_analysis
model:
  from_scratch:
    architecture: bigru
    embedding_size: 16
    hidden_size: 16
    num_hidden_layers: 2
    dropout: 0.1
    dictionaries: lexical/dictionaries
  head: crf
optimizer: {groups: [{match: crf, learning_rate: 0.1}]}
data: {train: lexical/train.txt, dev: lexical/dev.txt, test: lexical/test.txt, max_seq_length: 24, doc_stride: 8}
training:
  output_dir: lexical/base
  learning_rate: 1e-2
  num_train_epochs: 6
  per_device_train_batch_size: 8
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: f1
runtime: {device: cpu}
"""
WORDS = {
    "r": ["我", "他们"],
    "v": ["喜欢", "看见", "去"],
    "n": ["苹果", "书", "火车站"],
    "LOC": ["北京", "上海市"],
    "TIME": ["今天"],
}
TAGS = [f"{kind}-{mark}" for kind in ("r", "v", "n", "LOC") for mark in "BI"] + ["O"]


def sentences(count: int, seed: int, kinds: str = "r v n v LOC") -> str:
    """Texts of one to four random sentences, by character; the full stops are no words."""
    chance, lines = random.Random(seed), []
    for _ in range(count):
        for _ in range(chance.randint(1, 4)):
            for kind in kinds.split():
                word = chance.choice(WORDS[kind])
                lines += [f"{character}\t{kind}-{'I' if i else 'B'}" for i, character in enumerate(word)]
            lines.append("。\tO")
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def lexical(work):
    """The folder of recipe and data, and the run of it."""
    folder = work / "lexical"
    dictionaries = folder / "dictionaries"
    dictionaries.mkdir(parents=True)
    for name, count, seed in (("train", 61, 1), ("dev", 40, 2), ("test", 30, 3)):
        (folder / f"{name}.txt").write_text(sentences(count, seed))
    characters = sorted({character for words in WORDS.values() for word in words for character in word})
    entries = [*characters, "。", "OOV"]
    (dictionaries / "word.dic").write_text("".join(f"{i}\t{entry}\n" for i, entry in enumerate(entries)))
    (dictionaries / "tag.dic").write_text("".join(f"{i}\t{tag}\n" for i, tag in enumerate(TAGS)))
    (dictionaries / "q2b.dic").write_text("｡\t。\n")
    (work / "lexical.yaml").write_text(RECIPE)
    work.train("lexical/base", recipe="lexical.yaml")
    return folder


def test_retag_takes_an_analyser_that_tells_how_sure_it_is(work, lexical):
    """One of nlpctl's own training, which is calibrated on dev; entities stand as they are given."""
    assert (lexical / "base/model/calibration.json").exists()
    (work / "named.txt").write_text("我\tB-PER\n去\tO\n北\tB-LOC\n京\tI-LOC\n")
    done = work.nlpctl("data", "retag", "lexical/base", "named.txt", "-o", "renamed.txt")
    assert done.returncode == 0, done.stderr
    tags = [line.split("\t")[1] for line in (work / "renamed.txt").read_text().split("\n") if line]
    assert tags == ["PER-B", "v-B", "LOC-B", "LOC-I"]


def test_ids_of_words_and_tags_are_those_of_the_dictionaries(lexical):
    vocabulary = (lexical / "base/model/vocab.txt").read_text().splitlines()
    assert vocabulary[-3:] == ["OOV", "[PAD]", "[SEP]"]
    assert json.loads((lexical / "base/model/labels.json").read_text())["labels"] == TAGS


def test_scores_are_those_of_the_model_folder(work, lexical):
    report = json.loads((lexical / "base/metrics.json").read_text())["test"]
    assert report["f1"] > 0.95 and set(report["labels"]) == {"r", "v", "n", "LOC"}
    done = work.nlpctl("eval", lexical / "base/model", "--json", "--set", f"data.test={lexical / 'test.txt'}")
    assert json.loads(done.stdout)["result"]["metrics"]["test"] == report, done.stderr


def test_words_cover_the_text_and_their_offsets_are_exact(work, lexical):
    texts = ["我喜欢书去北京｡", " 他们 去\u3000上海市👍🏽👍🏽 。。", "我看见火车站去北京。" * 12, "x"]
    done = work.nlpctl("predict", lexical / "base/model", "-", stdin="\n".join(texts) + "\n")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for text, answer in zip(texts, answers, strict=True):
        assert answer["text"].strip() == text.strip()
        end = 0
        for word in answer["words"]:
            assert answer["text"][word["start"] : word["end"]] == word["text"] and word["start"] >= end
            assert not answer["text"][end : word["start"]].strip()  # nothing but white space is left out
            end = word["end"]
        assert not answer["text"][end:].strip()
    found = [(word["text"], word["tag"]) for word in answers[0]["words"]]
    assert found == [("我", "r"), ("喜欢", "v"), ("书", "n"), ("去", "v"), ("北京", "LOC"), ("｡", "O")]
    through_windows = [word["text"] for word in answers[2]["words"]]
    assert through_windows == ["我", "看见", "火车站", "去", "北京", "。"] * 12


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_model(work, lexical, same_bits):
    words = ("train", "lexical.yaml", "--set", "training.output_dir=lexical/killed")
    checkpoint = lexical / "killed" / "checkpoints" / "checkpoint-48"
    work.end(work.start(*words), checkpoint.exists, signal.SIGKILL)
    work.train("lexical/killed", "--resume", recipe="lexical.yaml")
    assert same_bits(lexical / "killed", lexical / "base")


def test_training_goes_on_with_new_labels(work, lexical, weights):
    """The rate is so small that the model is what it started from."""
    (lexical / "more.txt").write_text(sentences(20, 5, "TIME r v n"))
    labels = ["O", *TAGS[:-1], "TIME-B", "TIME-I"]
    values = {
        "model.from_scratch": "null",
        "model.name_or_path": "lexical/base",
        "optimizer.groups": "[]",
        "data.train": f"[{lexical}/train.txt, {lexical}/more.txt]",
        "data.labels": f"[{', '.join(labels)}]",
        "training.learning_rate": "1e-12",
        "training.max_steps": "1",
        "training.evaluation_strategy": "no",
        "training.save_strategy": "no",
        "training.load_best_model_at_end": "false",
    }
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    done = work.nlpctl("train", "lexical.yaml", "--set", "training.output_dir=lexical/more", *words)
    assert done.returncode == 0, done.stderr
    assert "newly initialised: the places of TIME-B, TIME-I" in done.stderr
    assert "whole: 17 parameters of the encoder, bigru.embeddings.weight to" in done.stderr
    old, new = weights(lexical / "base/model"), weights(lexical / "more/model")
    for name in old:
        if name.startswith("bigru."):
            np.testing.assert_allclose(new[name], old[name], rtol=0, atol=1e-9)
    to, at = [labels.index(tag) for tag in TAGS], list(range(len(TAGS)))
    np.testing.assert_allclose(new["classifier.weight"][:, to], old["classifier.weight"], rtol=0, atol=1e-9)
    to, at = [*to, len(labels), len(labels) + 1], [*at, len(TAGS), len(TAGS) + 1]  # and stop, start
    new_transitions, old_transitions = new["crf.transitions"][np.ix_(to, to)], old["crf.transitions"][np.ix_(at, at)]
    np.testing.assert_allclose(new_transitions, old_transitions, rtol=0, atol=1e-9)
