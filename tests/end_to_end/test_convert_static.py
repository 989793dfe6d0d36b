"""nlpctl convert-static as a command: an export becomes the model it was made of, and trains and predicts again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import paddle
import pytest
from paddle.static import InputSpec

from nlpctl.config.load import load_recipe
from nlpctl.models.source import WEIGHTS
from nlpctl.models.weights import read_weights_file
from nlpctl.tasks.base import task_class

TEXTS = "the room was clean\nbad food and a dirty bed\n"


@pytest.fixture(scope="session")
def inference(work, base: Path) -> Path:
    """The trained model as Paddle's own inference model, without the notes on names."""
    recipe = load_recipe(base / "model", purpose="apply")
    network = task_class(recipe.task).load_trained(recipe, base / "model").network
    network.eval()
    specs = [InputSpec([None, None], "int64", name) for name in ("input_ids", "token_type_ids")]
    paddle.jit.save(paddle.jit.to_static(network, input_spec=specs, full_graph=True), str(work / "inference" / "model"))
    (work / "inference" / "model.pdiparams.info").unlink()
    return work / "inference"


@pytest.fixture(scope="session")
def converted(work, base: Path, inference: Path) -> Path:
    done = work.nlpctl("convert-static", "inference", "--to", "base", "-o", "converted")
    assert done.returncode == 0, done.stderr
    assert "by parameter name" in done.stdout and "differ by at most 0 in 1 output" in done.stdout
    assert "next:\n  nlpctl predict converted FILE\n  nlpctl train RECIPE" in done.stderr
    return work / "converted"


def test_the_model_comes_back_bit_by_bit(base, converted):
    before, after = (read_weights_file(folder / WEIGHTS).arrays for folder in (base / "model", converted))
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    for name in ("task.json", "labels.json", "vocab.txt"):
        assert (converted / name).read_bytes() == (base / "model" / name).read_bytes()
    report = json.loads((converted / "conversion.json").read_text())
    assert report["complete"] and report["share"] == 1 and report["proof"]["difference"] == 0
    assert len(report["matched"]) == report["parameters"]


def test_it_predicts_as_the_model_did(work, base, converted):
    answers = [work.nlpctl("predict", model, stdin=TEXTS) for model in ("base", "converted")]
    assert answers[0].returncode == 0 and answers[0].stdout == answers[1].stdout


def test_it_trains_on(work, converted):
    recipe = json.dumps({
        "extends": "recipe.yaml",
        "model": {"from_scratch": None, "name_or_path": str(converted)},
        "training": {"output_dir": "trained_on", "max_steps": 2, "evaluation_strategy": "no", "save_strategy": "no",
                     "load_best_model_at_end": False},
    })  # fmt: skip
    (work / "go_on.yaml").write_text(recipe)
    work.train("trained_on", recipe="go_on.yaml")
    assert (work / "trained_on" / "model" / "task.json").is_file()


def test_labels_without_names_can_be_named_later(work, base, inference):
    """A config of PaddleNLP's counts them only, and an inference model has none."""
    plain = work / "plain_config"
    shutil.copytree(base / "model", plain, ignore=shutil.ignore_patterns("*.json", "*.pdparams"))
    shutil.copy(base / "model" / "tokenizer_config.json", plain)
    config = json.loads((base / "model" / "config.json").read_text())
    kept = {key: value for key, value in config.items() if key not in ("id2label", "label2id")}
    (plain / "config.json").write_text(json.dumps(kept | {"num_labels": len(config["id2label"])}))
    done = work.nlpctl("convert-static", "inference", "--to", "plain_config", "-o", "unnamed")
    assert done.returncode == 0, done.stderr
    assert not (work / "unnamed" / "task.json").exists()
    names = ",".join(json.loads((base / "model" / "labels.json").read_text())["labels"])
    commands = (["base"], ["unnamed", "--labels", names])
    answers = [work.nlpctl("predict", *words, stdin=TEXTS) for words in commands]
    assert answers[1].returncode == 0, answers[1].stderr
    labels = [[json.loads(line)["label"] for line in each.stdout.splitlines()] for each in answers]
    assert labels[0] == labels[1]


def test_a_plan_is_shown_and_is_a_map(work, inference):
    done = work.nlpctl("convert-static", "inference", "--to", "base", "--plan", "-o", "plan.yaml")
    assert done.returncode == 0 and "linear_0.w_0" in done.stdout and "map: plan.yaml" in done.stderr
    again = work.nlpctl("convert-static", "inference", "--to", "base", "--map", "plan.yaml", "-o", "by_map", "--json")
    assert again.returncode == 0, again.stderr
    assert list(json.loads(again.stdout)["result"]["ways"]) == ["map"]


def test_an_export_with_fewer_layers_is_ambiguous_and_not_written(work, base, inference):
    """Its pooler is counted as the second layer's query would be."""
    shutil.copytree(base / "model", work / "deeper")
    config = json.loads((work / "deeper" / "config.json").read_text())
    (work / "deeper" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    done = work.nlpctl("convert-static", "inference", "--to", "deeper", "-o", "not_written")
    assert done.returncode == 2 and not (work / "not_written").exists()
    assert re.search(r"variables of shape .* in the role .*: \d, parameters: \d", done.stderr)


def test_a_conversion_can_be_repeated_but_not_onto_its_template(work, inference, converted):
    words = ("convert-static", "inference", "--to", converted)
    done = work.nlpctl(*words, "-o", "repeated")
    assert done.returncode == 0, done.stderr
    done = work.nlpctl(*words, "-o", "repeated", "--overwrite")
    assert done.returncode == 0, done.stderr
    refused = work.nlpctl(*words, "-o", converted, "--overwrite")
    assert refused.returncode == 2 and "this is an input" in refused.stderr, refused.stderr


def test_what_is_missing_is_told_and_nothing_is_replaced(work, base, inference):
    words = ("convert-static", "inference", "--to", "base", "--class", "ErnieForMaskedLM", "-o", "not_written")
    done = work.nlpctl(*words)
    assert done.returncode == 1 and not (work / "not_written").exists()
    assert "cls.predictions.transform.weight" in done.stdout and "parameters have no value" in done.stderr
    (work / "there").mkdir()
    (work / "there" / "notes.txt").write_text("mine")
    again = work.nlpctl("convert-static", "inference", "--to", "base", "-o", "there")
    assert again.returncode == 2 and "model folder" in again.stderr
    assert [path.name for path in (work / "there").iterdir()] == ["notes.txt"]
