"""Multi-label classification through the command line: thresholds that are kept, labels that are unknown."""

from __future__ import annotations

import json
import random

import pytest

RECIPE = """\
task: multi_label_classification
model:
  from_scratch: {architecture: bag_of_embeddings, unit: words, min_frequency: 1, hidden_size: 32, embedding_size: 32}
data: {train: labels/train.tsv, dev: labels/dev.tsv, test: labels/test.tsv, label_separator: "|", max_seq_length: 16}
training:
  output_dir: labels/run
  learning_rate: 1e-2
  num_train_epochs: 3
  per_device_train_batch_size: 16
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: micro_f1
runtime: {device: cpu}
"""
MEANING = {"dirty": "room##dirty", "noisy": "room##noisy", "rude": "staff", "cold": "food"}


def rows(count: int, seed: int) -> str:
    chance, made = random.Random(seed), ["text\tlabel"]
    for _ in range(count):
        telling = [word for word in MEANING if chance.random() < 0.3]
        words = [*chance.choices("it was a the of".split(), k=3), *telling]
        chance.shuffle(words)
        made.append(" ".join(words) + "\t" + "|".join(MEANING[word] for word in telling))
    return "\n".join(made) + "\n"


@pytest.fixture(scope="session")
def labels(work):
    folder = work / "labels"
    folder.mkdir()
    for name, count, seed in (("train", 300, 1), ("dev", 80, 2), ("test", 60, 3)):
        (folder / f"{name}.tsv").write_text(rows(count, seed))
    (work / "labels.yaml").write_text(RECIPE)
    work.train("labels/run", recipe="labels.yaml")
    return folder


def test_a_threshold_given_by_a_flag_goes_before_those_that_were_tuned(work, labels):
    (work / "certain.jsonl").write_text('{"text": "it was dirty"}\n')
    exported = work.nlpctl("export", "labels/run", "-o", "labels/sure", "--format", "onnx", "--set",
                           "decode.threshold=1.0", "--timing", "0")  # fmt: skip
    assert exported.returncode == 0, exported.stderr
    flag = ("--set", "decode.threshold=1.0")
    for model, flags, given in (("run", (), True), ("run", flag, False), ("sure", (), False)):
        done = work.nlpctl("predict", f"labels/{model}", "certain.jsonl", *flags)
        assert done.returncode == 0, done.stderr
        assert bool(json.loads(done.stdout)["labels"]) is given, (model, flags)


def test_parents_thresholds_and_levels(work, labels):
    kept = json.loads((labels / "run/model/labels.json").read_text())
    assert kept["labels"] == ["food", "room", "room##dirty", "room##noisy", "staff"]
    assert len(kept["thresholds"]) == 5 and all(0 < each < 1 for each in kept["thresholds"])
    metrics = json.loads((labels / "run/metrics.json").read_text())
    assert metrics["test"]["rows"] == 60 and metrics["test"]["micro_f1"] > 0.9
    assert set(metrics["test"]["levels"]) == {"1", "2"}
    dev_scores = [event["eval_micro_f1"] for event in work.events("labels/run") if event["event"] == "evaluate"]
    assert metrics["dev"]["micro_f1"] == pytest.approx(max(dev_scores))


def test_eval_and_predict_go_by_the_thresholds_of_the_model(work, labels):
    texts = "it was dirty\nrude the cold\nit was a\n"
    done = work.nlpctl("predict", labels / "run", stdin=texts)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["labels"] for answer in answers] == [["room", "room##dirty"], ["food", "staff"], []]
    file = labels / "run/model/labels.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps({**json.loads(before), "thresholds": [1, 1, 1, 0, 1]}))
        done = work.nlpctl("predict", labels / "run", "--trust-edits", stdin=texts)
        answers = [json.loads(line)["labels"] for line in done.stdout.splitlines()]
        assert answers == [["room", "room##noisy"]] * 3  # the child's threshold is reached, its parent comes with it
        done = work.nlpctl("eval", labels / "run", "--json", "--trust-edits")
        assert json.loads(done.stdout)["result"]["metrics"]["test"]["labels"]["food"]["recall"] == 0.0
    finally:
        file.write_text(before)


def test_an_unknown_label_stops_with_its_place(work, labels):
    (labels / "odd.tsv").write_text("text\tlabel\nit was\t\na cold\tfood|stafff\n")
    done = work.nlpctl("eval", labels / "run", "--set", f"data.test={labels / 'odd.tsv'}", "--split", "test")
    assert done.returncode == 2
    assert "odd.tsv:3: unknown label: 'stafff'; did you mean 'staff'?" in done.stderr
