"""What is said where the folder of a series, a sweep or a run is not as it was, or is not of the command at hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.errors import RunFailed, UserError
from nlpctl.experiments.ensemble import ensemble
from nlpctl.experiments.series import finish, go_on, refuse_early
from nlpctl.experiments.sweep import _on_test, _refuse_missing
from nlpctl.layout import part_of
from nlpctl.modeltools.calibrate import calibrate
from nlpctl.runtime.run_directory import OF_ENSEMBLE, RunDirectory


def run(folder: Path, state: str = "finished", **facts: str) -> RunDirectory:
    (folder / "model").mkdir(parents=True)
    (folder / "recipe.yaml").write_text("task: sequence_classification\n")
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "state": state, "pid": 1, **facts}))
    return RunDirectory(folder)


def recipe(folder: Path):
    values = {"task": "sequence_classification", "training": {"output_dir": str(folder)}}
    return load_recipe(values, purpose="apply")


def series(folder: Path, kind: str = "folds") -> None:
    for name in ("fold-1", "fold-2"):
        run(folder / name)
    content = {"format": 1, "kind": kind, "state": "finished", "runs": ["fold-1", "fold-2"], "data": {}, "plan": {}}
    (folder / "series.json").write_text(json.dumps(content))


def state(folder: Path) -> str:
    return json.loads((folder / "series.json").read_text())["state"]


def test_a_finished_series_without_one_of_its_runs_goes_on(tmp_path):
    series(tmp_path)
    with pytest.raises(UserError, match="all runs are finished"):
        refuse_early(recipe(tmp_path), "folds", resume=True, overwrite=False)
    (tmp_path / "fold-2").rename(tmp_path / "elsewhere")
    refuse_early(recipe(tmp_path), "folds", resume=True, overwrite=False)
    with pytest.raises(UserError, match="fold-2: this run of the folder is not there") as told:
        ensemble([str(tmp_path)], tmp_path / "new")
    assert "--resume" in told.value.problems[0].hint


def test_what_goes_on_is_not_finished_meanwhile(tmp_path):
    series(tmp_path)
    go_on(tmp_path)
    assert state(tmp_path) == "running"
    with pytest.raises(UserError, match="the runs of the folder are not finished"):
        ensemble([str(tmp_path)], tmp_path / "new")
    finish(tmp_path)
    assert state(tmp_path) == "finished"


def test_the_best_trial_without_its_model_is_not_scored(tmp_path, capsys):
    run(tmp_path / "trials/001").model.rmdir()
    swept = load_recipe({"task": "sequence_classification", "data": {"test": ["rows.tsv"]}}, purpose="apply")
    assert _on_test(swept, tmp_path, SimpleNamespace(name="001")) is None
    assert "the model of the best trial was deleted" in capsys.readouterr().err


def test_a_sweep_says_which_trial_is_missing(tmp_path):
    run(tmp_path / "trials/001")
    told = [SimpleNamespace(name=name, state=state) for name, state in (("000", "failed"), ("001", "finished"))]
    _refuse_missing(SimpleNamespace(trials=lambda: told), tmp_path)
    told.append(SimpleNamespace(name="002", state="finished"))
    with pytest.raises(UserError, match="trials/002: this trial is finished, and its run is not there"):
        _refuse_missing(SimpleNamespace(trials=lambda: told), tmp_path)


@pytest.mark.parametrize(("kind", "flag"), [("sweep", "-o"), ("curve", "-o"), ("folds", "training.output_dir")])
def test_another_folder_is_named_as_this_one_was(tmp_path, kind, flag):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/mine").touch()
    (tmp_path / "file").touch()
    for name in ("foreign", "file"):
        with pytest.raises(UserError) as told:
            refuse_early(recipe(tmp_path / name), kind, resume=False, overwrite=False)
        assert flag in str(told.value) and ("training.output_dir" in str(told.value)) == (kind == "folds")


def test_an_ensemble_that_failed_is_made_again_by_its_own_command(tmp_path):
    made = run(tmp_path / "run", "failed", **OF_ENSEMBLE)
    assert made.to_go_on() == "the same `nlpctl ensemble` command with `--overwrite`"
    with pytest.raises(RunFailed) as told, made.recorded():
        raise OSError(28, "No space left on device")
    assert "`nlpctl ensemble` command with `--overwrite` begins again" in told.value.problems[0].hint
    assert "train" not in told.value.problems[0].hint


def test_a_task_without_probabilities_names_those_that_have_them():
    with pytest.raises(UserError) as told:
        calibrate(load_recipe({"task": "semantic_indexing"}, purpose="apply"))
    assert "sequence_classification" in told.value.problems[0].hint


def test_a_folder_among_the_checkpoints_is_a_part_of_the_run(tmp_path):
    run(tmp_path / "run")
    (tmp_path / "run/checkpoints").mkdir()
    assert part_of(tmp_path / "run/checkpoints/mine") == f"the run {tmp_path / 'run'}"
    assert part_of(tmp_path / "run/mine") is None
