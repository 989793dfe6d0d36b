"""What ModernBERT has beside other families: layers of two kinds, a last norm, and a limit of length of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_tasks import write

RECORDED = Path(__file__).parents[1] / "models" / "encoders" / "modernbert"
pytestmark = pytest.mark.slow


def recipe_of(work, task: str, model: str | Path = RECORDED, more: str = "") -> str:
    """The recipe of small_tasks.py, from this network."""
    lines = write(work.folder, task).read_text(encoding="utf-8").splitlines()
    lines = [f"model: {{name_or_path: {model}}}" if line.startswith("model:") else line for line in lines]
    (work / f"modernbert-{task}.yaml").write_text("\n".join([*lines, more]) + "\n", encoding="utf-8")
    return f"modernbert-{task}.yaml"


def test_few_shot_by_its_language_model(work):
    words = work.train("modernbert-words", recipe=recipe_of(work, "masked_language_model"))
    run = work.train("modernbert-few", recipe=recipe_of(work, "few_shot_classification", words))
    done = work.nlpctl("export", run, "--timing", "0", "--json")
    assert done.returncode == 0, done.stdout


def test_learning_rates_by_layer_and_recomputed_layers(work):
    """Recomputed layers give the same weights."""
    recipe = recipe_of(work, "sequence_classification", more="optimizer: {layer_decay: 0.5}")
    plain, again = (
        work.train(f"modernbert-layers-{name}", "--max_steps", "3", *words, recipe=recipe)
        for name, words in (("plain", ()), ("again", ("--recompute",)))
    )
    rates = json.loads((plain / "manifest.json").read_text())["parameters"]["optimizer"]
    # Head and last norm, four layers, the embedding; a group of weights and one of norms each has one rate.
    assert {round(1e-2 / group["learning_rate"]) for group in rates} == {1, 2, 4, 8, 16, 32}
    losses = [
        [event["loss"] for event in work.events(run.name) if event["event"] == "log" and "loss" in event]
        for run in (plain, again)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5) and len(losses[0]) == 3


def test_lengths(work):
    """As many tokens as the network has places, and no more."""
    recipe = recipe_of(work, "sequence_classification")
    work.train("modernbert-long", "--max_steps", "1", "--set", "data.max_seq_length=64", recipe=recipe)
    done = work.nlpctl("train", recipe, "--output_dir", "modernbert-longer", "--set", "data.max_seq_length=65")
    assert done.returncode == 2 and "65 tokens exceed the 64 positions of the network" in done.stderr
