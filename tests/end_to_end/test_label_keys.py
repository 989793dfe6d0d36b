"""Keys of a recipe that speak of labels: told before a run begins, and heeded in a stream too."""

from __future__ import annotations

import shutil

import pytest

THREE = "--set data.labels=neg,pos,never"


@pytest.mark.parametrize(
    "words, told",
    [
        ("--set loss.weights.nge=2", "there is no label 'nge'"),
        ("--set data.balance.counts.nge=2", "there is no label 'nge'"),
        (f"{THREE} --set decode.tune=f1", "decode.tune): this is for two labels, there are 3"),
        (f"{THREE} --set loss.focal_gamma=2 --set loss.focal_alpha=0.3", "loss.focal_alpha): this is for two labels"),
    ],
)
def test_a_wrong_one_costs_no_run(work, base, words, told):
    kept = work / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(base, kept)
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
    done = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=kept", "--overwrite", *words.split())
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == before


@pytest.mark.slow
def test_weights_count_in_a_stream(work):
    words = "--set data.streaming=true --set data.labels=neg,pos --max_steps 4 --logging_steps 4 --learning_rate 1e-5"
    for name, weight in (("light", 1), ("heavy", 100)):
        weights = f"--set loss.weights.neg={weight} --set loss.weights.pos={weight}"
        work.train(name, *words.split(), *work.stepwise, *weights.split())
    light, heavy = (next(e["loss"] for e in work.events(name) if e["event"] == "log") for name in ("light", "heavy"))
    assert heavy == pytest.approx(100 * light, rel=0.05)
