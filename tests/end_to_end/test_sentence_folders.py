"""Folders of sentence-transformers as the command line takes them: indexed, trained from, exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDERS = Path(__file__).parent.parent / "models" / "sentence_folders"
STILL = "--max_steps 1 --learning_rate 1e-12 --per_device_train_batch_size 4".split()
TRAINED = ("weightedmean-dense", "reranker")


def expected(name: str) -> dict[str, Any]:
    return json.loads((FOLDERS / name / "expected.json").read_text())


@pytest.fixture(scope="session")
def place(work):
    folder = work / "sentences"
    folder.mkdir()
    texts = expected("mean")["texts"]
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    rows = [{"text": text, "text_pair": texts[number - 1], "label": 1} for number, text in enumerate(texts)]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pairs = [{"text": first, "text_pair": second, "label": 1} for first, second in expected("reranker")["pairs"]]
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in [*pairs, {**pairs[0], "label": 0}]))
    for name in TRAINED:
        shutil.copytree(FOLDERS / name, folder / name)
    return folder


def run(work, *words: str | Path) -> Any:
    done = work.nlpctl(*words)
    assert done.returncode == 0, done.stderr
    return done


def test_an_index_has_passages_and_is_asked_queries(work, place):
    run(work, "index", "build", FOLDERS / "mean", place / "texts.txt", "-o", place / "index")
    done = run(work, "index", "search", place / "index", place / "texts.txt", "-k", "5")
    told = expected("mean")
    for number, line in enumerate(done.stdout.splitlines()):
        hits = {hit["text"]: hit["score"] for hit in json.loads(line)["hits"]}
        for text, score in zip(told["texts"], told["similarity"][number], strict=True):
            assert hits[text] == pytest.approx(score, abs=1e-4)


def test_training_starts_from_all_of_it_and_exports_keep_it(work, place):
    recipe = {
        "task": "semantic_indexing",
        "model": {"name_or_path": "./weightedmean-dense"},
        "data": {"train": "rows.jsonl", "columns": {"text_pair": "text_pair"}},
        "runtime": {"device": "cpu"},
    }
    (place / "vectors.yaml").write_text(json.dumps(recipe))
    done = run(work, "train", place / "vectors.yaml", "--output_dir", place / "run", *STILL)
    assert "newly initialised" not in done.stderr
    shutil.rmtree(place / "weightedmean-dense")  # the run needs it no more
    run(work, "export", place / "run", "-o", place / "export", "--timing", "0", "--rows", "5")
    told = np.array(expected("weightedmean-dense")["encode"])
    for model, engine in (("run", "dygraph"), ("export", "paddle"), ("export", "onnxruntime")):
        array, how = place / f"{engine}.npy", ("--engine", engine, "--precision", "fp32")
        run(work, "predict", place / model, place / "texts.txt", "--embeddings", array, *how)
        np.testing.assert_allclose(np.load(array), told, atol=1e-5)


def test_a_reranker_is_trained_on(work, place):
    recipe = {
        "task": "text_matching",
        "model": {"name_or_path": "./reranker"},
        "data": {"train": "pairs.jsonl", "columns": {"text_pair": "text_pair"}, "labels": ["different", "same"],
                 "max_seq_length": 24},
        "runtime": {"device": "cpu"},
    }
    rows = (place / "pairs.jsonl").read_text().replace('"label": 1', '"label": "same"')
    (place / "pairs.jsonl").write_text(rows.replace('"label": 0', '"label": "different"'))
    (place / "reranker.yaml").write_text(json.dumps(recipe))
    done = run(work, "train", place / "reranker.yaml", "--output_dir", place / "scores", *STILL)
    assert "newly initialised" not in done.stderr and "has one logit, which stands for 'same'" in done.stderr
    lines = run(work, "predict", place / "scores", place / "pairs.jsonl").stdout.splitlines()
    answers = [json.loads(line) for line in lines]
    for answer, score in zip(answers, expected("reranker")["scores"], strict=False):
        assert answer["score"] == pytest.approx(score, abs=1e-5)
        assert answer["label"] == ("same" if score > 0.5 else "different")
