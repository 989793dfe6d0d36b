"""Batches by tokens in a training, and `nlpctl data show` as a command."""

from __future__ import annotations

import json
import shutil

TOKENS = "--set data.batch_tokens=64 --evaluation_strategy no --no-load_best_model_at_end --save_strategy steps".split()
TOKENS += ["--save_steps", "4", "--max_steps", "30"]


def test_a_resumed_run_has_the_same_bits(work, same_bits):
    """Into the second epoch and beyond it."""
    whole = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=tokens", *TOKENS)
    assert whole.returncode == 0, whole.stderr
    assert "a step is at most 64 tokens with padding" in whole.stderr
    shutil.copytree(work / "tokens", work / "tokens_stopped")
    shutil.rmtree(work / "tokens_stopped" / "model")
    for step in range(16, 31):
        shutil.rmtree(work / "tokens_stopped" / "checkpoints" / f"checkpoint-{step}", ignore_errors=True)
    manifest = work.manifest("tokens_stopped") | {"state": "interrupted"}
    (work / "tokens_stopped" / "manifest.json").write_text(json.dumps(manifest))
    words = ["--set", "training.output_dir=tokens_stopped", *TOKENS]
    resumed = work.nlpctl("train", "recipe.yaml", "--resume", *words)
    assert resumed.returncode == 0 and "checkpoint-12" in resumed.stderr, resumed.stderr
    assert same_bits(work / "tokens", work / "tokens_stopped")


def test_the_command_shows_rows(work):
    shown = work.nlpctl("data", "show", "recipe.yaml", "-n", "2", "--split", "dev")
    assert shown.returncode == 0, shown.stderr
    first = (work / "dev.tsv").read_text().splitlines()[1].split("\t")
    assert f"{work / 'dev.tsv'}:2" in shown.stdout and f"  text      {first[0]}" in shown.stdout
    assert f"  labels    {first[1]}" in shown.stdout and "[CLS]" in shown.stdout and "padding" in shown.stdout
    asked = work.nlpctl("data", "show", "recipe.yaml", "-n", "2", "--json")
    assert len(json.loads(asked.stdout)["result"]["rows"]) == 2
    wrong = work.nlpctl("data", "show", "recipe.yaml", "--split", "tran")
    assert wrong.returncode == 2 and "there is no split 'tran'" in wrong.stderr
