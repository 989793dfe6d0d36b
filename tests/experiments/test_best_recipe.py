"""The recipe of a sweep's best trial as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import with_settings
from nlpctl.config.recipe_text import commented, edited, without
from nlpctl.config.schema import SearchSection
from nlpctl.experiments.best_recipe import best_text

VALUES = {"training.learning_rate": 3.0000000000000004e-05, "model.freeze": ("embeddings",), "loss.focal_gamma": 0.5}
COMMENTS = {key: "found" for key in VALUES}
RECIPE = """\
# My reviews.
extends: base.yaml
task: sequence_classification
data: {train: train.tsv, max_seq_length: 32}  # short
# What is tried
search:
  space:  # of all
    training.learning_rate: {log: [1e-5, 1e-4]}
    model.freeze:
    - []
    - [embeddings]
  trials: 3
training:
  # from the paper
  learning_rate: 5e-5  # warm
"""
BEST = """\
# My reviews.
extends: {folder}/base.yaml
task: sequence_classification
data: {{train: {folder}/train.tsv, max_seq_length: 32}}  # short
training:
  # from the paper
  # found
  learning_rate: 3.0000000000000004e-05  # warm
  # from the command line: --seed
  seed: 7
  # the run directory of a new training; the trials have their own
  output_dir: {out}
model:
  # found
  freeze: [embeddings]
loss:
  # found
  focal_gamma: 0.5
"""


@pytest.fixture
def recipe(tmp_path: Path):
    (tmp_path / "base.yaml").write_text("model: {from_scratch: {}}\n")
    (tmp_path / "train.tsv").write_text("text\tlabel\na\tb\n")
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return load_recipe(tmp_path / "mine.yaml", [Override("training.seed", "7", "--seed")])


def test_comments_stay_and_values_change(recipe, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    file, output = tmp_path / "sweep" / "best.yaml", tmp_path / "out"
    text = best_text(recipe, RECIPE, VALUES, COMMENTS, file, output)
    assert text == BEST.format(folder=tmp_path, out=output)
    file.write_text(text)
    wanted = with_settings(recipe, {**VALUES, "training.output_dir": str(output)})
    assert load_recipe(file) == replace(wanted, search=SearchSection())
    assert [path.name for path in file.parent.iterdir()] == ["best.yaml"]


def test_what_cannot_be_changed_is_written_anew(recipe, tmp_path: Path) -> None:
    """An anchor of which another key is an alias: the resolved recipe stands in its place, with the same comments."""
    anchored = RECIPE.replace("{train: train.tsv, max_seq_length: 32}", "&d {train: [&t train.tsv], dev: [*t]}")
    (tmp_path / "mine.yaml").write_text(anchored)
    found = load_recipe(tmp_path / "mine.yaml")
    file = tmp_path / "best.yaml"
    file.write_text(best_text(found, anchored, VALUES, COMMENTS, file, tmp_path / "out"))
    assert load_recipe(file).training.learning_rate == VALUES["training.learning_rate"]
    assert file.read_text().count("# found") == 3


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ("a: 1\n", ("b", "c"), "a: 1\nb:\n  c:\n    x: 2\n"),
        ("b:\n    d: 1\n", ("b", "c"), "b:\n    c:\n      x: 2\n    d: 1\n"),
        ("b: {d: 1}\n", ("b", "c"), "b: {d: 1, c: {x: 2}}\n"),
        ("b:\na: 1\n", ("b", "c"), "b:\n  c:\n    x: 2\na: 1\n"),
        ("b: {c: {x: 1}}\n", ("b", "c"), "b: {c: {x: 2}}\n"),
        ("b: 7\n", ("b", "c"), None),
        ("x: [1]\n", (), "x: [2]\n"),
    ],
)
def test_a_value_in_a_section(before: str, path: tuple[str, ...], after: str | None) -> None:
    assert edited(before, path, {"x": "[2]" if not path else "2"}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("b:\n  d: 1 # one\n\n  # e\n  e:\n    - 2\n\n# f\nf: 3\n",
         "b:\n  d: 1 # one\n\n  # e\n  e:\n    - 2\n  x: 2\n\n# f\nf: 3\n"),
        ("b:\n  d: 1", "b:\n  d: 1\n  x: 2\n"),
        ("b:\n  d:\nf: 3\n", "b:\n  d:\n  x: 2\nf: 3\n"),
    ],
)  # fmt: skip
def test_a_new_value_comes_last(before: str, after: str) -> None:
    assert edited(before, ("b",), {"x": "2"}, last=True) == after


def test_a_comment_is_one_line() -> None:
    assert commented("a: 1\n", {"a": "one of x\ny, z"}) == "# one of x y, z\na: 1\n"


def test_lines_come_and_go() -> None:
    text = "a: 1\n# b\nb:\n  c: {x: 1}\n  # inner\n  d:\n    - 1\n    - 2 # two\n# e\ne: 3\n"
    assert without(text, "b") == "a: 1\n# e\ne: 3\n" and without(text, "z") == text
    assert without("a: 1\nb: {x: 1,\n  y: 2}\n", "b") == "a: 1\n"
    assert commented(text, {"b.c.x": "one", "e": "two", "z": "no"}) == text.replace(
        "  c: {", "  # one\n  c: {"
    ).replace("e: 3", "# two\ne: 3")
