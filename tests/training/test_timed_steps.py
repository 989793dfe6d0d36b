"""A training that is timed by its first steps, and what `nlpctl new` makes of that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import Override, load_recipe
from nlpctl.datatools import new
from nlpctl.datatools.recipe_defaults import bfloat16_presets
from nlpctl.runtime.machine import cpu_info
from nlpctl.tasks.sequence_classification import SequenceClassification
from nlpctl.training import overfit
from nlpctl.training import timed_steps as module
from nlpctl.training.overfit import ready_to_train
from nlpctl.training.timed_steps import Measured, TimedSteps
from nlpctl.training.trainer import RecipeTrainer


def test_the_first_steps_tell_how_long_all_takes(tiny, monkeypatch):
    """Processor time is of the steps alone, each of 1 s here; scoring a batch of dev takes 100 s."""
    now, loss = [0.0], SequenceClassification.loss

    def clocked(self, network, outputs, batch):
        now[0] += 1.0 if network.training else 100.0
        return loss(self, network, outputs, batch)

    monkeypatch.setattr(SequenceClassification, "loss", clocked)
    monkeypatch.setattr(module, "time", SimpleNamespace(process_time=lambda: now[0]))
    before = {path: path.stat().st_mtime_ns for path in tiny.folder.rglob("*")}
    often = [Override(f"training.{key}", "2", "--set") for key in ("eval_steps", "save_steps")]
    timing = module.time_training(ready_to_train(load_recipe(tiny.folder / "recipe.yaml", often)))
    assert timing.without_bf16.step == 1.0 and timing.without_bf16.training > 0 and now[0] > 600
    assert (timing.with_bf16 is not None) is cpu_info().trains_in_bfloat16
    assert {path: path.stat().st_mtime_ns for path in tiny.folder.rglob("*")} == before


def test_overfitting_tries_the_rates_of_groups_too(tiny):
    """They kept their own, and their weight decay, so a tenth and ten times the rate were tried of the others alone."""
    groups = Override("optimizer.groups", "[{match: '*', learning_rate: 1.0e-6, weight_decay: 0.5}]", "--set")
    prepared = ready_to_train(load_recipe(tiny.folder / "recipe.yaml", [groups]))
    usual = prepared.recipe.training.learning_rate
    optimizer = overfit._optimizer(prepared, 10 * usual)
    parameters = prepared.model.network.parameters()
    assert optimizer.get_lr() * parameters[0].optimize_attr["learning_rate"] == pytest.approx(10 * 1e-6)
    assert set(optimizer._decays.values()) == {0.0}


def test_recompute_that_reaches_no_layer_is_told(tiny, capfd):
    keys = {"training.recompute": "true", "model.from_scratch": "{architecture: bag_of_embeddings}"}
    overrides = [Override(key, value, "--set") for key, value in keys.items()]
    ready_to_train(load_recipe(tiny.folder / "recipe.yaml", overrides))
    assert "training.recompute has no effect: no layer of" in capfd.readouterr().err
    ready_to_train(load_recipe(tiny.folder / "recipe.yaml", overrides[:1]))
    assert "no effect" not in capfd.readouterr().err


@pytest.fixture
def saving_twice(tiny):
    """A training of 120 steps, far more than are timed, that saves twice."""
    keys = {"num_train_epochs": "20", "save_steps": "60", "eval_steps": "60"}
    overrides = [Override(f"training.{key}", value, "--set") for key, value in keys.items()]
    return ready_to_train(load_recipe(tiny.folder / "recipe.yaml", overrides))


def test_saves_count_and_one_is_timed(saving_twice, monkeypatch):
    saved, seconds_to_save = [], RecipeTrainer.seconds_to_save

    def clocked(self):
        saved.append(seconds_to_save(self))
        return 1000.0

    monkeypatch.setattr(RecipeTrainer, "seconds_to_save", clocked)
    timing = module.time_training(saving_twice)
    assert len(saved) == 1 and 0 < saved[0] < 1000
    assert 2000 < timing.seconds < 3000


def test_without_room_nothing_is_saved(saving_twice, monkeypatch):
    monkeypatch.setattr(RecipeTrainer, "_write_checkpoint", lambda self, _: pytest.fail("it would fill the disk"))
    monkeypatch.setattr("nlpctl.training.trainer.shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    assert 0 < module.time_training(saving_twice).seconds < 1000


def test_what_fails_is_told_and_no_run_to_go_on_with(tiny, monkeypatch, capsys):
    def no_room(*_):
        raise MemoryError("no room for tensors")

    monkeypatch.setattr(SequenceClassification, "loss", no_room)
    recipe = tiny.folder / "fails.yaml"
    recipe.write_text((tiny.folder / "recipe.yaml").read_text().replace("device: cpu", "device: cpu, on_oom: fail"))
    assert new._time_training(recipe) is None
    err = capsys.readouterr().err
    assert "could not be timed: out of memory in step 1" in err and "--resume" not in err
    monkeypatch.setattr("nlpctl.training.timed_steps.time_training", no_room)  # as of another library
    assert new._time_training(recipe) is None
    assert "could not be timed: MemoryError: no room for tensors" in capsys.readouterr().err


def test_bf16_is_taken_where_its_steps_were_faster():
    """Whatever other programs made of the time of the whole training, and whatever network it is."""
    faster = TimedSteps(Measured(90.0, 1.5), Measured(100.0, 1.0))
    assert faster.bfloat16_pays and faster.seconds == 100.0
    assert [preset.key for preset in bfloat16_presets(True, faster)] == ["training.bf16"]
    for slower in (TimedSteps(Measured(90.0, 1.0), Measured(50.0, 1.0)), TimedSteps(Measured(90.0, 1.0))):
        assert not slower.bfloat16_pays and slower.seconds == 90.0
        assert bfloat16_presets(False, slower) == []
