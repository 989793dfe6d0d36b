"""When early stopping has waited long enough, as read from the state's log."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import recipe_of_values
from nlpctl.config.schema import EarlyStoppingSection
from nlpctl.runtime.event_log import EventLog
from nlpctl.training.callbacks import _warn_of_moved_evaluations
from nlpctl.training.checkpoints import go_on_recording
from nlpctl.training.early_stopping import Patience, patience_of


def exhausted(values: list[float], patience: int, min_delta: float = 0.0, metric="accuracy", greater=True) -> bool:
    history = []
    for step, figure in enumerate(values):
        history += [{"loss": 1.0, "step": step}, {f"eval_{metric}": figure, "eval_runtime": 1.0, "step": step}]
    stopping = Patience(EarlyStoppingSection(patience=patience, min_delta=min_delta), f"eval_{metric}", greater)
    return stopping.exhausted(history)


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        ([], 1, False),
        ([0.5], 1, False),
        ([0.5, 0.5], 1, True),  # equal is no improvement
        ([0.5, 0.4], 1, True),
        ([0.5, 0.4], 2, False),
        ([0.5, 0.4, 0.3], 2, True),
        ([0.5, 0.4, 0.6], 2, False),
        ([0.5, 0.4, 0.6, 0.6, 0.6], 2, True),
        ([0.5, 0.4, 0.45, 0.6], 3, False),  # compared with the best, not with the last
        ([0.5, 0.4, 0.45, 0.48], 3, True),
        ([float("nan"), 0.3, 0.6], 2, False),  # a correlation of equal predictions
        ([0.3, float("nan"), float("nan")], 2, True),
    ],
)
def test_patience(values, patience, expected):
    assert exhausted(values, patience) is expected


def test_smaller_is_better():
    assert not exhausted([0.5, 0.4, 0.3], 1, metric="loss", greater=False)
    assert exhausted([0.5, 0.4, 0.41], 1, metric="loss", greater=False)
    assert exhausted([0.5, 0.4, 0.41], 1, metric="eval_loss".removeprefix("eval_"), greater=False)


def test_small_improvements_do_not_count():
    creeping = [0.5, 0.505, 0.509]
    assert not exhausted(creeping, 2)
    assert exhausted(creeping, 2, min_delta=0.01)
    assert not exhausted([*creeping, 0.511], 4, min_delta=0.01)  # measured from the last that counted, 0.5
    assert not exhausted([0.5, 0.505, 0.511], 2, min_delta=0.01)


def test_the_metric_may_be_named_with_or_without_prefix():
    for name in ("accuracy", "eval_accuracy"):
        training = {"load_best_model_at_end": True, "evaluation_strategy": "epoch", "save_strategy": "epoch",
                    "metric_for_best_model": name}  # fmt: skip
        values = {"task": "sequence_classification", "training": training, "early_stopping": {"patience": 1}}
        assert patience_of(recipe_of_values(values)).metric == "eval_accuracy"


@pytest.mark.parametrize(("save_steps", "told"), [(12, True), (20, False)])
def test_evaluations_that_the_trainer_moved_away_from_the_saves_are_told(capsys, save_steps, told):
    from paddlenlp.trainer import IntervalStrategy

    _warn_of_moved_evaluations(
        SimpleNamespace(
            load_best_model_at_end=True,
            minimum_eval_times=3,
            evaluation_strategy=IntervalStrategy.STEPS,
            eval_steps=10,
            save_steps=save_steps,
        )
    )
    assert ("the best is chosen, every 60 steps only" in " ".join(capsys.readouterr().err.split())) is told


def test_events_as_they_were_at_the_checkpoint(tmp_path):
    """Killed between a checkpoint and the note of it: the resumed run makes up for it."""
    from paddlenlp.trainer.trainer_callback import TrainerState

    log = EventLog(tmp_path / "events.jsonl")
    for step in (1, 2, 3, 4, 5):
        log.append("log", step)
    state = TrainerState(global_step=4, best_model_checkpoint="/somewhere/checkpoint-2")
    for _ in range(2):
        go_on_recording(log, state)
        events = [json.loads(line) for line in log.path.read_text().splitlines()]
        found = [(event["event"], event["step"]) for event in events]
        assert found == [("log", 1), ("log", 2), ("log", 3), ("log", 4), ("save", 4)]
        assert events[-1]["checkpoint"] == "checkpoint-4" and events[-1]["best"] == "checkpoint-2"
    go_on_recording(log, None)
    assert log.path.read_text() == ""
