"""What a training tells of itself: its steps, where its time went, what is trained; and one batch learned by heart."""

from __future__ import annotations

import json
import re

import pytest

FREEZE = "--set model.freeze=[ernie.embeddings]"
FROZEN, UNREACHED = "frozen: model.freeze ernie.embeddings", "not reached: the loss does not depend on it"


@pytest.fixture(scope="session")
def tagger(work):
    """A recipe whose network has a pooler that nothing uses."""
    rows = [{"tokens": ["good", "room"], "tags": ["O", "B-X"]}]
    rows += [{"tokens": ["bed", "was", "bad"], "tags": ["B-X", "O", "O"]}]
    (work / "tags.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 5))
    (work / "tagger.yaml").write_text(
        "extends: recipe.yaml\ntask: token_classification\nmodel: {freeze: [ernie.embeddings]}\n"
        "data: {train: tags.jsonl, dev: tags.jsonl, test: []}\n"
        "training: {num_train_epochs: 1, metric_for_best_model: null, output_dir: tagger}\n"
    )
    return "tagger.yaml"


def test_steps_and_time(work, base, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")  # pages and tables are in Chinese, messages are not
    done = work.nlpctl("train", "recipe.yaml", "--num_train_epochs", "1", "--set", "training.output_dir=told")
    assert done.returncode == 0, done.stderr
    assert "61 rows: 8 steps an epoch (the last of 5 rows); 1 epoch: 8 steps, no warm-up" in done.stderr
    assert "time of the training" in done.stderr and re.search(r"^total +\d+\.\d +100%$", done.stderr, flags=re.M)
    assert "kept: the model of step 8, the best by accuracy on dev (0." in done.stderr
    before, after = done.stderr.split("模型：told/model\n")
    assert not re.search("[一-鿿]", before)
    assert after.startswith("报告：told/report.html\n接下来：\n  nlpctl ")
    assert done.stdout.index("标签") < done.stdout.index("划分"), "what matters most stands last"
    manifest = work.manifest("told")
    assert manifest["steps"]["per_epoch"] == manifest["steps"]["total"] == manifest["time"]["steps"] == 8
    seconds = manifest["time"]["seconds"]
    assert all(seconds[name] > 0 for name in ("data", "compute", "evaluate", "save", "log"))
    assert sum(seconds.values()) < 60
    assert "等待数据" in (work / "told" / "report.html").read_text()
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert "computing" in work.nlpctl("runs", "show", "told").stdout


def test_how_long_a_training_takes_is_told_by_new(work):
    words = ("new", "train.tsv", "--dev", "dev.tsv", "--test", "none", "--model", "scratch", "--time")
    before = {*work.folder.rglob("*")}  # of other tests
    done = work.nlpctl(*words, "-o", "timed.yaml")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^time: the training takes about \d+m\d\ds on this machine", done.stderr, flags=re.M), done.stderr
    assert work.nlpctl("recipe", "validate", "timed.yaml").returncode == 0
    assert {*work.folder.rglob("*")} - before == {work / "timed.yaml"}


@pytest.mark.slow
def test_accumulation_and_processes_are_counted(work):
    words = ("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2", "--nproc", "2")
    run = work.train("several", *work.stepwise, *words, "--max_steps", "12")
    steps, spent = (work.manifest(run.name)[name] for name in ("steps", "time"))
    assert steps["global_batch"] == 8 and steps["per_epoch"] == 8 and steps["epochs"] == 1.5
    assert spent["steps"] == 12 and 0 < spent["seconds"]["compute"] < 100
    assert spent["longest_wait"] >= spent["seconds"]["data"] > 0


def test_what_is_trained_and_why_not(work, tagger):
    def listed(model):
        done = work.nlpctl("params", "ls", model, "--json")
        assert done.returncode == 0, done.stderr
        return {row["name"]: row["training"] for row in json.loads(done.stdout)["result"]["parameters"]}

    before = listed(tagger)
    assert set(before.values()) == {"trained", FROZEN, UNREACHED}
    assert {name for name, said in before.items() if said == UNREACHED} == {
        "ernie.pooler.dense.weight", "ernie.pooler.dense.bias"
    }  # fmt: skip
    assert all((said == FROZEN) is name.startswith("ernie.embeddings.") for name, said in before.items())
    run = work.train("tagged", recipe=tagger)
    after = listed(run)
    assert after == {name: said for name, said in before.items() if name in after} and len(after) == len(before)
    assert listed(run / "model") == after
    table = work.nlpctl("params", "ls", run).stdout
    assert FROZEN in table and UNREACHED in table


def test_one_batch_is_learned_by_heart(work):
    done = work.nlpctl("train", "recipe.yaml", "--overfit-batch", "--json", "--output_dir", "never")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["result"]
    (attempt,) = found["attempts"]
    assert found["learned"] and attempt["last_loss"] < 0.05 * attempt["first_loss"] and attempt["steps"] < 200
    assert "by heart" in done.stderr and not (work / "never").exists()


def test_a_batch_that_cannot_be_learned(work):
    """Everything but the bias of the classifier is frozen: it can give one answer to all."""
    frozen = "--set=model.freeze=[ernie, classifier.weight]"
    done = work.nlpctl("train", "recipe.yaml", "--overfit-batch", "--max_steps", "10", frozen, "--output_dir", "never")
    assert done.returncode == 1 and "does not learn even one batch by heart" in done.stderr
    assert done.stderr.count("step 0/10") == 3 and "at 0.1" in done.stderr and not (work / "never").exists()
    done = work.nlpctl("train", "recipe.yaml", "--overfit-batch", "--resume")
    assert done.returncode == 2 and "--resume and --overfit-batch" in done.stderr


def test_the_learning_rate_that_learns_is_told(work):
    words = ("--overfit-batch", "--max_steps", "60", "--learning_rate", "1e-3")
    done = work.nlpctl("train", "recipe.yaml", *words)
    assert done.returncode == 0 and "training.learning_rate, 0.001, did not: set it to 0.01" in done.stderr, done.stderr
