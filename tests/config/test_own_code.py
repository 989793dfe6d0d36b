"""Code that lies in the folder of a run or a model is found out before any of it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.own_code import module_file
from nlpctl.config.recipe_of import recipe_of
from nlpctl.errors import UserError
from nlpctl.layout import whole_folder
from nlpctl.models.own_network import KEY, check_named

LOUD = "import pathlib\npathlib.Path({!r}).touch()\ndef f(row): return row\nclass Net: pass\n"
RECIPE = "task: sequence_classification\ndata: {{train: a.tsv, map: [{}]}}\nmodel: {{name_or_path: some-model}}\n"


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """project/outputs/run, with a package, a module and a package without __init__.py, all of which would tell."""
    run = tmp_path / "project" / "outputs" / "run"
    for folder in ("model", "checkpoints/checkpoint-3", "evil", "plain"):
        (run / folder).mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (run / "model" / "task.json").write_text('{"task": "sequence_classification", "data": {"map": ["evil.net:f"]}}')
    for name in ("evil/__init__.py", "evil/net.py", "plain/net.py", "flat.py"):
        (run / name).write_text(LOUD.format(str(tmp_path / "it ran")))
    monkeypatch.chdir(run)
    yield run
    assert not (tmp_path / "it ran").exists()
    assert not {"evil", "flat", "plain"} & {*sys.modules}


@pytest.mark.parametrize("name", ["evil.net:f", "plain.net:f", "flat:f", "evil.nothing:f"])
def test_no_part_comes_from_the_run_that_is_opened(run, name):
    (run / "recipe.yaml").write_text(RECIPE.format(name))
    for source in (".", "recipe.yaml", run):
        with pytest.raises(UserError, match="data.map: .* which came with"):
            load_recipe(source, purpose="apply")


@pytest.mark.parametrize("key", ["data.reader", "training.criterion", "compression.evaluate", "model.network"])
def test_whoever_names_it(run, key):
    (run / "recipe.yaml").write_text(RECIPE.format(""))
    with pytest.raises(UserError, match=f"{key}: flat:f would be imported from .* which came with"):
        load_recipe(".", [Override(key, "flat:f", "--set")], purpose="apply")


def test_nor_by_a_name_through_the_folders(run, monkeypatch):
    monkeypatch.chdir(run.parent.parent)
    (run / "recipe.yaml").write_text(RECIPE.format("outputs.run.flat:f"))
    with pytest.raises(UserError, match="flat.py, which came with"):
        load_recipe("outputs/run", purpose="apply")


def test_a_model_folder_of_a_run_brings_none_of_the_run(run):
    with pytest.raises(UserError, match=r"evil.__init__.py, which came with"):
        recipe_of(Path("model"))


def test_code_beside_the_runs_is_the_owners(run, monkeypatch):
    project = run.parent.parent
    (project / "flat.py").write_text("def f(row): return row\n")
    monkeypatch.chdir(project)
    (run / "recipe.yaml").write_text(RECIPE.format("flat:f"))
    assert load_recipe("outputs/run", purpose="apply").data.map == ("flat:f",)


def test_a_recipe_file_is_its_owners(run, tmp_path):
    """Nothing but a run or a model is a folder that is opened."""
    (tmp_path / "mine.yaml").write_text(RECIPE.format("flat:f"))
    assert load_recipe(tmp_path / "mine.yaml", purpose="apply").data.map == ("flat:f",)


@pytest.mark.parametrize("name", ["evil.net:Net", "flat:Net"])
@pytest.mark.parametrize("folder", ["model", "checkpoints/checkpoint-3"])
def test_no_network_comes_from_a_run_at_any_level(run, name, folder):
    with pytest.raises(UserError, match="model.network: .* which came with"):
        check_named({KEY: {"class": name}}, name, Path(folder))


def test_a_whole_folder_is_the_outermost_run(run):
    inner = run / "compress" / "qat" / "model"
    inner.mkdir(parents=True)
    for folder in (run, run / "model", run / "checkpoints" / "checkpoint-3", inner):
        assert whole_folder(folder) == run.resolve()
    project = run.parent.parent
    (project / "manifest.json").write_text("{}")  # of another program
    assert whole_folder(project / "outputs" / "else") == (project / "outputs" / "else").resolve()
    assert whole_folder(run / "model") == run.resolve()


def test_a_module_is_found_without_importing_its_packages(run):
    assert module_file("evil.net:f") == Path.cwd() / "evil" / "net.py"
    assert module_file("plain.net:f") == Path.cwd() / "plain" / "net.py"
    assert module_file("json.decoder:f").name == "decoder.py"
    assert module_file("sys:f") is None and module_file("evil.nothing:f") is None and module_file("no.where:f") is None
