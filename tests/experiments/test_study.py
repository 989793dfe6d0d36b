"""The trials of a sweep in Optuna's journal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nlpctl.config.schema import Axis, SearchSection
from nlpctl.errors import UserError
from nlpctl.experiments.study import FAILED, FINISHED, PRUNED, RUNNING, Study, require_optuna

RATE, FREEZE, WARM = "training.learning_rate", "model.freeze", "training.warmup_ratio"
SPACE = {
    WARM: Axis(uniform=(0.0, 1.0), when={FREEZE: (("a", "b"),)}),
    RATE: Axis(log=(1e-5, 1e-2)),
    FREEZE: Axis(choices=((), ("a", "b"))),
    "training.seed": Axis(int=(1, 9), step=2.0, whole=True),
    "training.num_train_epochs": Axis(int=(2, 4), whole=True),
}


def test_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match="needs Optuna") as refused:
        require_optuna()
    assert refused.value.problems[0].hint == "pip install 'nlpctl[sweep]'"


@pytest.fixture
def study(tmp_path: Path):
    pytest.importorskip("optuna", reason="the extra sweep is not installed")

    def opened(name: str = "one", **section) -> Study:
        return Study(SearchSection(**{"space": SPACE, **section}), tmp_path / name, 5, True)

    return opened


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_step_is_the_number_that_is_written(study, sampler: str) -> None:
    """Optuna's would be 0.30000000000000004, which no condition names."""
    steps = {WARM: Axis(uniform=(0.0, 0.5), step=0.1), RATE: Axis(log=(1e-5, 1e-2), when={WARM: (0.3,)})}
    drawing = study(space=steps, sampler=sampler)
    drawn = [drawing.draw().values for _ in range(12)]
    assert {values[WARM] for values in drawn} <= {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}
    assert any(values[WARM] == 0.3 for values in drawn)
    assert all((RATE in values) is (values[WARM] == 0.3) for values in drawn)
    assert [told.values for told in drawing.trials()] == drawn


def score(values) -> float:
    return values.get(WARM, 0.5) - values[RATE]


def test_a_killed_sweep_draws_the_same(study, tmp_path: Path) -> None:
    """TPE, too, after its first random trials; and where the kill cuts a line in the middle."""
    whole = study("whole")
    drawn = []
    for _ in range(14):
        trial = whole.draw()
        drawn.append(trial)
        whole.tell(trial.number, FINISHED, score(trial.values), 1.0)
    killed = study("killed")
    for number in range(14):
        trial = killed.draw()
        assert trial == drawn[number]
        if number in (3, 12):
            journal = tmp_path / "killed"
            lines = journal.read_bytes().splitlines(keepends=True)
            journal.write_bytes(b"".join(lines[:-2]) + lines[-2][:9])  # two of its values were not written yet
            killed = study("killed")
            assert killed.unfinished() == [drawn[number]]
        killed.tell(number, FINISHED, score(trial.values), 1.0)
        killed = study("killed")
        assert killed.unfinished() == []
    assert killed.trials() == whole.trials()


def test_values_are_those_of_the_keys(study) -> None:
    found = study(sampler="random")
    drawn = [found.draw().values for _ in range(30)]
    assert all(1e-5 <= values[RATE] <= 1e-2 for values in drawn)
    assert {values[FREEZE] for values in drawn} == {(), ("a", "b")}
    assert all((WARM in values) == (values[FREEZE] == ("a", "b")) for values in drawn)
    assert {values["training.seed"] for values in drawn} == {1, 3, 5, 7, 9}
    epochs = {values["training.num_train_epochs"] for values in drawn}
    assert epochs == {2.0, 3.0, 4.0} and {type(each) for each in epochs} == {float}
    assert [told.values for told in found.trials()] == drawn and {told.state for told in found.trials()} == {RUNNING}


def test_a_grid_is_walked_in_order(study) -> None:
    space = {FREEZE: SPACE[FREEZE], "training.seed": Axis(choices=(1, 2), when={FREEZE: ((),)})}
    found = study(sampler="grid", space=space)
    assert [found.draw().values for _ in range(3)] == [
        {FREEZE: (), "training.seed": 1}, {FREEZE: (), "training.seed": 2}, {FREEZE: ("a", "b")}
    ]  # fmt: skip


def test_worse_than_the_median_is_not_worth_going_on(study) -> None:
    found = study(sampler="random")
    for number in range(5):
        trial = found.draw()
        assert all(found.worth_continuing(trial.number, step, number / 10 + step / 100) for step in (1, 2, 3))
        found.tell(trial.number, FINISHED, number / 10, 1.0)
    better, worse = found.draw(), found.draw()
    assert found.worth_continuing(better.number, 1, 0.3) and found.worth_continuing(worse.number, 1, 0.215)
    assert not found.worth_continuing(worse.number, 2, 0.1)
    found.tell(worse.number, PRUNED, seconds=1.0, reason="worse")
    found = study(sampler="random")  # resumed from a checkpoint before the second evaluation
    assert found.unfinished() == [better]
    assert found.worth_continuing(better.number, 1, 0.3) and found.worth_continuing(better.number, 2, 0.3)
    assert [told.state for told in found.trials()] == [FINISHED] * 5 + [RUNNING, PRUNED]


def test_a_score_that_is_no_number_is_a_failure(study) -> None:
    found = study()
    for value in (float("nan"), None):
        found.tell(found.draw().number, FINISHED, value, 1.0)
    assert [(told.state, told.score) for told in found.trials()] == [(FAILED, None)] * 2
    assert found.importance() == {}


def test_importance(study) -> None:
    """Of the keys that all finished trials have."""
    found = study(sampler="random")
    for _ in range(12):
        trial = found.draw()
        found.tell(trial.number, FINISHED, -trial.values[RATE], 1.0)
    shares = found.importance()
    assert max(shares, key=shares.get) == RATE and sum(shares.values()) == pytest.approx(1)
    assert WARM not in shares and shares == study(sampler="random").importance()
