"""What the best constant answer costs: no constant logits cost less, by the loss that training uses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle

from nlpctl.data.rows.multi_label_rows import MultiLabelExample
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.tasks.multi_label_classification import gold_array

LABELS = [0, 0, 0, 1, 0, 2, 0, 1, 0, 0]
WEIGHTS = {"weights": {"a": 1.0, "b": 3.0, "c": 0.5}}


def lowest(cost, size) -> float:
    """The least cost of constant logits that a descent finds."""
    logits = paddle.zeros([size])
    logits.stop_gradient = False
    optimizer = paddle.optimizer.Adam(0.05, parameters=[logits])
    for _ in range(600):
        loss = cost(logits)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    return float(loss)


@pytest.mark.parametrize("loss", [{}, WEIGHTS, {"class_weights": "balanced"}])
def test_of_labels(make_task_of, loss):
    task = make_task_of("sequence_classification", ("a", "b", "c"), loss=loss)
    examples = [TextExample("text", None, label) for label in LABELS]
    _with_weights(task, examples)
    batch = {"labels": paddle.to_tensor(LABELS)}
    found = lowest(lambda logits: task.loss(None, (paddle.tile(logits, [len(LABELS), 1]),), batch), 3)
    assert task.constant_loss(examples) == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("loss", [{}, WEIGHTS])
def test_of_several_labels(make_task_of, loss):
    task = make_task_of("multi_label_classification", ("a", "b", "c"), loss=loss)
    examples = [MultiLabelExample("text", None, labels) for labels in [(0,), (0, 1), (), (0, 2), (0,), (1,)]]
    _with_weights(task, examples)
    gold = paddle.to_tensor(gold_array(examples, 3).astype("float32"))
    found = lowest(lambda logits: task.loss(None, (paddle.tile(logits, [6, 1]),), {"labels": gold}), 3)
    assert task.constant_loss(examples) == pytest.approx(found, rel=1e-3)


def test_of_tags(make_task_of):
    """Every row counts alike, however long it is."""
    task = make_task_of("token_classification", ("O", "B-X", "I-X", "B-Y"))
    rows = [[0, 0, 0, 1], [1, 2], [0]]
    examples = [SimpleNamespace(tags=row) for row in rows]
    labels = paddle.to_tensor([row + [-100] * (4 - len(row)) for row in rows])
    found = lowest(lambda logits: task.loss(None, (paddle.tile(logits, [3, 4, 1]),), {"labels": labels}), 4)
    assert task.constant_loss(examples) == pytest.approx(found, rel=1e-2)
    assert make_task_of("token_classification", ("O", "B-X"), model={"head": "crf"}).constant_loss(examples) is None


@pytest.mark.parametrize("loss", [{"focal_gamma": 2.0}, {"label_smoothing": 0.1}])
def test_what_is_not_known(make_task_of, loss):
    task = make_task_of("sequence_classification", ("a", "b"), loss=loss)
    assert task.constant_loss([TextExample("text", None, 1)]) is None


def test_pairs_have_no_labels_to_guess(make_task_of):
    task = make_task_of("few_shot_classification", ("a", "b"), few_shot={"method": "contrastive"})
    assert task.constant_loss([TextExample("text", None, 1)]) is None


def _with_weights(task, examples) -> None:
    from nlpctl.tasks.losses import given_weights

    task.weights = given_weights(task.recipe.loss, task.labels.names)
    task.collect_statistics(examples)
    assert np.isfinite(task.constant_loss(examples))
