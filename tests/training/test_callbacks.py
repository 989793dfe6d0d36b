"""When early stopping has waited long enough, as read from the state's log."""

from __future__ import annotations

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import EarlyStoppingSection
from nlpctl.training.callbacks import EarlyStopping


def exhausted(values: list[float], patience: int, min_delta: float = 0.0, metric="accuracy", greater=True) -> bool:
    from paddlenlp.trainer.trainer_callback import TrainerState

    history = []
    for step, figure in enumerate(values):
        history += [{"loss": 1.0, "step": step}, {f"eval_{metric}": figure, "eval_runtime": 1.0, "step": step}]
    stopping = EarlyStopping(EarlyStoppingSection(patience=patience, min_delta=min_delta), metric, greater)
    return stopping.exhausted(TrainerState(log_history=history))


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
        assert EarlyStopping(EarlyStoppingSection(patience=1), name, True).metric == "eval_accuracy"
