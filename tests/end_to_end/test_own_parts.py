"""Training with parts of one's own: loss, scores, callbacks, optimizer, schedule, collator."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

CODE = """
    import pathlib

    import numpy as np
    import paddle
    import paddle.nn.functional as F
    from paddlenlp.trainer import TrainerCallback


    def twice(outputs, labels):
        return 2 * F.cross_entropy(outputs, labels)

    def none(outputs, labels):
        return None

    def cut_off(outputs, labels):
        return F.cross_entropy(outputs.detach(), labels)

    def one(outputs):
        return outputs.mean()


    def scores(eval_prediction):
        logits, labels = eval_prediction
        assert logits.shape == (len(labels), 2), logits.shape
        loss = F.cross_entropy(paddle.to_tensor(logits), paddle.to_tensor(labels))
        return {"mine": float((logits.argmax(-1) == labels).mean()), "first": float(labels[0]), "entropy": float(loss)}

    def scores_of_choices(eval_prediction):
        if {*eval_prediction.label_ids} != {0, 1}:
            raise ValueError("needs both classes")
        assert eval_prediction.predictions.ndim == 1
        return {"mine": float((eval_prediction.predictions == eval_prediction.label_ids).mean())}

    def choices(logits, labels):
        return logits.argmax(-1)

    def first_choice(logits, labels):
        return logits.argmax(-1)[0]

    def text_score(eval_prediction):
        return {"mine": "good"}


    class Falls(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            with open(args.output_dir + "/../steps.txt", "a") as file:
                file.write(f"{state.global_step} ")
            if state.global_step == 8 and not pathlib.Path("mended").exists():
                raise RuntimeError("fell over")

    class Quiet(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
            with open(args.output_dir + "/../rates.txt", "a") as file:
                file.write(f"{optimizer.get_lr()} ")

    def no_callback():
        return 1


    def momentum(model, args):
        return paddle.optimizer.Momentum(args.learning_rate, parameters=model.parameters())

    def no_optimizer(model, args):
        return model.parameters()

    def steps_down(args, num_training_steps):
        down = paddle.optimizer.lr.StepDecay(args.learning_rate, step_size=num_training_steps // 2, gamma=0.5)
        return paddle.optimizer.lr.LinearWarmup(down, 2, 0.0, args.learning_rate)  # a schedule within a schedule

    def of_loss(args, num_training_steps):
        return paddle.optimizer.lr.ReduceOnPlateau(args.learning_rate)


    def padded_to_eight(tokenizer):
        def collate(rows):
            size = -(-max(len(row["input_ids"]) for row in rows) // 8) * 8
            batch = {
                name: np.array([row[name] + [tokenizer.pad_token_id] * (size - len(row[name])) for row in rows])
                for name in ("input_ids", "token_type_ids")
            }
            return {**batch, "labels": np.array([row["labels"] for row in rows])}
        return collate

    def noting(tokenizer):
        collate = padded_to_eight(tokenizer)
        def noted(rows):
            with open("noted.txt", "a") as file:
                print([len(row["input_ids"]) for row in rows], file=file)
            return collate(rows)
        return noted

    def without_labels(tokenizer):
        return lambda rows: {"input_ids": np.zeros((len(rows), 4), int)}

    def ragged(tokenizer):
        return lambda rows: {"labels": [0] * len(rows), "input_ids": [row["input_ids"] for row in rows]}
"""

TWELVE = "--max_steps 12 --evaluation_strategy steps --eval_steps 4 --save_strategy steps --save_steps 4".split()
ALL = """
--criterion parts:twice --compute_metrics parts:scores --callbacks parts:Falls parts:Quiet --optimizer parts:momentum
--scheduler parts:steps_down --data_collator parts:padded_to_eight --metric_for_best_model mine
""".replace("--criterion parts:twice", "--set training.criterion=parts:twice").split()


@pytest.fixture(scope="session")
def parts(work) -> Path:
    (work / "parts.py").write_text(textwrap.dedent(CODE))
    return work / "parts.py"


@pytest.fixture(scope="session")
def whole(work, parts) -> Path:
    """A run with all of them, that nothing stopped."""
    (work / "mended").touch()
    return work.train("own", *TWELVE, *ALL)


def test_all_are_used(work, whole):
    manifest, metrics = work.manifest("own"), json.loads((whole / "metrics.json").read_text())
    assert set(manifest["functions"]) == {
        f"training.{name}"
        for name in "criterion compute_metrics callbacks optimizer scheduler data_collator".split()
    }
    assert len(manifest["functions"]["training.criterion"]["parts:twice"]) == 64
    assert (whole / "steps.txt").read_text().split() == [str(step) for step in range(1, 13)]
    logs = [event for event in work.events("own") if event["event"] == "log"]
    assert [event["learning_rate"] for event in logs] == [pytest.approx(rate) for rate in (1e-2, 5e-3, 5e-3)]
    dev = [event for event in work.events("own") if event["event"] == "evaluate"]
    assert all(event["eval_mine"] == pytest.approx(event["eval_accuracy"]) for event in dev)
    assert all(event["eval_loss"] == pytest.approx(2 * event["eval_entropy"], rel=1e-4) for event in dev)
    first = (work / "dev.tsv").read_text().splitlines()[1].split("\t")[1]
    assert all(event["eval_first"] == ["neg", "pos"].index(first) for event in dev)  # rows in the order of the file
    assert metrics["dev"]["compute_metrics"]["mine"] == pytest.approx(metrics["dev"]["accuracy"])
    shown = work.nlpctl("runs", "show", "own")
    assert "mine" in shown.stdout and "entropy" in (whole / "report.html").read_text()
    state = json.loads((whole / "checkpoints" / "checkpoint-12" / "trainer_state.json").read_text())
    assert state["best_metric"] == max(event["eval_mine"] for event in dev)


def test_a_failure_is_told_and_the_run_goes_on_to_the_same_bits(work, whole, same_bits, parts):
    (work / "mended").unlink()
    ended = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=fell", *TWELVE, *ALL)
    (work / "mended").touch()
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert "training.callbacks" in ended.stderr and "parts:Falls failed: RuntimeError: fell over" in ended.stderr
    assert "parts.py:" in ended.stderr
    unnamed = work.nlpctl("train", "fell", "--resume")
    assert unnamed.returncode == 2
    assert "(training.criterion): fell asks to run code: parts:twice of parts.py" in unnamed.stderr
    flags = re.search(r"name it too: (.*?); or", " ".join(unnamed.stderr.split()))[1]
    assert {*re.findall(r"training\.\w+=\S+", flags)} >= {"training.callbacks=parts:Falls,parts:Quiet"}
    source = parts.read_text()
    parts.write_text(source + "# changed\n")
    try:
        changed = work.nlpctl("train", "fell", "--resume", *ALL)
    finally:
        parts.write_text(source)
    assert changed.returncode == 2 and "the source of parts:" in changed.stderr and "--overwrite" in changed.stderr
    resumed = work.nlpctl("train", "fell", "--resume", *flags.split())
    assert resumed.returncode == 0, resumed.stderr
    assert same_bits(whole, work / "fell")


def test_a_longer_run_has_the_schedule_of_its_length_and_the_same_code(work, whole, parts):
    words = ("train", "own", "--continue", "12", "--output_dir", "own_longer", *ALL)
    source = parts.read_text()
    parts.write_text(source + "# changed\n")
    try:
        changed = work.nlpctl(*words)
    finally:
        parts.write_text(source)
    assert changed.returncode == 2 and "changed since the finished run" in changed.stderr, changed.stderr
    assert "model.name_or_path" in changed.stderr and not (work / "own_longer").exists()
    longer = work.nlpctl(*words)
    assert longer.returncode == 0 and "24 steps, a schedule of your own" in longer.stderr, longer.stderr
    assert work.manifest("own_longer")["steps"]["warmup"] is None
    rates = [float(rate) for rate in (work / "own_longer" / "rates.txt").read_text().split()]
    # halved after 12 of 24 steps, which follow 2 of warm-up
    assert rates == [pytest.approx(rate) for rate in [1e-2] * 2 + [5e-3] * 10]


def test_the_model_serves_without_the_code(work, whole, parts, tmp_path):
    """Of these parts only the training needs the code: the model is as any other."""
    parts.rename(tmp_path / "parts.py")
    try:
        scored, answered = work.nlpctl("eval", "own", "--json"), work.nlpctl("predict", "own", "test.tsv")
    finally:
        (tmp_path / "parts.py").rename(parts)
    assert scored.returncode == 0, scored.stderr
    assert answered.returncode == 0 and len(answered.stdout.splitlines()) == 30


def test_a_class_of_layers_is_a_criterion_and_paddlenlps_collator_a_collator(work, parts):
    collator = "paddlenlp.data:DataCollatorWithPadding"
    work.train("ready_made", *TWELVE, "--set", "training.criterion=paddle.nn:CrossEntropyLoss",
               "--data_collator", collator, "--compute_metrics", "parts:scores_of_choices",
               "--preprocess_logits_for_metrics", "parts:choices")  # fmt: skip
    metrics = json.loads((work / "ready_made" / "metrics.json").read_text())["dev"]
    assert metrics["compute_metrics"]["mine"] == pytest.approx(metrics["accuracy"])


def test_one_batch_is_learned_with_them(work, parts):
    words = ["--set", "training.criterion=parts:twice", "--data_collator", "parts:padded_to_eight"]
    words += ["--optimizer", "parts:momentum", "--learning_rate", "0.05", "--output_dir", "by_heart"]
    done = work.nlpctl("train", "recipe.yaml", "--overfit-batch", *words)
    assert done.returncode == 0 and "by heart" in done.stderr, done.stderr
    first = float(re.search(r"step 0/\d+: loss ([\d.]+)", done.stderr)[1])
    assert first > 1.2  # twice the logarithm of two labels
    assert not (work / "by_heart").exists()


WRONG = [
    ("criterion", "nowhere:f", "cannot import 'nowhere'"),
    ("criterion", "parts:twise", "has no 'twise' (did you mean 'twice'"),
    ("criterion", "parts", "is not of the form package.module:function"),
    ("criterion", "parts:one", "called as one(outputs, labels), but is defined as one(outputs)"),
    ("criterion", "parts:none", "returned no scalar tensor"),
    ("criterion", "parts:cut_off", "the loss has no gradient"),
    ("compute_metrics", "parts:text_score", "returned {'mine': 'good'}"),
    ("compute_metrics", "parts:none", "called as none(eval_prediction)"),
    ("callbacks", "parts:no_callback", "returned int"),
    ("optimizer", "parts:no_optimizer", "returned list"),
    ("scheduler", "parts:of_loss", "the Trainer calls its step without arguments"),
    ("data_collator", "parts:without_labels", "a batch without labels"),
    ("data_collator", "parts:ragged", "rows of different lengths as input_ids"),
]


@pytest.mark.parametrize(("key", "name", "told"), WRONG, ids=lambda value: value.replace("parts:", "")[:20])
def test_mistakes_are_told_before_a_run_begins(work, parts, key, name, told):
    done = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=wrong", "--set", f"training.{key}={name}")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert f"training.{key}" in done.stderr and told in " ".join(done.stderr.split())
    assert not (work / "wrong").exists()


def test_more_mistakes(work, parts):
    def told(*words: str) -> str:
        done = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=wrong", *words)
        assert done.returncode == 2 and not (work / "wrong").exists()
        return " ".join(done.stderr.split())

    assert "training.criterion): parts:none returned no scalar" in told("--criterion", "parts:none")
    assert "optimizer.layer_decay would not reach it" in told(
        "--optimizer", "parts:momentum", "--set", "optimizer.layer_decay=0.9"
    )
    assert "which is not set" in told("--preprocess_logits_for_metrics", "parts:choices")
    assert "returned shape [] for a batch of" in told(
        "--compute_metrics", "parts:scores_of_choices", "--preprocess_logits_for_metrics", "parts:first_choice"
    )
    assert "metric_for_best_model is yours" in told(
        "--compute_metrics", "parts:scores", "--metric_for_best_model", "yours"
    )


@pytest.mark.slow
def test_several_processes_import_them_before_a_run_is_replaced(work, parts):
    """The parent has no Paddle, so another process imports them."""
    old = work / "older"
    (old / "model").mkdir(parents=True, exist_ok=True)
    (old / "manifest.json").write_text('{"format": 1, "state": "finished"}')
    words = ["--nproc", "2", "--overwrite", "--set", "training.output_dir=older"]
    done = work.nlpctl("train", "recipe.yaml", *words, "--set", "training.criterion=parts:one")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "training.criterion" in done.stderr and "called as one(outputs, labels)" in " ".join(done.stderr.split())
    assert (old / "model").is_dir() and not (old / "recipe.yaml").exists()


def test_the_batch_that_is_shown_is_the_first_of_the_training(work, parts):
    settings = {"training.data_collator": "parts:noting", "training.gradient_accumulation_steps": 2,
                "training.per_device_train_batch_size": 4, "training.dataloader_drop_last": "true"}  # fmt: skip
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = work.nlpctl("data", "show", "recipe.yaml", "--json", *words)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["result"]["batch"]
    assert shown["exact"] and shown["batches"] == 2 * (61 // 8) and shown["shape"]["input_ids"][1] % 8 == 0
    work.train("noted", "--max_steps", "1", *words)
    tried, first = (work / "noted.txt").read_text().splitlines()[1:3]
    assert len(json.loads(tried)) == 2 and json.loads(first) == shown["tokens"] and len(shown["tokens"]) == 4


def test_before_a_training_they_are_used_as_in_it(work, parts):
    """The same batch by both losses."""
    words = ("train", "recipe.yaml", "--overfit-batch", "--max_steps", "40", "--set", "training.output_dir=never")
    own = ["--set", "training.criterion=parts:twice", "--data_collator", "parts:padded_to_eight"]
    plain, mine = (work.nlpctl(*words, "--json", *more) for more in ((), [*own, "--optimizer", "parts:momentum"]))
    assert {plain.returncode, mine.returncode} <= {0, 1}, mine.stderr  # momentum learns slowly
    first = [float(re.search(r"step 0/40: loss ([\d.]+)", done.stderr)[1]) for done in (plain, mine)]
    assert first[1] == pytest.approx(2 * first[0], abs=3e-4)
    (work / "own.yaml").write_text("extends: recipe.yaml\ntraining: {criterion: 'parts:twice', output_dir: never}\n")
    listed = work.nlpctl("params", "ls", "own.yaml", "--match", "classifier.*")
    assert listed.returncode == 0 and "training.criterion: parts:twice" in listed.stderr, listed.stderr
    assert listed.stdout.count("trained") == 2


@pytest.mark.slow
def test_two_processes_score_as_one(work, parts):
    """The scores of all rows, in the order of the file, in every process."""
    words = ["--max_steps", "4", "--set", "training.criterion=parts:twice", "--compute_metrics", "parts:scores",
             "--evaluation_strategy", "steps", "--eval_steps", "2", "--no-load_best_model_at_end", "--threads", "1",
             "--set", "model.config.hidden_dropout_prob=0",
             "--set", "model.config.attention_probs_dropout_prob=0"]  # fmt: skip
    work.train("alone", *words)
    work.train("shared", *words, "--per_device_train_batch_size", "4", "--nproc", "2")
    alone, shared = (
        [event for event in work.events(name) if event["event"] == "evaluate"] for name in ("alone", "shared")
    )
    for figure in ("eval_loss", "eval_mine", "eval_first", "eval_entropy"):
        assert [each[figure] for each in alone] == [pytest.approx(each[figure], abs=1e-5) for each in shared]
    work.train("tokens_shared", *words, "--set", "data.batch_tokens=64", "--nproc", "2")


@pytest.mark.slow
def test_the_example_of_the_document_runs(work):
    text = (Path(__file__).resolve().parents[2] / "docs" / "own-parts.md").read_text(encoding="utf-8")
    python = re.findall(r"```python\n(.*?)```", text, re.S)
    (recipe,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (work / "my_parts.py").write_text("\n".join(python), encoding="utf-8")
    (work / "mine.yaml").write_text(recipe, encoding="utf-8")
    words = "--max_steps 2 --output_dir mine --evaluation_strategy steps --eval_steps 2 --save_strategy steps".split()
    words += ["--save_steps", "2", "--set", "data.test=null", "--set", f"data.train={work / 'dev.tsv'}"]
    done = work.nlpctl("train", "mine.yaml", *words, "--set", f"data.dev={work / 'dev.tsv'}")
    assert done.returncode == 0, done.stderr
    assert "dev at step 2: " in done.stderr and "balanced 0." in done.stderr
    network = ["--set", "model.network=my_parts:MeanPooling", "--set", "training.output_dir=mean_pooling"]
    done = work.nlpctl("train", "recipe.yaml", "--max_steps", "1", *work.stepwise, *network)
    assert done.returncode == 0, done.stderr
