"""Code that only the folder of a run or a model names is never imported, whatever key names it and wherever it lies."""

from __future__ import annotations

import copy
import json
import pickle
from operator import attrgetter
from pathlib import Path

import pytest

from nlpctl.config.dump import dump_recipe
from nlpctl.config.keys import all_keys
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import recipe_of, with_settings, with_student
from nlpctl.config.user_code import CODE_KEYS, Unnamed, import_function, module_file, refuse_unnamed, require_named
from nlpctl.errors import UserError
from nlpctl.models.user_network import KEY, check_named

LISTS = ("data.map", "data.filter", "training.callbacks")
RECIPE = "task: sequence_classification\ndata: {train: a.tsv}\nmodel: {name_or_path: some-model}\n"


def recipe_with(key: str, name: str) -> str:
    """A recipe that names code under a dotted key."""
    values: object = [name] if key in LISTS else name
    for part in reversed(key.split(".")):
        values = {part: values}
    return json.dumps({"task": "sequence_classification", **values})


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """The folder of a run, opened from a folder beside it."""
    run = tmp_path / "outputs" / "run"
    (run / "model").mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (run / "model" / "task.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return run


def first(recipe, key: str) -> str:
    value = attrgetter(key)(recipe)
    return value[0] if isinstance(value, tuple) else value


def test_every_key_of_code_is_known():
    told = {name for name, key in all_keys().items() if key.help and "Your own" in key.help}
    assert told <= {*CODE_KEYS} and len(CODE_KEYS) == 14


@pytest.mark.parametrize("key", CODE_KEYS)
def test_what_a_folder_names_is_not_imported(run, key):
    (run / "recipe.yaml").write_text(recipe_with(key, "os:system"))
    for source in (run, run / "recipe.yaml", "outputs/run"):
        recipe = load_recipe(source, purpose="apply")
        name = first(recipe, key)
        assert name == "os:system"
        with pytest.raises(UserError, match="outputs/run asks to run code: os:system") as told:
            import_function(name, key, "a function")
        assert f"--set {key}=os:system" in told.value.problems[0].hint
        with pytest.raises(UserError, match="asks to run code"):
            require_named(recipe)


@pytest.mark.parametrize("key", CODE_KEYS)
def test_what_the_user_names_too_is_imported(run, key):
    (run / "recipe.yaml").write_text(recipe_with(key, "json:loads"))
    named = load_recipe(run, [Override(key, "json:loads", f"--set {key}")], "apply")
    require_named(named)
    assert import_function(first(named, key), key, "a function") is json.loads
    (run.parent / "mine.yaml").write_text(recipe_with(key, "json:loads"))
    own = load_recipe(run.parent / "mine.yaml", purpose="apply")
    require_named(own)
    require_named(recipe_of(run, named_by=own))
    with pytest.raises(UserError):
        require_named(recipe_of(run, named_by=recipe_of(run)))


@pytest.mark.parametrize("left", ["manifest.json", "model/task.json"])
def test_a_run_is_known_without_some_of_its_files(run, left):
    (run / "recipe.yaml").write_text(recipe_with("data.reader", "runpy:run_path"))
    (run / left).unlink()
    for source in (run, run / "recipe.yaml"):
        with pytest.raises(UserError, match="asks to run code"):
            require_named(load_recipe(source, purpose="apply"))


def test_what_a_recipe_of_a_run_extends_is_of_the_run(run):
    (run / "base.yaml").write_text(recipe_with("data.reader", "runpy:run_path"))
    (run / "recipe.yaml").write_text("extends: base.yaml\ntask: sequence_classification\n")
    (run.parent / "mine.yaml").write_text("extends: run/recipe.yaml\n")
    for source in (run, run.parent / "mine.yaml"):
        with pytest.raises(UserError, match="asks to run code"):
            require_named(load_recipe(source, purpose="apply"))


def test_a_student_that_a_run_names_is_of_the_run(run):
    (run / "student.yaml").write_text(recipe_with("model.network", "os:system"))
    (run / "recipe.yaml").write_text(RECIPE + "distillation: {student: student.yaml}\n")
    with pytest.raises(UserError, match="asks to run code"):
        require_named(with_student(recipe_of(run)).student)
    (run.parent / "student.yaml").write_text(recipe_with("model.network", "json:loads"))
    (run.parent / "mine.yaml").write_text(RECIPE + "distillation: {student: student.yaml}\n")
    require_named(with_student(load_recipe(run.parent / "mine.yaml", purpose="apply")).student)


def test_what_a_sweep_of_a_folder_tries_stays_the_folders(run):
    space = "search: {space: {training.criterion: [os:system, null], training.callbacks: [[a:b], [c:d]]}}\n"
    (run / "recipe.yaml").write_text(RECIPE + space)
    recipe = recipe_of(run)
    with pytest.raises(UserError, match="asks to run code") as told:
        require_named(recipe)
    assert "--set 'search.space.training.criterion=[os:system, null]'" in told.value.problems[0].hint
    choice = recipe.search.space["training.criterion"].choices[0]
    with pytest.raises(UserError):
        require_named(with_settings(recipe_of(run), {"training.criterion": choice, "search.space": {}}))
    changes = [Override("search.space.training.criterion", "[os:system, null]", "--set"),
               Override("search.space.training.callbacks", "[[a:b], [c:d]]", "--set")]  # fmt: skip
    require_named(load_recipe(run, changes, "apply"))


def test_a_mark_goes_with_the_name_into_other_processes_but_into_no_file(run):
    (run / "recipe.yaml").write_text(recipe_with("data.map", "os:system"))
    recipe = recipe_of(run)
    for same in (pickle.loads(pickle.dumps(recipe)), copy.deepcopy(recipe)):
        assert same.data.map[0].flags == "--set data.map=os:system" and same.data.map[0].folder == run
    assert "map: ['os:system']" in dump_recipe(recipe) or "map: [os:system]" in dump_recipe(recipe)


def test_one_message_names_all_that_a_command_may_need(run):
    names = "data: {reader: a:b, map: [c:d, e:f]}\nmodel: {network: g:H}\ntraining: {callbacks: i:j}\n"
    (run / "recipe.yaml").write_text("task: sequence_classification\n" + names)
    reading = "--set data.reader=a:b --set data.map=c:d,e:f --set model.network=g:H"
    assert recipe_of(run).data.map[1].flags == reading
    recipe = load_recipe(run, [Override("data.reader", "a:b", "--set data.reader")], "apply")
    assert type(recipe.data.reader) is str
    assert recipe.data.map[0].flags == "--set data.map=c:d,e:f --set model.network=g:H"


def test_a_flag_is_safe_to_copy_into_a_shell(run):
    (run / "recipe.yaml").write_text(recipe_with("distillation.model.network", "$(rm -rf ~)"))
    assert recipe_of(run).distillation.model.network.flags == "--set 'distillation.model.network=$(rm -rf ~)'"


def test_a_model_folder_is_opened_too(run):
    content = {"format": 1, "task": "sequence_classification", "trained": True, "data": {}}
    content["model"] = {"network": "os:system"}
    (run / "model" / "task.json").write_text(json.dumps(content))
    name = recipe_of(run / "model").model.network
    assert isinstance(name, Unnamed)
    with pytest.raises(UserError, match="model.network"):
        check_named({KEY: {"class": "os:system"}}, name, run / "model")


def test_a_module_is_found_without_importing_its_packages(tmp_path, monkeypatch):
    for name in ("evil/__init__.py", "evil/net.py", "plain/net.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    assert module_file("evil.net:f") == tmp_path / "evil" / "net.py"
    assert module_file("plain.net:f") == tmp_path / "plain" / "net.py"
    assert module_file("json.decoder:f").name == "decoder.py"
    assert module_file("sys:f") is None and module_file("evil.nothing:f") is None and module_file("no.where:f") is None
    with pytest.raises(UserError, match="of evil/net.py"):
        refuse_unnamed(Unnamed("evil.net:f", tmp_path), "data.map")
