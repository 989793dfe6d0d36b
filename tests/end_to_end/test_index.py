"""Vectors and the index of texts through the command line."""

from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest

RECIPE = """\
task: semantic_indexing
model:
  from_scratch: {vocab_size: 60, min_frequency: 1, hidden_size: 32, num_hidden_layers: 1, intermediate_size: 64}
data:
  train: index/train.jsonl
  dev: index/dev.jsonl
  test: index/test.jsonl
  columns: {text: query, text_pair: text, negative: wrong}
  max_seq_length: 16
training:
  output_dir: index/run
  learning_rate: 5e-3
  num_train_epochs: 3
  per_device_train_batch_size: 16
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: mrr
runtime: {device: cpu}
"""


def pairs(count: int, seed: int) -> list[dict]:
    """A text is its query in reverse, with a word in front; the wrong one has two of its four words."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        words = chance.sample("abcdefghijklmnopqr", 4)
        wrong = [*words[:2], *chance.sample("stuvw", 2)]
        made.append({"query": " ".join(words), "text": " ".join(["x", *words[::-1]]), "wrong": " ".join(wrong)})
    return made


@pytest.fixture(scope="session")
def index(work):
    """The folder of recipe and data, and the run of it."""
    folder = work / "index"
    folder.mkdir()
    for name, count, seed in (("train", 200, 1), ("dev", 30, 2), ("test", 60, 3)):
        rows = "".join(json.dumps(row) + "\n" for row in pairs(count, seed))
        (folder / f"{name}.jsonl").write_text(rows)
    test = pairs(60, 3)
    blank = "\n \u200b\n"  # lines that are no text
    (folder / "corpus.txt").write_text(blank + "".join(row["text"] + "\n" for row in [*test, test[0]]) + blank)
    (folder / "queries.txt").write_text("".join(row["query"] + "\n" for row in test))
    (work / "index.yaml").write_text(RECIPE)
    work.train("index/run", recipe="index.yaml")
    return folder


def test_training_teaches_and_an_encoder_is_scored_without_any(work, index):
    trained = json.loads((index / "run/metrics.json").read_text())["test"]
    assert trained["rows"] == trained["queries"] == 60 and trained["recall@5"] > 0.9
    encoder = index / "encoder"  # the same network as another tool would save it, and with other weights
    shutil.copytree(index / "run/model", encoder)
    (encoder / "task.json").unlink()
    (encoder / "labels.json").unlink()
    (encoder / "manifest.json").unlink()
    settings = (f"model.name_or_path={encoder}", "model.from_scratch=null", "training.output_dir=index/never_run")
    words = [word for setting in settings for word in ("--set", setting)]
    done = work.nlpctl("eval", "index.yaml", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["metrics"]["test"] == trained
    done = work.nlpctl("eval", "index.yaml", *words, "--set", "retrieval.embedding_size=8")
    assert done.returncode == 2 and "never trained: projection" in done.stderr


def test_vectors_are_written_in_the_order_of_the_rows(work, index):
    rows = [json.dumps({"query": row["text"]}) for row in pairs(60, 3)]
    (index / "mixed.jsonl").write_text("\n".join([*rows[:5], '{"query": " "}', *rows[5:]]) + "\n")
    out = index / "vectors.npy"
    done = work.nlpctl("predict", index / "run", index / "mixed.jsonl", "--embeddings", out)
    assert done.returncode == 2 and "mixed.jsonl:6: blank text" in done.stderr and not out.exists()
    words = ("predict", index / "run/model", index / "mixed.jsonl", "--embeddings", out)
    done = work.nlpctl(*words, "--set", "data.on_bad_row=skip", "--batch-size", "7")
    assert done.returncode == 0 and done.stdout == "" and "61 rows (1 bad)" in done.stderr, done.stderr
    vectors = np.load(out)
    assert vectors.shape == (61, 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [*[1] * 5, 0, *[1] * 55], atol=1e-5)
    done = work.nlpctl("predict", index / "run", stdin="".join(row["text"] + "\n" for row in pairs(60, 3)))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    np.testing.assert_allclose([each["embedding"] for each in answers], np.delete(vectors, 5, axis=0), atol=2e-6)

    done = work.nlpctl(*words)
    assert done.returncode == 2 and "the output file exists" in done.stderr
    done = work.nlpctl(*words, "-o", "x.jsonl")
    assert done.returncode == 2 and "--embeddings" in done.stderr
    assert [path.name for path in index.glob("*vectors.npy*")] == ["vectors.npy"]


def test_vectors_have_no_confidence(work, index):
    (work / "one.txt").write_text("one\n")
    done = work.nlpctl("predict", index / "run", "one.txt", "--min-confidence", "0.5")
    assert done.returncode == 2 and "answers of semantic_indexing have no confidence" in done.stderr, done.stderr


def test_other_models_make_no_vectors(work, base):
    done = work.nlpctl("predict", base, "test.tsv", "--embeddings", "x.npy")
    assert done.returncode == 2 and "sequence_classification has no text vectors" in done.stderr


@pytest.fixture(scope="session")
def built(work, index):
    done = work.nlpctl("index", "build", index / "run", index / "corpus.txt", "-o", index / "built")
    assert done.returncode == 0, done.stderr
    assert "60 texts, 1 repeated text left out" in done.stderr
    return index / "built"


def test_queries_find_their_texts(work, index, built):
    done = work.nlpctl("index", "search", built, index / "queries.txt", "-k", "5")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    test = pairs(60, 3)
    assert [answer["query"] for answer in answers] == [row["query"] for row in test]
    assert all([hit["rank"] for hit in answer["hits"]] == [1, 2, 3, 4, 5] for answer in answers)
    assert all(set(hit) == {"text", "score", "rank"} for answer in answers for hit in answer["hits"])
    hits = [{hit["text"] for hit in answer["hits"]} for answer in answers]
    found = sum(row["text"] in texts for row, texts in zip(test, hits, strict=True))
    report = json.loads((index / "run/metrics.json").read_text())["test"]
    assert found / 60 == pytest.approx(report["recall@5"])  # what eval says of the same queries and texts

    queries = json.dumps({"query": test[0]["query"]}) + "\n{}\n"
    done = work.nlpctl(
        "index", "search", built, "-", "--format", "jsonl", "--set", "data.on_bad_row=skip", stdin=queries
    )
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["hits"][0] == answers[0]["hits"][0] and "missing key 'query'" in second["error"]
    done = work.nlpctl("index", "search", built, stdin=f"{test[0]['query']}\n \n")
    assert [json.loads(line)["query"] for line in done.stdout.splitlines()] == [test[0]["query"], ""], done.stderr


def test_what_the_index_refuses(work, index, built):
    done = work.nlpctl("index", "build", index / "run", index / "corpus.txt", "-o", built)
    assert done.returncode == 2 and "already exists" in done.stderr
    done = work.nlpctl("index", "build", index / "run", index / "corpus.txt", "-o", index / "run", "--overwrite")
    assert done.returncode == 2 and "is an input" in done.stderr and (index / "run/model").is_dir()
    done = work.nlpctl("index", "build", index / "run", index / "corpus.txt", "-o", index / "x", "--kind", "tree")
    assert done.returncode == 2 and "no index kind 'tree'" in done.stderr
    for words in (("build", index / "run", "-", "-o", index / "x"), ("search", built)):
        done = work.nlpctl("index", *words, stdin='{"query": "a"}\n')
        assert done.returncode == 2 and "standard input:1: this line is a JSON object" in done.stderr, done.stderr
    assert not (index / "x").exists()
    done = work.nlpctl("index", "search", index, index / "queries.txt")
    assert done.returncode == 2 and "not an index" in done.stderr
    moved = index / "moved"
    shutil.copytree(built, moved)
    manifest = json.loads((moved / "manifest.json").read_text())
    manifest["model_files"]["model_state.pdparams"] = "0" * 64
    (moved / "manifest.json").write_text(json.dumps(manifest))
    done = work.nlpctl("index", "search", moved, index / "queries.txt")
    assert done.returncode == 2 and "has changed since this index was built: model_state.pdparams" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_vectors_by_several_workers(work, index):
    """The array of one process, byte for byte; a blank line is a row of zeros."""
    done = work.nlpctl("export", index / "run", "-o", index / "export", "--format", "onnx", "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    texts = [row["text"] for row in pairs(60, 3)]
    (index / "many.txt").write_text("".join("\n" if i % 90 == 7 else f"{texts[i % 60]} {i}\n" for i in range(300)))
    command = ("predict", index / "export", index / "many.txt", "--batch-size", "2", "--embeddings")
    for name, more in (("one.npy", ()), ("two.npy", ("--workers", "2"))):
        done = work.nlpctl(*command, index / name, *more)
        assert done.returncode == 0 and "300 rows (0 bad)" in done.stderr, done.stderr
    assert (index / "one.npy").read_bytes() == (index / "two.npy").read_bytes()
    assert np.load(index / "two.npy").shape[0] == 300 and not list(index.glob("*.shards"))

    command = ("index", "build", index / "export", index / "many.txt", index / "corpus.txt", "--batch-size", "2")
    for name, more in (("of_one", ()), ("of_two", ("--workers", "2"))):
        done = work.nlpctl(*command, "-o", index / name, *more)
        assert done.returncode == 0 and "356 texts" in done.stderr and "bad" not in done.stderr, done.stderr
    for name in ("index.faiss", "texts.jsonl", "manifest.json"):
        assert (index / "of_one" / name).read_bytes() == (index / "of_two" / name).read_bytes()
