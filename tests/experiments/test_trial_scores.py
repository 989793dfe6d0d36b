"""The trials of a sweep: what compares them, and who trains them."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nlpctl.compress.costs import Clock
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Axis, RuntimeSection, SearchSection
from nlpctl.config.tasks import greater_is_better
from nlpctl.errors import UserError
from nlpctl.experiments.series import open_folder
from nlpctl.experiments.study import FINISHED, Study, TrialRecord
from nlpctl.experiments.sweep import OWN as SWEEPS
from nlpctl.experiments.sweep import _known_on_test, _refuse_done
from nlpctl.experiments.training_pool import training_pool
from nlpctl.experiments.trials import Trials, watched_metric
from nlpctl.files import write_json_atomic
from nlpctl.runtime.worker_slots import HERE, WorkerSlots

HEAD = "task: sequence_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\ndata: {train: train.tsv}\n"
OWN = "compute_metrics: scores:rmse, metric_for_best_model: eval_rmse"


@pytest.fixture
def load(tmp_path):
    def loaded(training: str, more: str = ""):
        (tmp_path / "recipe.yaml").write_text(f"{HEAD}training: {{{training}}}\n{more}")
        (tmp_path / "train.tsv").write_text("text\tlabel\na\tb\n")
        (tmp_path / "scores.py").write_text("def rmse(prediction):\n    return {'rmse': 0.0}\n")
        return load_recipe(tmp_path / "recipe.yaml")

    return loaded


@pytest.mark.parametrize(
    ("training", "metric"),
    [("", "accuracy"), ("metric_for_best_model: eval_loss", "accuracy"), (OWN, "rmse")],
)
def test_trials_are_compared_by_a_score_of_their_reports(load, training: str, metric: str) -> None:
    assert watched_metric(load(training)) == metric


def test_the_recipe_says_which_way_its_own_score_goes(load) -> None:
    recipe = load(f"{OWN}, greater_is_better: false")
    assert not greater_is_better(recipe, "rmse") and greater_is_better(recipe, "accuracy")
    assert greater_is_better(load(OWN), "rmse")


def cards_seen(runtime: RuntimeSection) -> tuple[str | None, RuntimeSection]:
    return os.environ.get("CUDA_VISIBLE_DEVICES"), runtime


def test_a_worker_chooses_its_card_once(tmp_path, monkeypatch) -> None:
    """Its trainings run on all cards that it sees."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    runtime = RuntimeSection(device="gpu", devices=(1,))
    slots = WorkerSlots((runtime,), False, 1.0, HERE)
    with training_pool(slots, tmp_path, (), itself) as pool:
        for _ in range(2):
            assert list(pool.results([(cards_seen,)])) == [(0, ("5", RuntimeSection(device="gpu")), 0)]


def itself(runtime: RuntimeSection) -> RuntimeSection:
    return runtime


def test_no_trial_begins_that_would_not_end_in_time(tmp_path, load, capfd) -> None:
    pytest.importorskip("optuna", reason="the extra sweep is not installed")
    section = SearchSection(space={"training.seed": Axis(int=(1, 9), whole=True)})
    recipe = replace(load(""), search=section)
    study = Study(section, tmp_path / "journal", 5, True)
    trials = Trials(recipe, tmp_path, study, None, Clock(3600.0), "accuracy", ())
    study.tell(study.draw().number, FINISHED, 0.5, 1800.0)
    assert trials._more_begin()
    study.tell(study.draw().number, FINISHED, 0.5, 72_000.0)
    assert not trials._more_begin() and not trials._more_begin()
    assert capfd.readouterr().err.count("no further trial begins: one takes 36900 s") == 1


def test_a_damaged_summary_is_none(tmp_path) -> None:
    best, report = TrialRecord(3, {}, FINISHED, 0.5, 1.0, ""), {"accuracy": 0.5}
    assert _known_on_test(tmp_path, best) is None
    write_json_atomic(tmp_path / "sweep.json", {"best": "003", "test": report})
    assert _known_on_test(tmp_path, best) == report
    (tmp_path / "sweep.json").write_text('{"best": "003", ')
    assert _known_on_test(tmp_path, best) is None


def test_overwriting_takes_what_another_command_wrote(load, tmp_path) -> None:
    recipe = load(f"output_dir: {tmp_path / 'many'}")
    with open_folder(recipe, (), "sweep", (), {}, resume=False, overwrite=False, own=SWEEPS) as folder:
        (folder / "trials" / "000").mkdir(parents=True)
        for name in ("study.journal", "best.yaml", "mine.txt"):
            (folder / name).write_text("")
    with pytest.raises(UserError, match="another command"):
        open_folder(recipe, (), "folds", (), {}, resume=False, overwrite=False).__enter__()
    with open_folder(recipe, (), "folds", (), {}, resume=False, overwrite=True):
        left = {path.name for path in folder.iterdir()}
    assert "mine.txt" in left and not left & {"trials", "study.journal", "best.yaml"}


def test_a_series_that_was_killed_as_it_began_begins_again(load, tmp_path, monkeypatch) -> None:
    recipe = load(f"output_dir: {tmp_path / 'many'}")

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("nlpctl.experiments.series.write_text_atomic", killed)
        open_folder(recipe, (), "sweep", (), {}, resume=False, overwrite=False).__enter__()
    with open_folder(recipe, (), "sweep", (), {}, resume=True, overwrite=False) as folder:
        assert {path.name for path in folder.iterdir()} == {"series.json", "recipe.yaml"}


def test_a_series_goes_on_with_the_same_code_and_starting_values_only(load, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "words.txt").write_text("one\n")
    recipe = load(f"output_dir: {tmp_path / 'many'}, {OWN}, criterion: 'scores:loss'")
    recipe = replace(recipe, model=replace(recipe.model, add_tokens=str(tmp_path / "words.txt")))

    def goes_on() -> None:
        with open_folder(recipe, (), "sweep", (), {}, resume=True, overwrite=False):
            pass

    with open_folder(recipe, (), "sweep", (), {}, resume=False, overwrite=False):
        pass
    goes_on()
    (tmp_path / "words.txt").write_text("two\n")
    with pytest.raises(UserError, match="the data changed since the first run began: .*words.txt"):
        goes_on()
    (tmp_path / "words.txt").write_text("one\n")
    (tmp_path / "scores.py").write_text("def loss(outputs, labels):\n    return 0\n")
    with pytest.raises(UserError, match="the source of scores:loss changed since the first run began"):
        goes_on()


def test_a_sweep_is_done_when_its_results_tell_of_all_trials(tmp_path) -> None:
    """Killed before it wrote the results of a grown sweep, it is resumed."""
    study = SimpleNamespace(trials=lambda: [SimpleNamespace(state=FINISHED)] * 3)
    _refuse_done(study, tmp_path, 3)
    write_json_atomic(tmp_path / "sweep.json", {"trials": [{}, {}]})
    _refuse_done(study, tmp_path, 3)
    write_json_atomic(tmp_path / "sweep.json", {"trials": [{}, {}, {}]})
    with pytest.raises(UserError, match="all 3 trials are done"):
        _refuse_done(study, tmp_path, 3)
