"""Finished runs that go on for more epochs: as if they had been planned longer, and without harm to the first."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest

CONSTANT = "--lr_scheduler_type constant --warmup_ratio 0".split()


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def losses(work, name: str) -> list[tuple[int, float, float]]:
    return [(each["step"], each["loss"], each["learning_rate"]) for each in work.events(name) if each["event"] == "log"]


@pytest.fixture(scope="session")
def whole(work):
    """Six epochs at one learning rate."""
    return work.train("six", *work.stepwise, *CONSTANT)


@pytest.fixture(scope="session")
def half(work):
    """The first three of them, 24 steps."""
    return work.train("first-half", *work.stepwise, *CONSTANT, "--num_train_epochs", "3")


@pytest.fixture(scope="session")
def longer(work, half):
    """`half`, continued for three more epochs."""
    before = digests(half)
    done = work.nlpctl("train", "first-half", "--continue", "3")
    assert done.returncode == 0 and "after step 24" in done.stderr, done.stderr
    assert digests(half) == before
    return work / "first-half-6-epochs"


def test_it_ends_as_one_long_run(work, whole, half, longer, same_bits):
    assert same_bits(longer, whole) and losses(work, longer.name) == losses(work, "six")
    fact = work.manifest(longer.name)["continues"]
    assert fact == {"run": str(half), "step": 24, "checkpoint": "checkpoint-24", "best": None}
    assert json.loads((longer / "metrics.json").read_text())["dev"]
    assert "first-half, after step 24" in work.nlpctl("runs", "show", longer).stdout


@pytest.mark.slow
def test_killed_it_is_resumed_like_any_run(work, whole, half, same_bits):
    words = ("train", "first-half", "--continue", "3", "--output_dir", "killed")
    work.end(work.start(*words), (work / "killed/checkpoints/checkpoint-27").exists, signal.SIGKILL)
    work.train("killed", "--resume", recipe="killed")
    assert same_bits(work / "killed", whole) and work.manifest("killed")["continues"]["step"] == 24


def test_killed_before_anything_was_taken_over(work, whole, longer, same_bits):
    copy = work / "cut-short"
    copy.mkdir()
    manifest = {**work.manifest(longer.name), "state": "running", "ended": None, "pid": 2**30}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    recipe = (longer / "recipe.yaml").read_text()
    (copy / "recipe.yaml").write_text(recipe.replace(longer.name, copy.name))
    work.train("cut-short", "--resume", recipe="cut-short")
    assert same_bits(copy, whole) and losses(work, "cut-short") == losses(work, "six")


@pytest.fixture(scope="session")
def eight(work, base):
    """`base`, continued for two more epochs."""
    done = work.nlpctl("train", "recipe.yaml", "--continue", "2", "--logging_steps", "1")
    assert done.returncode == 0, done.stderr
    return work / "base-8-epochs"


def test_the_schedule_is_that_of_the_longer_run(work, eight):
    """Linear with warm-up: after 48 of 64 steps about a quarter of the rate is left. The best model of all
    epochs is kept."""
    rates = {step: rate for step, _, rate in losses(work, "base-8-epochs")}
    assert rates[48] == pytest.approx(0.0, abs=1e-9)  # of the first run
    assert rates[49] == pytest.approx(1e-2 * (64 - 49) / (64 - 6), rel=1e-3) and rates[64] == pytest.approx(0, abs=1e-9)
    scores = [each["eval_accuracy"] for each in work.events("base-8-epochs") if each["event"] == "evaluate"]
    assert len(scores) == 8
    model = json.loads((work / "base-8-epochs" / "metrics.json").read_text())
    assert model["dev"]["accuracy"] == pytest.approx(max(scores))


def test_without_the_best_checkpoint_the_model_stands_for_it(work, base, eight):
    cleaned = Path(shutil.copytree(base, work / "tidied"))
    state = json.loads((cleaned / "checkpoints" / "checkpoint-48" / "trainer_state.json").read_text())
    best = Path(state["best_model_checkpoint"]).name
    assert best != "checkpoint-48"  # else this shows nothing
    before = {name: digest for name, digest in digests(cleaned).items() if not name.startswith("checkpoints/")}
    done = work.nlpctl("runs", "clean", "tidied", "--yes")
    assert done.returncode == 0 and [path.name for path in (cleaned / "checkpoints").iterdir()] == ["checkpoint-48"]
    after = {name: digest for name, digest in digests(cleaned).items() if not name.startswith("checkpoints/")}
    assert after == before
    # As many checkpoints as there are allowed while it trains; at the end the newest.
    words = ("--continue", "2", "--logging_steps", "1", "--save_total_limit", "2")
    done = work.nlpctl("train", "tidied", *words)
    assert done.returncode == 0, done.stderr
    longer = work / "tidied-8-epochs"
    assert digests(longer / "model") == digests(eight / "model") and f"step {best.rpartition('-')[2]}," in done.stderr
    assert [path.name for path in (longer / "checkpoints").iterdir()] == ["checkpoint-64"]
    # Killed while it takes over: the best is there, the checkpoint to go on from is not yet.
    killed = work / "killed-at-first"
    shutil.copytree(cleaned / "model", killed / "checkpoints" / best)
    manifest = {**work.manifest(longer.name), "state": "running", "ended": None, "pid": 2**30}
    (killed / "manifest.json").write_text(json.dumps(manifest))
    (killed / "recipe.yaml").write_text((longer / "recipe.yaml").read_text().replace(longer.name, killed.name))
    work.train(killed.name, "--resume", recipe=killed.name)
    assert digests(killed / "model") == digests(eight / "model")
    (cleaned / "model" / "model_state.pdparams").write_bytes(b"x")
    done = work.nlpctl("train", "tidied", "--continue", "3")
    assert done.returncode == 2 and "tidied/model/model_state.pdparams" in done.stderr


@pytest.mark.slow
def test_a_stream_goes_on(work, same_bits):
    stream = (
        "--set data.streaming=true --set data.labels=neg,pos --set data.shuffle_buffer=20 --evaluation_strategy no "
        "--save_strategy steps --save_steps 5 --no-load_best_model_at_end"
    ).split()
    long = work.train("stream-15", *stream, *CONSTANT, "--max_steps", "15")
    work.train("stream-10", *stream, *CONSTANT, "--max_steps", "10")
    done = work.nlpctl("train", "stream-10", "--continue", "5", "--output_dir", "stream-more")
    assert done.returncode == 0, done.stderr
    assert same_bits(work / "stream-more", long)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("recipe.yaml", "--continue", "0"), "0 is no number of epochs"),
        (("first-half", "--continue", "1", "--per_device_train_batch_size", "4"), "per_device_train_batch_size"),
        (("first-half", "--continue", "1", "--set", "data.train=dev.tsv"), "data.train"),
        (("first-half", "--continue", "1", "--output_dir", "first-half"), "the finished run itself is never changed"),
        (("first-half", "--continue", "1", "--output_dir", "first-half/more"), "the finished run itself is never"),
        (("elsewhere.yaml", "--continue", "1"), "there is no finished run to continue"),
    ],
)
def test_refusals(work, half, base, words, message):
    (work / "elsewhere.yaml").write_text("extends: recipe.yaml\ntraining: {output_dir: nowhere}\n")
    done = work.nlpctl("train", *words)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_what_was_not_kept_cannot_go_on(work, half):
    copy = shutil.copytree(half, work / "lost")
    (copy / "checkpoints" / "checkpoint-24" / "optimizer.pdopt").write_bytes(b"x")
    done = work.nlpctl("train", "lost", "--continue", "1")
    assert done.returncode == 2 and "the checkpoint is damaged: optimizer.pdopt" in done.stderr
    (copy / "manifest.json").write_text(json.dumps({**work.manifest("lost"), "state": "interrupted"}))
    done = work.nlpctl("train", "lost", "--continue", "1")
    assert done.returncode == 2 and "finish it first" in done.stderr
    shutil.copy(half / "manifest.json", copy)
    shutil.rmtree(copy / "checkpoints")
    done = work.nlpctl("train", "lost", "--continue", "1")
    assert done.returncode == 2 and "has no checkpoint" in done.stderr and "model.name_or_path" in done.stderr


def test_a_damaged_best_checkpoint_is_told_before_anything_is_written(work, base):
    copy = shutil.copytree(base, work / "lost_best")
    state = json.loads((copy / "checkpoints" / "checkpoint-48" / "trainer_state.json").read_text())
    best = Path(state["best_model_checkpoint"]).name
    (copy / "checkpoints" / best / "model_state.pdparams").write_bytes(b"x")
    done = work.nlpctl("train", "lost_best", "--continue", "1")
    assert done.returncode == 2 and best in done.stderr and "the checkpoint is damaged: model_state" in done.stderr
    assert not list(work.folder.glob("lost_best-*"))


def test_what_early_stopping_ended_stays_ended(work):
    early = "--set early_stopping.patience=1 --set early_stopping.min_delta=1.0".split()  # nothing is good enough
    work.train("early-stopped", *early)
    done = work.nlpctl("train", "early-stopped", "--continue", "1")
    assert done.returncode == 2 and "early stopping ended the run at step 16 of 48" in done.stderr, done.stderr


def test_a_patience_that_would_end_it_at_once_is_refused(work, base):
    """It is given with the command, so no step would be trained."""
    early = "--set early_stopping.patience=1 --set early_stopping.min_delta=1.0".split()
    done = work.nlpctl("train", base, "--continue", "1", *early, "--output_dir", "never")
    assert done.returncode == 2 and "would end the run before its first step" in done.stderr, done.stderr
    assert not (work / "never").exists()
