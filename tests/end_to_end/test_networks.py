"""Networks without pre-training through the command line: built, killed and resumed, scored, asked."""

from __future__ import annotations

import json
import signal

import pytest

RECIPE = """\
task: sequence_classification
model:
  from_scratch:
    architecture: bilstm
    unit: words
    min_frequency: 1
    embedding_size: 16
    hidden_size: 16
    num_hidden_layers: 2
    dropout: 0.2
data: {train: train.tsv, dev: dev.tsv, test: test.tsv, max_seq_length: 16}
training:
  output_dir: bilstm
  learning_rate: 1e-2
  num_train_epochs: 6
  per_device_train_batch_size: 8
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: accuracy
runtime: {device: cpu}
"""
ARCHITECTURE = "model.from_scratch.architecture"


@pytest.fixture(scope="session")
def bilstm(work):
    (work / "networks.yaml").write_text(RECIPE)
    return work.train("bilstm", recipe="networks.yaml")


@pytest.mark.parametrize(
    "architecture", ["bilstm", "textcnn", pytest.param("bag_of_embeddings", marks=pytest.mark.slow)]
)
def test_it_learns_and_is_scored_and_asked(work, bilstm, architecture):
    run = bilstm
    if architecture != "bilstm":
        run = work.train(architecture, "--set", f"{ARCHITECTURE}={architecture}", recipe="networks.yaml")
    report = json.loads((run / "metrics.json").read_text())["test"]
    assert report["accuracy"] > 0.75  # a tenth of the rows is mislabelled
    done = work.nlpctl("eval", run / "model", "--json", "--set", f"data.test={work / 'test.tsv'}")
    assert json.loads(done.stdout)["result"]["metrics"]["test"] == report, done.stderr
    done = work.nlpctl("predict", run / "model", "-", stdin="the room was CLEAN\n??? \U0001f44d\n")
    clean, unknown = (json.loads(line) for line in done.stdout.splitlines())
    assert clean["label"] == "pos" and unknown["text"] == "??? \U0001f44d"


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_model(work, bilstm, same_bits):
    """Dropout between the layers of an LSTM is replayed as well."""
    checkpoint = work / "bilstm_killed" / "checkpoints" / "checkpoint-24"
    words = ("train", "networks.yaml", "--set", "training.output_dir=bilstm_killed")
    work.end(work.start(*words), checkpoint.exists, signal.SIGKILL)
    work.train("bilstm_killed", "--resume", recipe="networks.yaml")
    assert same_bits(work / "bilstm_killed", bilstm)


def test_vectors_are_read_and_their_coverage_is_told(work, bilstm):
    (work / "vectors.txt").write_text("good" + " 0.5" * 16 + "\nnowhere" + " 1" * 16 + "\n")
    words = ("train", "networks.yaml", "--max_steps", "1", "--set", "training.output_dir=with_vectors")
    done = work.nlpctl(*words, "--set", "model.embeddings=vectors.txt")
    assert done.returncode == 0 and "vectors: 1 of " in done.stderr, done.stderr
    (work / "vectors.txt").write_text("good 1 2\n")
    done = work.nlpctl(*words, "--overwrite", "--set", "model.embeddings=vectors.txt")
    assert done.returncode == 2 and "vectors.txt:1: 2 numbers where 16 are expected" in done.stderr


def test_the_same_text_gets_the_same_answer_in_any_company(work, bilstm):
    rows = ["good", "the food was dirty and the staff was dirty and the room was dirty and bad", "a clean bed"]
    together = work.nlpctl("predict", bilstm, "-", stdin="\n".join(rows) + "\n").stdout.splitlines()
    for row, line in zip(rows, together, strict=True):
        (alone,) = work.nlpctl("predict", bilstm, "-", stdin=row + "\n").stdout.splitlines()
        first, second = json.loads(alone)["probabilities"], json.loads(line)["probabilities"]
        assert first.keys() == second.keys() and all(abs(first[key] - second[key]) < 2e-6 for key in first)
