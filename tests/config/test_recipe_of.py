"""Which recipe counts: that of a folder, of a student, of values."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import load_recipe, recipe_of_values
from nlpctl.config.recipe_of import recipe_of, usable_student, with_process_of, with_settings, with_student
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.models.folder import kept_values

DATA = "data: {train: train.tsv, max_seq_length: 48}\n"


@pytest.fixture
def taught(tmp_path: Path) -> Recipe:
    """A recipe whose student is to be described in student.yaml."""
    (tmp_path / "recipe.yaml").write_text(f"task: text_matching\n{DATA}distillation: {{student: student.yaml}}\n")
    return load_recipe(tmp_path / "recipe.yaml", purpose="apply")


def test_a_network_is_read_as_it_was_trained_in_the_process_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(f"task: text_matching\n{DATA}runtime: {{threads: 3}}\n")
    asked = recipe_of_values({"task": "text_matching", "runtime": {"threads": 1}, "inference": {"precision": "fp32"}})
    assert recipe_of(tmp_path).run_dir == tmp_path
    found = with_process_of(recipe_of(tmp_path), asked)
    assert (found.data, found.runtime, found.inference) == (recipe_of(tmp_path).data, asked.runtime, asked.inference)


def test_a_student_goes_with_the_recipe_once_it_is_read(tmp_path: Path, taught: Recipe) -> None:
    student = tmp_path / "student.yaml"
    student.write_text("task: text_matching\nmodel: {from_scratch: {architecture: bilstm}}\n")
    assert taught.student is None
    found = with_student(taught)
    assert found == taught and dump_recipe(found) == dump_recipe(taught)  # it is no key of the recipe
    assert usable_student(found).model.from_scratch.architecture == "bilstm"
    student.write_text("task: sequence_classification\n")
    with pytest.raises(UserError, match="the student's task is sequence_classification, the teacher's text_matching"):
        usable_student(with_student(found))
    student.unlink()
    assert with_student(found).student is None
    with pytest.raises(UserError, match="there is no such recipe") as told:
        usable_student(with_student(found))
    assert "recipe.yaml:3 (distillation.student)" in told.value.problems[0].where
    assert with_student(recipe_of_values({"task": "text_matching"})).student is None


def test_a_student_that_is_no_recipe_is_refused(tmp_path: Path, taught: Recipe) -> None:
    (tmp_path / "student.yaml").write_text("task: text_matching\nmodel: {layers: 3}\n")
    with pytest.raises(UserError, match="layers"):
        with_student(taught)


def test_values_make_the_recipe_that_a_file_of_them_makes(tmp_path: Path) -> None:
    values = {"task": "token_classification", "data": {"max_seq_length": 40}, "model": {"head": "crf"}}
    file = tmp_path / "recipe.yaml"
    file.write_text("task: token_classification\ndata: {max_seq_length: 40}\nmodel: {head: crf}\n")
    assert kept_values(recipe_of_values(values)) == kept_values(load_recipe(file, purpose="apply"))
    with pytest.raises(UserError, match="max_seq_lenght"):
        recipe_of_values({"task": "token_classification", "data": {"max_seq_lenght": 40}})


def test_other_values_of_keys(taught, tmp_path):
    (tmp_path / "student.yaml").write_text("task: text_matching\n")
    changed = with_settings(with_student(taught), {"distillation.generate.copies": 3, "student.training.max_steps": 7})
    assert (changed.distillation.generate.copies, changed.student.training.max_steps) == (3, 7)
    assert (taught.distillation.generate.copies, changed.training.max_steps) == (0, -1)
