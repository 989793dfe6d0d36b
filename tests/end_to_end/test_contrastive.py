"""Few-shot classification with a sentence encoder through the command line."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

SENTENCE_FOLDERS = Path(__file__).parents[1] / "models" / "sentence_folders"

# 24 updates with a checkpoint and an evaluation after every sixth one, dropout on.
RECIPE = """\
task: few_shot_classification
few_shot: {method: contrastive, pairs: 4, layers: 2}
model:
  from_scratch: {architecture: bert, vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 2,
                 intermediate_size: 64}
data: {train: contrastive/train.tsv, dev: contrastive/dev.tsv, test: contrastive/test.tsv, max_seq_length: 16}
training:
  output_dir: contrastive/run
  learning_rate: 1e-2
  max_steps: 24
  per_device_train_batch_size: 8
  evaluation_strategy: steps
  eval_steps: 6
  save_strategy: steps
  save_steps: 6
  load_best_model_at_end: true
  logging_steps: 1
runtime: {device: cpu}
"""
TELLING = {"bad": ("bad", "dirty"), "good": ("good", "clean"), "fair": ("fair", "usual")}
WORDS = "the room bed was staff view food very a and".split()


def rows(count: int, seed: int) -> list[tuple[str, str]]:
    """The same number of sentences for each of three labels; one word of a sentence decides its label."""
    chance, made = random.Random(seed), []
    for label, telling in TELLING.items():
        for _ in range(count):
            words = [*chance.choices(WORDS, k=chance.randint(1, 2)), chance.choice(telling)]
            chance.shuffle(words)
            made.append((" ".join(words), label))
    return made


@pytest.fixture(scope="session")
def run(work):
    folder = work / "contrastive"
    folder.mkdir()
    for split, count, seed in (("train", 8, 1), ("dev", 8, 2), ("test", 30, 3)):
        lines = "".join(f"{text}\t{label}\n" for text, label in rows(count, seed))
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + lines)
    (work / "contrastive.yaml").write_text(RECIPE)
    return work.train("contrastive/run", recipe="contrastive.yaml")


def scores(run, split="test"):
    return json.loads((run / "metrics.json").read_text())[split]


def test_the_run_is_an_ordinary_one(work, run):
    losses = [event["loss"] for event in work.events("contrastive/run") if "loss" in event]
    assert sum(losses[-6:]) < 0.7 * sum(losses[:6])
    assert scores(run)["rows"] == 90 and scores(run)["accuracy"] > 0.6
    assert json.loads((run / "model" / "config.json").read_text())["architectures"] == ["BertSentenceClassifier"]


def test_every_evaluation_and_checkpoint_has_a_head_of_its_own(work, run):
    evaluated = [event for event in work.events("contrastive/run") if event["event"] == "evaluate"]
    assert [event["step"] for event in evaluated] == [6, 12, 18, 24]
    assert scores(run, "dev")["accuracy"] == max(event["eval_accuracy"] for event in evaluated)
    done = work.nlpctl("eval", run / "model", "--json", "--set", f"data.test={work / 'contrastive/test.tsv'}")
    assert done.returncode == 0 and json.loads(done.stdout)["result"]["metrics"]["test"] == scores(run), done.stderr


def test_a_killed_run_ends_with_the_same_model(work, run, same_bits):
    words = ("train", "contrastive.yaml", "--set", "training.output_dir=contrastive/killed")
    checkpoint = work / "contrastive" / "killed" / "checkpoints" / "checkpoint-6"
    work.end(work.start(*words), checkpoint.exists, signal.SIGKILL)
    work.train("contrastive/killed", "--resume", recipe="contrastive.yaml")
    assert same_bits(work / "contrastive/killed", run)


def test_the_export_answers_as_the_run(work, run):
    done = work.nlpctl("export", run, "-o", "contrastive/export", "--format", "paddle,onnx", "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    report = json.loads((work / "contrastive/export/report.json").read_text())
    checks = [check for graph in report["graphs"] for check in graph["checks"] if check["precision"] == "fp32"]
    assert {check["engine"] for check in checks} == {"paddle", "onnxruntime"}
    assert all(check["relative_difference"] <= 1e-4 and check["agreement"] == 1 for check in checks)
    for model, engine in ((run, "dygraph"), ("contrastive/export", "onnxruntime")):
        done = work.nlpctl("predict", model, "-", "--engine", engine, stdin="the room was clean\n")
        assert done.returncode == 0 and json.loads(done.stdout)["label"] == "good", done.stderr


def test_auto_says_what_it_takes_and_the_run_keeps_it(work, run):
    text = RECIPE.replace("contrastive, pairs", "auto, pairs").replace("contrastive/run", "contrastive/auto")
    text += "prompt: {template: \"{'text': 'text'} {'mask'}\", verbalizer: {bad: bad, good: good, fair: fair}}\n"
    (work / "auto.yaml").write_text(text)
    done = work.nlpctl("train", "auto.yaml", "--max_steps", "2")
    assert done.returncode == 0, done.stderr
    assert "few_shot.method auto: contrastive, since an encoder from scratch cannot predict words" in done.stderr
    assert "method: contrastive" in (work / "contrastive/auto/recipe.yaml").read_text()
    expected = scores(work / "contrastive/auto")
    done = work.nlpctl("eval", "auto.yaml", "--split", "test", "--json")  # the recipe says auto, the run knows
    assert done.returncode == 0 and json.loads(done.stdout)["result"]["metrics"]["test"] == expected, done.stderr


def test_an_encoder_of_sentence_transformers_pools_as_it_did(work, run):
    (work / "pooled.yaml").write_text(
        "extends: contrastive.yaml\nfew_shot: {layers: 1}\ntraining: {output_dir: contrastive/pooled}\n"
        f"model: {{from_scratch: null, name_or_path: {SENTENCE_FOLDERS / 'max-dot'}}}\n"
    )
    done = work.nlpctl("train", "pooled.yaml", "--max_steps", "2")
    assert done.returncode == 0 and "few_shot.pooling: max, as" in done.stderr, done.stderr
    assert "pooling: max" in (work / "contrastive/pooled/recipe.yaml").read_text()
    expected = scores(work / "contrastive/pooled")
    for model in ("pooled.yaml", "contrastive/pooled"):
        done = work.nlpctl("eval", model, "--split", "test", "--json")
        assert json.loads(done.stdout)["result"]["metrics"]["test"] == expected, done.stderr


AUTO = """\
extends: contrastive.yaml
few_shot: {method: auto}
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "auto-bare.yaml", "--overfit-batch", "--max_steps", "100"), "learned one batch of 8 rows by heart"),
        (("params", "ls", "auto-bare.yaml", "--json"), '"training": "trained"'),
        (("params", "ls", "auto-bare.yaml", "--match", "classifier"), "0.0000 0.0000 fitted to the encoder"),
        (("data", "show", "auto-bare.yaml", "-n", "1"), "pair_ids"),
    ],
    ids=lambda value: value[0],
)
def test_every_command_before_a_training_decides_as_it(work, run, words, told):
    """Without a template there would be no prompt; and batches are those of the training, of pairs."""
    (work / "auto-bare.yaml").write_text(AUTO.replace("auto}", "auto}\ntraining: {output_dir: contrastive/never}"))
    done = work.nlpctl(*words)
    assert done.returncode == 0 and "few_shot.method auto: contrastive" in done.stderr, done.stderr
    assert told in " ".join((done.stdout + done.stderr).split())


def test_a_frozen_encoder_gets_its_regression(work, run):
    words = ("train", "contrastive.yaml", "--set", "training.output_dir=contrastive/fixed", "--set=model.freeze=[bert]")
    done = work.nlpctl(*words)
    assert done.returncode == 0 and "no step is trained" in done.stderr, done.stderr
    fixed = work / "contrastive/fixed"
    assert scores(fixed)["rows"] == 90 and scores(fixed)["accuracy"] > 0.4
    assert (fixed / "report.html").is_file() and work.manifest("contrastive/fixed")["state"] == "finished"
    done = work.nlpctl("params", "diff", fixed, run, "--json")
    assert "classifier.weight" in {row["name"] for row in json.loads(done.stdout)["result"]["changed"]}
    for model in (fixed / "recipe.yaml", fixed):
        listed = work.nlpctl("params", "ls", model)
        assert listed.returncode == 0 and "frozen: model.freeze bert" in listed.stdout, listed.stderr
        assert listed.stdout.count("fitted to the encoder's vectors") == 2 and "  trained" not in listed.stdout
    done = work.nlpctl(*words, "--overfit-batch")
    assert done.returncode == 2 and "nothing to learn by heart" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "few_shot.method=setfit"], "few_shot.method"),
        (["--set", "few_shot.pairs=0"], "few_shot.pairs is 0"),
        (["--set", "training.criterion=paddle.nn:CrossEntropyLoss"], "a loss of its own, which no other can replace"),
        (["--set", "few_shot.layers=3"], "the encoder has 2 layers"),
        (["--set", "data.labels=[bad, good, fair, none]"], "no training row has the label 'none'"),
        (["--set", "few_shot={method: prompt, pairs: 10, layers: 1}"], "or few_shot.method: contrastive"),
    ],
)
def test_what_is_wrong_is_told(work, run, words, message):
    done = work.nlpctl("train", "contrastive.yaml", "--set", "training.output_dir=contrastive/no", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in done.stderr
    assert not (work / "contrastive/no").exists()


@pytest.mark.slow
def test_it_is_compressed_as_any_classifier(work, run):
    words = "--strategy ort-dynamic,dynabert,qat --width_mult_list 1/2 --batch_sizes 2"
    done = work.nlpctl("compress", run, *words.split())
    assert done.returncode == 0, done.stderr
    report = json.loads((run / "compress" / "report.json").read_text())
    print([row["name"] for row in report["rows"]])
    assert len(report["rows"]) > 4
