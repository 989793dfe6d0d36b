"""Every recipe and config that comes with nlpctl."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nlpctl.config.library import copy_recipe, find_recipe, shipped_recipes, shipped_root
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import task_info
from nlpctl.errors import UserError

CONFIGS = sorted((shipped_root() / "configs").rglob("*.yaml"))
FROM_ENVIRONMENT = re.compile(r"\$\{env:(\w+)\}/([\w./-]+)")


@pytest.fixture
def data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the data that recipes find through environment variables."""
    for recipe in shipped_recipes():
        for name, file in FROM_ENVIRONMENT.findall(recipe.path.read_text(encoding="utf-8")):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x\n")
            monkeypatch.setenv(name, str(tmp_path / name))


def test_there_are_recipes() -> None:
    assert {"sentiment/chnsenticorp", "sentiment/sst2_minilm", "matching/bustm"} <= {
        each.name for each in shipped_recipes()
    }


@pytest.mark.parametrize("recipe", shipped_recipes(), ids=lambda recipe: recipe.name)
def test_recipes_load_and_teach(recipe, data_folders) -> None:
    loaded = load_recipe(recipe.path)
    assert task_info(loaded.task) is not None
    assert len(recipe.title) > 20 and recipe.title.endswith((".", ":"))
    header = [line for line in recipe.path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert any("nlpctl train" in line for line in header)


@pytest.mark.parametrize("recipe", shipped_recipes(), ids=lambda recipe: recipe.name)
def test_copies_work_anywhere(recipe, data_folders, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    written = copy_recipe(recipe.name, target, overwrite=False)
    copied = target / recipe.path.name
    assert copied in written and all(path.is_file() for path in written)
    assert [path for path in written if path.suffix == ".yaml"] == [copied]
    ours, theirs = load_recipe(recipe.path), load_recipe(copied)
    if ours.model.embeddings is not None:  # copied too, so it lies elsewhere
        assert Path(theirs.model.embeddings).read_bytes() == Path(ours.model.embeddings).read_bytes()
        theirs = replace(theirs, model=replace(theirs.model, embeddings=ours.model.embeddings))
    assert theirs.training == ours.training and theirs.model == ours.model
    before, after = recipe.path.read_text(encoding="utf-8"), copied.read_text(encoding="utf-8")
    assert [line for line in before.splitlines() if not line.startswith("extends")] == [
        line for line in after.splitlines() if not line.startswith("extends")
    ]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_configs_can_be_extended(config: Path, tmp_path: Path) -> None:
    name = config.relative_to(shipped_root()).as_posix()
    (tmp_path / "x.tsv").write_text("x")
    (tmp_path / "recipe.yaml").write_text(
        f"extends: nlpctl:{name}\ntask: sequence_classification\nmodel: {{from_scratch: {{}}}}\n"
        "data: {train: x.tsv, dev: x.tsv}\n"
    )
    load_recipe(tmp_path / "recipe.yaml")


def test_copy_never_overwrites_unasked(tmp_path: Path) -> None:
    copy_recipe("chnsenticorp", tmp_path, overwrite=False)
    mine = tmp_path / "chnsenticorp.yaml"
    mine.write_text("mine")
    with pytest.raises(UserError, match="this file exists"):
        copy_recipe("chnsenticorp", tmp_path, overwrite=False)
    assert mine.read_text() == "mine"
    copy_recipe("chnsenticorp", tmp_path, overwrite=True)
    assert mine.read_text(encoding="utf-8").startswith("# ")


def test_copy_into_a_file_or_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="not a folder"):
        copy_recipe("chnsenticorp", tmp_path / "file", overwrite=False)
    with pytest.raises(UserError, match="no recipe of nlpctl"):
        copy_recipe("nope", tmp_path, overwrite=False)


def test_names_are_found_where_they_are_clear() -> None:
    assert find_recipe("bustm").name == find_recipe("recipes/matching/bustm.yaml").name == "matching/bustm"
    assert find_recipe("sentiment") is None  # two recipes
    assert find_recipe("nope") is None
