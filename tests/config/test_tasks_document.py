"""docs/tasks.md says what is true: its recipes load, its links and names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nlpctl.config.library import shipped_recipes
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import KNOWN_TASKS

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S))


def test_every_task_has_a_section_and_a_row_with_its_scores() -> None:
    assert list(SECTIONS) == [info.name for info in KNOWN_TASKS] or set(SECTIONS) == {i.name for i in KNOWN_TASKS}
    for info in KNOWN_TASKS:
        (row,) = re.findall(rf"^\| \[{info.name}\]\(#{info.name}\) \|.*\| ([^|]*) \|$", DOCUMENT, re.M)
        assert set(row.split(", ")) <= set(info.metrics), info.name
        assert row.split(", ")[0] == info.metrics[0]  # the one that chooses when none is named


@pytest.mark.parametrize("task", SECTIONS)
def test_the_recipe_of_a_section_is_right(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[task], re.S)
    for name in ("corpus.txt", "held_out.txt", "words.txt", "train.jsonl"):
        (tmp_path / name).write_text("")
    if "train:" not in text:
        text = text.replace("data: {", "data: {train: train.jsonl, ") if "data: {" in text else text + (
            "data: {train: train.jsonl}\n"
        )
    (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml").task == task


def test_the_recipes_it_names_exist() -> None:
    shipped = {recipe.name for recipe in shipped_recipes()}
    for line in re.findall(r"^Recipes?: ((?:.|\n)*?)\.$", DOCUMENT, re.M):
        for name in (word for word in re.split(r",\s*", line.replace("under ", ""))):
            assert name in shipped or any(recipe.startswith(name) for recipe in shipped), name
