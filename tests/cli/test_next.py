"""The last lines of a command that made a model: where it lies, and the command lines that use it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.cli.output import tell_trained
from nlpctl.config.load import load_recipe
from nlpctl.experiments import repeats
from nlpctl.runtime.run_directory import RunDirectory

GOOD = {"dev": {"rows": 40, "accuracy": 0.9, "micro_f1": 0.9, "mrr": 0.5}}
ONE_LABEL = {
    name: {"precision": p, "recall": r, "f1": 0.5, "support": 20} for name, p, r in (("a", 0.5, 1), ("b", 0, 0))
}
USELESS = {"dev": {"rows": 40, "accuracy": 0.5, "micro_f1": 0.5, "labels": ONE_LABEL}}
FIND_OUT = ["nlpctl data inspect 'a run'", "nlpctl train 'a run' --overfit-batch"]


@pytest.mark.parametrize(
    ("task", "metrics", "asked", "expected"),
    [
        (
            "sequence_classification", GOOD, "warn",
            ["nlpctl predict 'a run' FILE", "nlpctl eval 'a run' FILE", "nlpctl export 'a run'"],
        ),
        ("sequence_classification", USELESS, "warn", FIND_OUT),
        (
            "sequence_classification", USELESS, "ignore",
            ["nlpctl predict 'a run' FILE", "nlpctl eval 'a run' FILE", "nlpctl export 'a run'"],
        ),
        (
            "semantic_indexing", GOOD, "warn",
            ["nlpctl index build 'a run' FILE -o 'a run_index'", "nlpctl eval 'a run' FILE", "nlpctl export 'a run'"],
        ),
        (
            "masked_language_model", {}, "warn",
            ["nlpctl train RECIPE --set model.name_or_path='a run'", "nlpctl predict 'a run' FILE"],
        ),
    ],
)  # fmt: skip
def test_what_a_trained_model_is_for(monkeypatch, recipe, capsys, task, metrics, asked, expected) -> None:
    monkeypatch.chdir(recipe.parent)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    whole = load_recipe(recipe)
    tell_trained(
        RunDirectory(Path("a run")),
        replace(whole, task=task, guards=replace(whole.guards, not_learning=asked)),
        metrics,
    )
    assert capsys.readouterr().err.splitlines() == ["model: a run/model", "next:", *(f"  {line}" for line in expected)]


@pytest.mark.parametrize(
    ("words", "predictions", "expected"),
    [
        (("--folds", "2"), "folds/predictions.jsonl", ["nlpctl data audit folds"]),
        (("--seeds", "1,2"), None, []),
    ],
)
def test_what_folds_and_seeds_are_for(nlpctl, recipe, monkeypatch, words, predictions, expected) -> None:
    result = SimpleNamespace(scores={}, predictions=predictions and Path(predictions), folder=Path("folds"))
    monkeypatch.setattr(repeats, "train_folds_and_seeds", lambda *_, **__: result)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    told = nlpctl("train", recipe, *words).err.partition("next:\n")[2].splitlines()
    assert [line.strip() for line in told] == [*expected, "nlpctl ensemble folds -o folds_ensemble"]
