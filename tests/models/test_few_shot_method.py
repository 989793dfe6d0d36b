"""Which method `few_shot.method: auto` stands for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Origin
from nlpctl.errors import UserError
from nlpctl.models.few_shot_method import resolve_method

PROMPT = {"template": "{'text': 'text'} it is {'mask'}", "verbalizer": {"0": "bad", "1": "good"}}
HEADS = ("cls.predictions.bias", "lm_head.bias", "generator_predictions.dense.weight")


def recipe(model: dict, method: str = "auto", prompt: dict | None = PROMPT):
    (Path.cwd() / "few.tsv").write_text("text\tlabel\na\t0\nb\t1\n")
    given = {} if prompt is None else {"prompt": prompt}
    values = {"task": "few_shot_classification", "model": model, "few_shot": {"method": method}, **given}
    return load_recipe({**values, "data": {"train": "few.tsv"}, "training": {"output_dir": "run"}})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def encoder(*more: str) -> dict:
    folder = Path("encoder")
    folder.mkdir()
    names = ("bert.embeddings.word_embeddings.weight", *more)
    save_file({name: np.zeros(2, np.float32) for name in names}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "vocab.txt").write_text("[PAD]\n")
    return {"name_or_path": "./encoder"}


@pytest.mark.parametrize("head", HEADS)
def test_a_language_model_gets_a_prompt(head: str, capsys) -> None:
    assert resolve_method(recipe(encoder(head))).few_shot.method == "prompt"
    told = capsys.readouterr().err
    assert "auto: prompt, since" in told and "model.safetensors holds a language-model head" in told


def test_a_language_model_in_a_wrapper_gets_a_prompt() -> None:
    """Whose names are read without what stands before all of them, as when it is loaded."""
    names = ("bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.output.dense.weight", HEADS[0])
    model = encoder()
    file = Path("encoder/model.safetensors")
    for before in ("module.", "_orig_mod.module."):
        save_file({before + name: np.zeros(2, np.float32) for name in names}, file)
        assert resolve_method(recipe(model)).few_shot.method == "prompt"
    save_file({f"module.{name}": np.zeros(2, np.float32) for name in names[:2]}, file)
    assert resolve_method(recipe(model)).few_shot.method == "contrastive"


def test_a_sentence_encoder_is_trained_by_pairs(capsys) -> None:
    assert resolve_method(recipe(encoder("bert.pooler.dense.weight"))).few_shot.method == "contrastive"
    told = capsys.readouterr().err
    assert "auto: contrastive, since" in told and "holds no language-model head" in told


def test_without_a_template_there_is_no_prompt(capsys) -> None:
    assert resolve_method(recipe(encoder(HEADS[0]), prompt=None)).few_shot.method == "contrastive"
    assert "the recipe has no prompt.template" in capsys.readouterr().err


def test_hub_models_come_with_their_head_and_new_encoders_without(capsys) -> None:
    assert resolve_method(recipe({"name_or_path": "ernie-3.0-medium-zh"})).few_shot.method == "prompt"
    assert resolve_method(recipe({"from_scratch": {}})).few_shot.method == "contrastive"
    assert "ernie-3.0-medium-zh is a model of a hub" in capsys.readouterr().err


def test_what_is_chosen_stays(capsys) -> None:
    chosen = recipe({"from_scratch": {}}, "prompt")
    assert resolve_method(chosen) is chosen and capsys.readouterr().err == ""


def test_a_loss_of_ones_own_cannot_compare_pairs() -> None:
    given = recipe({"from_scratch": {}})
    given = dataclasses.replace(given, training=dataclasses.replace(given.training, criterion="paddle.nn:MSELoss"))
    with pytest.raises(UserError, match="training.criterion: few_shot.method: contrastive trains on pairs"):
        resolve_method(given)


def test_a_missing_model_is_told() -> None:
    missing = recipe(encoder())
    Path("encoder/model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights in this folder"):
        resolve_method(missing)


def pooling(given: str) -> dict:
    """An encoder as sentence-transformers saves it."""
    model = encoder()
    Path("encoder/1_Pooling").mkdir()
    Path("encoder/1_Pooling/config.json").write_text(json.dumps({"pooling_mode": given}))
    return model


def test_the_pooling_is_that_of_the_encoder(capsys) -> None:
    model = pooling("cls")
    made = resolve_method(recipe(model, "contrastive", None))
    assert made.few_shot.pooling == "cls" and "few_shot.pooling: cls, as" in capsys.readouterr().err
    assert resolve_method(recipe(model, prompt=None)).few_shot.pooling == "cls"
    given = recipe(model, "contrastive", None)
    said = {**given.origins, "few_shot.pooling": Origin("few.yaml", 4)}
    assert resolve_method(dataclasses.replace(given, origins=said)).few_shot.pooling == "mean"
    again = dataclasses.replace(given, few_shot=dataclasses.replace(given.few_shot, pooling="mean"))
    assert "pooling: mean" in dump_recipe(again)  # which without it would be that of the folder


def test_the_pooling_of_a_run_that_makes_vectors() -> None:
    model = encoder()
    content = {"format": 1, "task": "semantic_indexing", "trained": True, "data": {}, "retrieval": {"pooling": "max"}}
    Path("encoder/task.json").write_text(json.dumps(content))
    assert resolve_method(recipe(model, "contrastive", None)).few_shot.pooling == "max"
    Path("encoder/task.json").write_text(json.dumps({**content, "task": "sequence_classification"}))
    assert resolve_method(recipe(model, "contrastive", None)).few_shot.pooling == "mean"


def test_a_run_of_an_older_version_keeps_its_pooling() -> None:
    given = recipe(pooling("cls"), "contrastive", None)
    of_run = {**given.origins, "model.name_or_path": Origin("run/recipe.yaml", 3, opened=Path("run"))}
    assert resolve_method(dataclasses.replace(given, origins=of_run)).few_shot.pooling == "mean"


def test_a_recipe_that_was_run_answers_as_its_model_does() -> None:
    recipe(pooling("cls"))  # its files
    values = {"task": "few_shot_classification", "model": {"name_or_path": "./encoder"}}
    values |= {"data": {"train": "few.tsv"}, "training": {"output_dir": "run"}, "few_shot": {"method": "contrastive"}}
    Path("run/model").mkdir(parents=True)
    content = {"format": 1, "task": values["task"], "trained": True, "data": {}, "few_shot": {"pooling": "cls"}}
    Path("run/model/task.json").write_text(json.dumps(content))
    assert load_recipe(values, (), "apply").few_shot.pooling == "cls"
    assert load_recipe({**values, "few_shot": {"pooling": "max"}}, (), "apply").few_shot.pooling == "max"
