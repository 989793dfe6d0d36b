"""What a later call may find in a folder of compressed models, and what --overwrite spares. Nothing is made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.compression.plan_file import check_plan, make_plan, write_plan
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.runners import compress
from nlpctl.runners.compress_refusals import refuse_output
from nlpctl.runners.score_key import score_key

STUDENT = "task: sequence_classification\nmodel:\n  from_scratch: {architecture: bilstm}\n"
READER = 'def read(path):\n    yield {"text": "a", "label": "x"}\n'


def model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "ernie"}')
    for name in ("model_state.pdparams", "vocab.txt"):
        (folder / name).write_text("something")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(model_folder(tmp_path / "model"))


def recipe_in(folder: Path, *settings: str) -> Recipe:
    (folder / "train.tsv").write_text("text\tlabel\na\tx\nb\ty\n")
    (folder / "recipe.yaml").write_text("task: sequence_classification\ndata: {train: train.tsv}\n")
    overrides = [Override(*setting.split("=", 1), f"--set {setting}") for setting in settings]
    return load_recipe(folder / "recipe.yaml", overrides, "apply")


def planned(folder: Path, recipe: Recipe, source: str) -> Path:
    """A folder of compressed models with a plan, in which nothing is yet."""
    folder.mkdir()
    write_plan(folder, make_plan(recipe, source))
    return folder


def check(folder: Path, recipe: Recipe, source: str) -> None:
    check_plan(folder, make_plan(recipe, source), recipe)


def test_overwriting_spares_what_the_student_starts_from(tmp_path, source):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    start = model_folder(out / "networks" / "student" / "model")
    (tmp_path / "student.yaml").write_text(f"task: sequence_classification\nmodel:\n  name_or_path: {start}\n")
    recipe = recipe_in(tmp_path, f"distillation.student={tmp_path / 'student.yaml'}")
    with pytest.raises(UserError, match="--overwrite would delete this") as told:
        refuse_output(out, source, {}, recipe, overwrite=True)
    assert "student.yaml:3 (model.name_or_path)" in str(told.value)
    recipe = recipe_in(tmp_path, f"distillation.model.name_or_path={start}")
    with pytest.raises(UserError, match="distillation.model.name_or_path.*would delete this"):
        refuse_output(out, source, {}, recipe, overwrite=True)
    refuse_output(out, source, {}, recipe_in(tmp_path), overwrite=True)


@pytest.mark.parametrize("key", ["data.dev", "distillation.unlabelled"])
def test_overwriting_spares_rows(tmp_path, source, key):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    (out / "best").mkdir()
    (out / "best" / "rows.tsv").write_text("text\tlabel\na\tx\n")
    recipe = recipe_in(tmp_path, f"{key}={out / 'best' / 'rows.tsv'}")
    with pytest.raises(UserError, match=f"{key}.*would delete this"):
        refuse_output(out, source, {}, recipe, overwrite=True)


@pytest.mark.parametrize(
    ("folder", "trained"),
    [
        ("networks", True),
        ("exports/original", False),
        ("exports/.staging-width-0.75-x1", False),
        ("exports/width-0.75", True),
        ("candidates/original+ptq-avg-32x16", False),
        ("candidates/original+qat+embeddings", True),
        ("candidates/student+ort-dynamic", True),
    ],
)
def test_what_was_trained_is_known_without_networks(tmp_path, source, folder, trained):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    (out / folder).mkdir(parents=True)
    faster = recipe_in(tmp_path, "training.learning_rate=0.1")
    if not trained:
        check(out, faster, source)
        return
    with pytest.raises(UserError, match="made with training.learning_rate"):
        check(out, faster, source)


def test_networks_go_last(tmp_path, monkeypatch):
    """Stopped while it deletes, --overwrite leaves what tells that the rest was trained."""
    kinds = ("networks", "exports", "candidates", "scores", "best")
    for name in kinds:
        (tmp_path / name / "x").mkdir(parents=True)
    remove, deleted = compress.remove_dir, []

    def stopped(folder: Path) -> None:
        if len(deleted) == len(kinds) - 1:
            raise KeyboardInterrupt
        deleted.append(folder.name)
        remove(folder)

    monkeypatch.setattr(compress, "remove_dir", stopped)
    with pytest.raises(KeyboardInterrupt), compress._taken(tmp_path, True, {"format": 1}):
        pass
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"networks"}


def test_a_student_counts_once_something_was_trained(tmp_path, source):
    student = tmp_path / "student.yaml"
    student.write_text(STUDENT)
    taught = recipe_in(tmp_path, f"distillation.student={student}")
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    check(out, taught, source)
    (out / "networks").mkdir()
    with pytest.raises(UserError, match="what networks are made of changed .*student.yaml"):
        check(out, taught, source)
    write_plan(out, make_plan(taught, source))
    check(out, taught, source)
    student.write_text(f"{STUDENT}training: {{num_train_epochs: 9}}\n")
    with pytest.raises(UserError, match="what networks are made of changed .*student.yaml"):
        check(out, taught, source)
    (out / "networks").rmdir()
    check(out, taught, source)


def test_what_the_student_extends_counts(tmp_path, source):
    base, student = tmp_path / "base.yaml", tmp_path / "student.yaml"
    base.write_text(f"{STUDENT}training: {{num_train_epochs: 9}}\n")
    student.write_text("extends: base.yaml\n")
    recipe = recipe_in(tmp_path, f"distillation.student={student}")
    out = planned(tmp_path / "out", recipe, source)
    base.write_text(f"{STUDENT}training: {{num_train_epochs: 5, logging_steps: 7}}\nruntime: {{threads: 1}}\n")
    check(out, recipe, source)
    (out / "networks").mkdir()
    with pytest.raises(UserError, match=r"--set dist.*made with distillation.student.training.num_train_epochs: 9\.0"):
        check(out, recipe, source)
    base.write_text(f"{STUDENT.replace('bilstm', 'textcnn')}training: {{num_train_epochs: 9}}\n")
    with pytest.raises(UserError, match="distillation.student.model.from_scratch.architecture: bilstm"):
        check(out, recipe, source)


def test_the_code_of_a_reader_counts(tmp_path, source, monkeypatch):
    module = tmp_path / "rows_of_mine.py"
    module.write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    recipe = recipe_in(tmp_path, "data.reader=rows_of_mine:read")
    out = planned(tmp_path / "out", recipe, source)
    key = score_key(recipe, [], "train", None)
    assert score_key(recipe, [], "train", None) == key
    check(out, recipe, source)
    module.write_text(READER.replace('"a"', '"b"'))
    assert score_key(recipe, [], "train", None) != key
    with pytest.raises(UserError, match="the data changed .*rows_of_mine.py"):
        check(out, recipe, source)
