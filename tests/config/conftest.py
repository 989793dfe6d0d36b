"""A recipe that is right in every way, to be made wrong in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.errors import Problem, UserError

GOOD = """\
task: sequence_classification
model: {from_scratch: {}}
data: {train: train.tsv}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with train.tsv and dev.tsv."""
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("text\tlabel\ngood\t1\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Callable[..., Recipe]:
    """Write a text to recipe.yaml and load it; keyword arguments are further files: `base="..."` is base.yaml."""

    def write_and_load(text: str, *overrides: Override, purpose: str = "train", **files: str) -> Recipe:
        for name, content in files.items():
            (folder / f"{name}.yaml").write_text(content, encoding="utf-8")
        (folder / "recipe.yaml").write_text(text, encoding="utf-8")
        return load_recipe(folder / "recipe.yaml", overrides, purpose)

    return write_and_load


@pytest.fixture
def problems(load: Callable[..., Recipe], folder: Path) -> Callable[..., list[Problem]]:
    """The problems of a text; the folder's name is cut from where they are."""

    def find(text: str, *overrides: Override, purpose: str = "train", **files: str) -> list[Problem]:
        with pytest.raises(UserError) as caught:
            load(text, *overrides, purpose=purpose, **files)
        return [
            Problem(each.message, each.where.replace(f"{folder}/", ""), each.hint) for each in caught.value.problems
        ]

    return find
