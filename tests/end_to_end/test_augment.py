"""nlpctl data augment: new rows that can be trained on, the same for the same seed."""

from __future__ import annotations

import json

import pytest


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_new_rows_keep_their_label(work):
    done = work.nlpctl("data", "augment", "quickstart", "-o", "more.jsonl", "--method", "delete", "--copies", "2")
    assert done.returncode == 0, done.stderr
    new = rows(work / "more.jsonl")
    assert "4,000 rows read" in done.stderr and len(new) > 5000
    assert {row["label"] for row in new} == {"好评", "差评"} and all(row["text"] for row in new)

    words = ("data", "augment", "quickstart", "--method", "delete", "--copies", "2")
    assert work.nlpctl(*words, "-o", "again.jsonl").returncode == 0
    assert rows(work / "again.jsonl") == new
    assert work.nlpctl(*words, "-o", "other.jsonl", "--seed", "7").returncode == 0
    assert rows(work / "other.jsonl") != new

    done = work.nlpctl(*words, "-o", "more.jsonl")
    assert done.returncode == 2 and "the file exists" in done.stderr
    done = work.nlpctl("recipe", "validate", "quickstart", "--set", f"data.train={work / 'more.jsonl'}")
    assert done.returncode == 0, done.stderr


def test_synonyms(work):
    (work / "mine.json").write_text(json.dumps({"房间": ["客房"]}), encoding="utf-8")
    words = ("data", "augment", "quickstart", "--method", "synonym", "--synonyms", "mine.json")
    done = work.nlpctl(*words, "-o", "synonyms.jsonl")
    assert done.returncode == 0, done.stderr
    assert all("客房" in row["text"] for row in rows(work / "synonyms.jsonl"))
    assert "train: [the old file, synonyms.jsonl]" in done.stderr
    (work / "kept.py").write_text("def same(row):\n    return row\n")
    done = work.nlpctl(*words, "-o", "new.jsonl", "--set", "data.map=kept:same")
    assert done.returncode == 0, done.stderr
    assert "the old file" not in done.stderr  # its rows pass data.map, the new ones must not
    assert "without data.map, under data: train: [old.jsonl, new.jsonl]" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "shuffle"), "no method 'shuffle'"),
        (("--method", "synonym", "--synonyms", "gone.json"), "gone.json: cannot be read"),
        (("--method", "synonym", "--synonyms", "train.tsv"), "is not valid JSON"),
    ],
)
def test_what_is_refused(work, words, message):
    done = work.nlpctl("data", "augment", "quickstart", "-o", "never.jsonl", *words)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not (work / "never.jsonl").exists() and "Traceback" not in done.stderr


def test_tags_cannot_be_augmented(work):
    (work / "t.yaml").write_text("task: token_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n")
    done = work.nlpctl("data", "augment", "t.yaml", "-o", "never.jsonl")
    assert done.returncode == 2 and "cannot be augmented" in done.stderr, done.stderr
