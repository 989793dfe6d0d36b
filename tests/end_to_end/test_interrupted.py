"""Runs that are stopped or killed and resumed end as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from nlpctl.layout import checkpoint_step, checkpoints_in
from nlpctl.runtime.worker import is_alive

STREAMING = (
    "--set data.streaming=true --set data.labels=neg,pos --set data.shuffle_buffer=20 --max_steps 14 "
    "--evaluation_strategy no --save_strategy steps --save_steps 2 --no-load_best_model_at_end --warmup_ratio 0.5"
).split()
EARLY = "--set early_stopping.patience=2 --set early_stopping.min_delta=1.0".split()  # nothing is ever good enough


def figures(work, name: str) -> list[dict]:
    """The events without times and speeds."""
    clocks = {"time", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "left"}
    clocks |= {"interval_samples_per_second"}
    return [{key: value for key, value in event.items() if key not in clocks} for event in work.events(name)]


def killed_at_the_end(work, run: Path, name: str) -> Path:
    """A copy of a finished run as a kill right after its last checkpoint would have left it."""
    copy = work / name
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "model")
    (copy / "metrics.json").unlink()
    manifest = work.manifest(name)
    (copy / "manifest.json").write_text(json.dumps({**manifest, "state": "running", "ended": None, "pid": 2**30}))
    return copy


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal(work, stepwise, same_bits, number):
    name = f"stopped-{number}"
    words = ("train", "recipe.yaml", *work.stepwise, "--set", f"training.output_dir={name}")
    done = work.end(work.start(*words), (work / name / "checkpoints" / "checkpoint-6").exists, number)
    assert done.returncode == 130, done.stderr
    assert "--resume" in done.stderr and "Traceback" not in done.stderr
    manifest = work.manifest(name)
    assert manifest["state"] == "interrupted" and manifest["ended"] is not None
    assert not (work / name / "model").exists() and not list((work / name).rglob(".staging-*"))
    events = [(event["event"], event["step"]) for event in work.events(name)]
    last = checkpoint_step(checkpoints_in(work / name / "checkpoints")[-1])
    assert events[-1] == ("save", last) and last == max(step for _, step in events), "a later step was lost"
    assert f"goes on from checkpoint-{last}" in done.stderr and done.stderr.count("a checkpoint is saved") == 1

    if number == signal.SIGTERM:
        return
    done = work.nlpctl(*words)
    assert done.returncode == 2 and "run that is interrupted" in done.stderr and "--resume" in done.stderr
    done = work.nlpctl(*words, "--resume", "--learning_rate", "1e-3")
    assert done.returncode == 2 and "recipe changed" in done.stderr and "training.learning_rate" in done.stderr

    work.train(name, *work.stepwise, "--resume")
    assert same_bits(work / name, stepwise)
    manifest = work.manifest(name)
    assert manifest["state"] == "finished" and [entry["was"] for entry in manifest["resumed"]] == ["interrupted"]
    resumed = [(event["event"], event["step"]) for event in work.events(name)]
    if last % 3:
        resumed.remove(("save", last))  # the one that the signal asked for
    assert resumed == [(event["event"], event["step"]) for event in work.events("stepwise")]


def test_killed_before_the_first_checkpoint(work, base, same_bits):
    """It starts over, and the events of the first attempt are forgotten."""
    words = ("train", "recipe.yaml", "--logging_steps", "1", "--set", "training.output_dir=early-death")
    work.end(work.start(*words), (work / "early-death" / "events.jsonl").exists, signal.SIGKILL)
    if list((work / "early-death" / "checkpoints").glob("checkpoint-*")):
        pytest.skip("this machine wrote a checkpoint before the signal arrived")
    work.train("early-death", "--logging_steps", "1", "--resume")
    assert same_bits(work / "early-death", base)
    steps = [event["step"] for event in work.events("early-death") if event["event"] == "log"]
    assert steps == list(range(1, 49))


def test_killed_with_data_workers(work, stepwise, same_bits):
    """Nothing outlives the command, and the run can be resumed at once, however long a batch takes to read."""
    words = (*work.stepwise, "--dataloader_num_workers", "2")
    process = work.start("train", "recipe.yaml", *words, "--set", "training.output_dir=loaders")
    loaders: set[int] = set()

    def loading() -> bool:
        tasks = Path(f"/proc/{process.pid}/task")
        with contextlib.suppress(FileNotFoundError):
            loaders.update(int(child) for each in tasks.iterdir() for child in (each / "children").read_text().split())
        return len(loaders) >= 2 and (work / "loaders/checkpoints/checkpoint-3").exists()

    work.end(process, loading, signal.SIGKILL)
    while any(is_alive(each) for each in loaders):  # as long as the kernel takes
        time.sleep(0.01)
    work.train("loaders", *words, "--resume")
    assert same_bits(work / "loaders", stepwise)


def test_a_stream(work, same_bits):
    """14 updates of 8 rows go over the end of the 61 rows; killed within (and resumed with worker processes,
    which read the same stream), and after the last checkpoint."""
    whole = work.train("stream", *STREAMING)
    words = ("train", "recipe.yaml", *STREAMING, "--set", "training.output_dir=stream-killed")
    work.end(work.start(*words), (work / "stream-killed/checkpoints/checkpoint-4").exists, signal.SIGKILL)
    work.train("stream-killed", *STREAMING, "--resume", "--dataloader_num_workers", "2")
    assert same_bits(work / "stream-killed", whole)
    assert figures(work, "stream-killed")[-1] == figures(work, "stream")[-1]

    copy = killed_at_the_end(work, whole, "stream-end")
    work.train("stream-end", *STREAMING, "--resume")
    assert same_bits(copy, whole)
    assert max(event["step"] for event in work.events("stream-end")) == 14


def test_a_last_step_within_an_epoch(work, same_bits):
    short = (*work.stepwise, "--max_steps", "12")  # an epoch has 8 updates
    whole = work.train("short", *short)
    copy = killed_at_the_end(work, whole, "short-end")
    work.train("short-end", *short, "--resume")
    assert same_bits(copy, whole) and figures(work, "short-end") == figures(work, "short")


def test_early_stopping(work, same_bits):
    """It stops after the third of six epochs, also when killed before, or between stopping and the end."""
    whole = work.train("early", *EARLY)
    evaluated = [event["step"] for event in work.events("early") if event["event"] == "evaluate"]
    assert evaluated == [8, 16, 24] and (whole / "checkpoints" / "checkpoint-24").exists()

    words = ("train", "recipe.yaml", *EARLY, "--set", "training.output_dir=early-killed")
    work.end(work.start(*words), (work / "early-killed/checkpoints/checkpoint-8").exists, signal.SIGKILL)
    work.train("early-killed", *EARLY, "--resume")
    copy = killed_at_the_end(work, whole, "early-end")
    work.train("early-end", *EARLY, "--resume")
    for run in (work / "early-killed", copy):
        assert same_bits(run, whole)
        assert figures(work, run.name) == figures(work, "early")
        assert json.loads((run / "metrics.json").read_text()) == json.loads((whole / "metrics.json").read_text())
