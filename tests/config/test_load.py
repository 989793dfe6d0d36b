"""Extending, interpolating, overriding, and where paths start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.errors import UserError
from nlpctl.outputs import inputs_noted, refuse_inputs

GOOD = "task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n"


def where(recipe, dotted: str) -> str:
    return str(recipe.origins[dotted]).rpartition("/")[2]


def test_precedence_and_origins(load) -> None:
    recipe = load(
        "extends: [a.yaml, b.yaml]\n" + GOOD + "training:\n  seed: 3\n",
        Override("training.learning_rate", "4", "--learning_rate"),
        a="training:\n  seed: 1\n  learning_rate: 1\n  weight_decay: 0.1\n  adam_beta1: 0.1\n",
        b="extends: c.yaml\ntraining:\n  seed: 2\n  learning_rate: 2\n  weight_decay: 0.2\n",
        c="training: {adam_epsilon: 0.5, weight_decay: 0.9}\n",
    )
    training = recipe.training
    assert (training.seed, training.learning_rate, training.weight_decay) == (3, 4.0, 0.2)
    assert (training.adam_beta1, training.adam_epsilon, training.adam_beta2) == (0.1, 0.5, 0.999)
    assert where(recipe, "training.seed") == "recipe.yaml:6"
    assert where(recipe, "training.learning_rate") == "--learning_rate"
    assert where(recipe, "training.weight_decay") == "b.yaml:5"
    assert where(recipe, "training.adam_epsilon") == "c.yaml:1"
    assert where(recipe, "training.adam_beta2") == "default"
    assert recipe.where("training.adam_epsilon").endswith("c.yaml:1 (training.adam_epsilon)")


def test_shipped_fragments_can_be_extended(load) -> None:
    recipe = load("extends: nlpctl:configs/base.yaml\n" + GOOD.replace("train.tsv", "train.tsv, dev: dev.tsv"))
    assert recipe.training.load_best_model_at_end and recipe.training.evaluation_strategy == "epoch"


def test_files_that_extend_each_other(problems) -> None:
    found = problems("extends: a.yaml\n" + GOOD, a="extends: recipe.yaml\n")
    assert found[0].where == "a.yaml:1" and "recipe.yaml ->" in found[0].message


def test_a_missing_parent_has_the_nearest_name(problems) -> None:
    (problem,) = problems("extends: bsae.yaml\n" + GOOD, base="training: {seed: 1}\n")
    assert problem.where == "recipe.yaml:1" and problem.hint == "did you mean base.yaml?"


@pytest.mark.parametrize("value", ["{a: 1}", "[{a: 1}]"])
def test_extends_must_name_files(problems, value: str) -> None:
    (problem,) = problems(f"extends: {value}\n" + GOOD)
    assert "expected a file" in problem.message


def test_interpolation(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLPCTL_TEST_NAME", "abc")
    recipe = load(
        GOOD + "training:\n  run_name: ${env:NLPCTL_TEST_NAME}-${training.seed}-${training.logging_steps}$${x}\n"
        "  seed: ${data.max_seq_length}\n  logging_steps: ${training.save_steps}\n  report_to: [visualdl]\n"
        "compression: {batch_size_list: '${compression.batch_num_list}', batch_num_list: [4]}\n"
    )
    assert recipe.training.run_name == "abc-128-500${x}"
    assert recipe.training.seed == 128
    assert recipe.compression.batch_size_list == (4,)


def test_a_reference_to_a_list_that_is_not_set_is_its_default(load) -> None:
    recipe = load(
        "task: sequence_classification\ndata: {train: train.tsv}\n"
        "model: {from_scratch: {architecture: textcnn}}\n"
        "distillation: {model: {from_scratch: {kernel_sizes: '${model.from_scratch.kernel_sizes}'}}}\n",
        purpose="apply",
    )
    sizes = recipe.model.from_scratch.kernel_sizes
    assert sizes and recipe.distillation.model.from_scratch.kernel_sizes == sizes


def test_interpolated_values_keep_their_place(load) -> None:
    recipe = load(GOOD + "training:\n  seed: 7\n  save_steps: ${training.seed}\n")
    assert where(recipe, "training.save_steps") == "recipe.yaml:6"


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        ("${env:NLPCTL_TEST_UNSET}", "NLPCTL_TEST_UNSET is not set", "export NLPCTL_TEST_UNSET=..."),
        ("${env:NLPCTL_TEST_EMPTY}", "NLPCTL_TEST_EMPTY is empty", "export"),
        ("${training.sede}", "names no value", "did you mean ${training.seed}?"),
        ("${training}", "is a section", "key inside"),
        ("${model.from_scratch}", "is a section", "key inside"),
        ("x${data.train}", "has no single value", "write the value out"),
        ("x${runtime.threads}", "has no single value", "write the value out"),
        ("${training.seed", "is not closed", "${section.key}"),
        ("${training.run_name}", "training.run_name -> training.run_name", "write one"),
        ("x${training.optim}", "is circular", "write one"),
    ],
)
def test_interpolation_that_fails(problems, monkeypatch, value: str, message: str, hint: str) -> None:
    monkeypatch.delenv("NLPCTL_TEST_UNSET", raising=False)
    monkeypatch.setenv("NLPCTL_TEST_EMPTY", "")
    data = GOOD.replace("train.tsv", "[train.tsv, dev.tsv]")
    (problem,) = problems(
        data + f"training:\n  run_name: '{value}'\n  optim: '${{training.run_name}}'\n", purpose="apply"
    )[:1]
    assert message in problem.message and hint in problem.hint
    assert problem.where in ("recipe.yaml:5", "recipe.yaml:6")


def test_overrides(load) -> None:
    recipe = load(
        GOOD,
        Override("training.report_to", ("visualdl", "wandb"), "--report_to"),
        Override("runtime.devices", "0,1", "--devices"),
        Override("data.labels", "neg,pos", "--set data.labels"),
        Override("data.columns", "{text: a, label: b}", "--set data.columns"),
        Override("model.config.hidden_act", "gelu", "--set model.config.hidden_act"),
        Override("model.config.dropout", "1e-1", "--set model.config.dropout"),
        Override("training.logging_dir", "null", "--logging_dir"),
        Override("compression.width_mult_list", "[3/4]", "--width_mult_list"),
        Override("training.sharding", "", "--sharding"),
        purpose="apply",  # wandb need not be installed
    )
    assert recipe.training.report_to == ("visualdl", "wandb")
    assert recipe.runtime.devices == (0, 1)
    assert recipe.data.labels == ("neg", "pos")
    assert (recipe.data.columns.text, recipe.data.columns.label) == ("a", "b")
    assert recipe.model.config == {"hidden_act": "gelu", "dropout": 0.1}
    assert recipe.training.logging_dir is None
    assert recipe.compression.width_mult_list == ("3/4",)
    assert recipe.training.sharding == ""


@pytest.mark.parametrize("name", ["x,y.tsv", "[final] y.tsv", "{a}.tsv", "${a}.tsv", "null", "a  b.tsv"])
def test_the_name_of_a_file_is_no_syntax(load, folder: Path, name: str) -> None:
    given = Override("data.train", name, "FILE", literal=True)
    recipe = load("task: sequence_classification\n", given, purpose="apply")
    assert recipe.data.train == (str(Path.cwd() / name),)


def test_a_section_from_the_command_line(load) -> None:
    text = "task: sequence_classification\ndata: {train: train.tsv}\n"
    recipe = load(text, Override("model.from_scratch", "{hidden_size: 64}", "--set model.from_scratch"))
    assert recipe.model.from_scratch.hidden_size == 64
    recipe = load(GOOD, Override("model.from_scratch.hidden_size", "32", "--set model.from_scratch.hidden_size"))
    assert recipe.model.from_scratch.hidden_size == 32


def test_bad_overrides_name_the_flag(problems) -> None:
    found = problems(
        GOOD,
        Override("training.seed", "x", "--seed"),
        Override("data.max_sequence_length", "3", "--set data.max_sequence_length"),
        Override("data.columns", "{text: [", "--set data.columns"),
    )
    assert [each.where for each in found] == ["--set data.columns", "--set data.max_sequence_length", "--seed"]
    assert found[1].hint == "did you mean data.max_seq_length?"


def test_of_thousands_of_unknown_keys_the_first_get_a_guess(problems) -> None:
    keys = ", ".join(f"max_seq_length{number}: 1" for number in range(200))
    found = problems(f"task: sequence_classification\ndata: {{train: t.tsv, {keys}}}\n")
    guessed = [each.hint.startswith("did you mean") for each in found if each.message.startswith("unknown key")]
    assert guessed == [True] * 100 + [False] * 100


def test_managed_fields_are_refused_with_the_remedy(problems) -> None:
    found = problems(
        GOOD + "training:\n  device: gpu\n  no_cuda: true\n", Override("training.do_train", "true", "--do_train")
    )
    assert [each.where for each in found] == ["recipe.yaml:5", "recipe.yaml:6", "--do_train"]
    assert "runtime.device" in found[0].hint and "nlpctl train" in found[2].hint


def test_paths(load, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, home = folder / "here", folder / "home"
    (folder / "bert").mkdir()
    (folder / "sub").mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NLPCTL_TEST_DIR", "given")
    recipe = load(
        "extends: sub.yaml\ntask: sequence_classification\nmodel: {name_or_path: bert}\n"
        "data: {train: [a.tsv, ~/b.tsv, '${env:NLPCTL_TEST_DIR}/c.tsv'], dev: ../d.tsv, labels: labels.txt}\n"
        "training: {output_dir: out, logging_dir: logs}\nruntime: {cache_dir: cache}\n",
        Override("data.test", "e.tsv", "--set data.test"),
        purpose="apply",
        sub="data: {train: x.tsv}\n",
    )
    assert recipe.data.train == (f"{folder}/a.tsv", f"{home}/b.tsv", f"{here}/given/c.tsv")
    assert recipe.data.dev == (f"{folder.parent}/d.tsv",)
    assert recipe.data.test == (f"{here}/e.tsv",)
    assert recipe.data.labels == f"{folder}/labels.txt"
    assert recipe.training.output_dir == f"{here}/out" and recipe.training.logging_dir == f"{here}/logs"
    assert recipe.run_dir == here / "out"
    assert recipe.runtime.cache_dir == f"{folder}/cache"
    assert recipe.model.name_or_path == f"{folder}/bert"


def test_data_set_names_and_folders(load, folder: Path) -> None:
    (folder / "reviews").mkdir()
    head = "task: sequence_classification\nmodel: {from_scratch: {}}\n"
    expected = {
        "reviews": f"{folder}/reviews",
        "./reviews": f"{folder}/reviews",
        "glue/cola": "glue/cola",
        "hf:a": "hf:a",
    }
    assert {name: load(f"{head}data: {{dataset: '{name}'}}\n").data.dataset for name in expected} == expected


def test_the_files_of_a_data_set_are_inputs(load, folder: Path) -> None:
    (folder / "reviews").mkdir()
    (folder / "reviews/train.jsonl").write_text("{}\n")
    with inputs_noted(), pytest.raises(UserError, match="this is an input .*data.dataset"):
        load("task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {dataset: reviews}\n")
        refuse_inputs(folder / "reviews/train.jsonl")


@pytest.mark.parametrize("name", ["ernie-3.0-medium-zh", "org/name", "python:package/model"])
def test_model_names_stay_names(load, name: str) -> None:
    recipe = load(f"task: sequence_classification\nmodel: {{name_or_path: '{name}'}}\ndata: {{train: train.tsv}}\n")
    assert recipe.model.name_or_path == name


def test_inherited_paths_start_at_their_own_file(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "base.yaml").write_text("data: {train: x.tsv, dev: [y.tsv]}\n")
    (folder / "recipe.yaml").write_text("extends: sub/base.yaml\ntask: sequence_classification\n")
    recipe = load_recipe(folder / "recipe.yaml", purpose="apply")
    assert recipe.data.train == (f"{folder}/sub/x.tsv",) and recipe.data.dev == (f"{folder}/sub/y.tsv",)


def test_the_default_run_directory_is_absolute(load) -> None:
    assert load(GOOD).training.output_dir == os.path.join(os.getcwd(), "outputs", "run")


def test_a_run_directory_is_its_recipe(load, folder: Path) -> None:
    run = folder / "moved"
    run.mkdir()
    (run / "recipe.yaml").write_text(GOOD + "training: {output_dir: /elsewhere, seed: 5}\n")
    recipe = load_recipe(run, purpose="apply")
    assert recipe.training.seed == 5 and recipe.training.output_dir == str(run)


def test_a_model_folder_gives_task_and_data(folder: Path) -> None:
    task = {
        "format": 1,
        "task": "sequence_classification",
        "trained": True,
        "data": {
            "columns": {"text": "a", "text_pair": None, "label": "no"},
            "max_seq_length": 64,
            "tokenizer": "auto",
            "header": False,
        },
    }
    (folder / "task.json").write_text(json.dumps(task))
    recipe = load_recipe(folder, purpose="apply")
    assert recipe.model.name_or_path == str(folder)
    assert (recipe.data.columns.text, recipe.data.columns.text_pair, recipe.data.columns.label) == ("a", None, "no")
    assert (recipe.data.max_seq_length, recipe.data.header) == (64, False)


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"task": "x"}', '{"task": "sequence_classification", "data": 3}']
)
def test_a_broken_model_folder(folder: Path, content: str) -> None:
    (folder / "task.json").write_text(content)
    with pytest.raises(UserError, match="task.json"):
        load_recipe(folder, purpose="apply")


def test_sources_that_are_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "recipe.yaml").write_text(GOOD)
    (folder / "empty").mkdir()
    for source, words in {
        "recipe.yml": "did you mean recipe.yaml?",
        "nowhere/x": "nlpctl recipe ls",
        "": "nlpctl recipe ls",
        "sentiment/chnsenticor": "sentiment/chnsenticorp",
        "empty": "neither a run",
        "/dev/null": "not a regular file",
    }.items():
        with pytest.raises(UserError) as caught:
            load_recipe(source)
        assert words in str(caught.value), source


def test_shipped_recipes_go_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sentiment/chnsenticorp", "chnsenticorp", "nlpctl:recipes/sentiment/chnsenticorp.yaml"):
        assert load_recipe(name).model.name_or_path == "ernie-3.0-medium-zh"


@pytest.mark.parametrize("task", ["", "task:\n", "task: [a]\n", "task: sequence_clasification\n"])
def test_the_task_must_be_known(problems, task: str) -> None:
    (problem,) = problems(task + GOOD.partition("\n")[2])
    assert problem.message.startswith("task:") and "sequence_classification" in problem.hint


def test_the_best_model_is_chosen_by_the_task_unless_the_recipe_says(tmp_path: Path) -> None:
    text = "model: {from_scratch: {}}\ndata: {train: t.jsonl, dev: t.jsonl, columns: {text_pair: b}}\n"
    (tmp_path / "t.jsonl").write_text("")
    best = "training: {load_best_model_at_end: true, evaluation_strategy: epoch, save_strategy: epoch%s}\n"
    chosen = {}
    auc = ", metric_for_best_model: auc"
    for task, more in (("text_matching", ""), ("semantic_indexing", ""), ("text_matching", auc)):
        (tmp_path / "r.yaml").write_text(f"task: {task}\n" + text + best % more)
        recipe = load_recipe(tmp_path / "r.yaml")
        chosen[task + more] = recipe.training.metric_for_best_model
    assert list(chosen.values()) == ["accuracy", "recall@1", "auc"]
    (tmp_path / "r.yaml").write_text("task: text_matching\n" + text)
    assert load_recipe(tmp_path / "r.yaml").training.metric_for_best_model is None  # nothing is chosen


def test_files_that_many_extend_are_read_once(tmp_path: Path) -> None:
    """26 files, each of which extends the next one twice: 2**26 readings would take days."""
    (tmp_path / "0.yaml").write_text(GOOD)
    for level in range(1, 27):
        (tmp_path / f"{level}.yaml").write_text(f"extends: [{level - 1}.yaml, {level - 1}.yaml]\n")
    assert load_recipe(tmp_path / "26.yaml", purpose="apply").task == "sequence_classification"
