"""The parts of contrastive few-shot classification; tests/end_to_end/test_contrastive.py trains with them."""

from __future__ import annotations

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle
from sklearn.linear_model import LogisticRegression

from nlpctl.config.load import load_recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.splits import read_training_data
from nlpctl.errors import UserError
from nlpctl.runtime.process import set_up_process
from nlpctl.tasks.base import make_task
from nlpctl.tasks.few_shot_classification import cosine_loss, logistic_regression
from nlpctl.training.fine_tune import make_ready


def test_equal_labels_are_to_meet_and_different_ones_to_part() -> None:
    """Three texts: one pair of equal labels with cosine 0, two of different labels with cosines 0 and 1."""
    vectors = paddle.to_tensor(np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    loss = cosine_loss(vectors, paddle.to_tensor(np.array([0, 0, 1])))
    assert float(loss) == pytest.approx((1 + (0 + 1) / 2) / 2)
    assert float(cosine_loss(vectors[1:], paddle.to_tensor(np.array([1, 1])))) == 0
    assert np.isfinite(float(cosine_loss(vectors[:2], paddle.to_tensor(np.array([0, 1])))))  # no equal labels


def test_one_label_leaves_nothing_to_compare(make_task_of) -> None:
    task = make_task_of("few_shot_classification", ("a",), few_shot={"method": "contrastive"})
    with pytest.raises(UserError, match="all training rows have the same label"):
        task.see_training([TextExample("text", None, 0)])


RECIPE = {
    "task": "few_shot_classification",
    "few_shot": {"method": "contrastive"},
    "model": {"from_scratch": {"architecture": "bert", "min_frequency": 1, "hidden_size": 16, "num_hidden_layers": 1}},
    "data": {"train": "few.tsv"},
    "training": {"output_dir": "run", "evaluation_strategy": "no", "save_strategy": "no",
                 "load_best_model_at_end": False},
    "runtime": {"device": "cpu"},
}  # fmt: skip


def test_another_loss_trains_the_head_too(tmp_path, monkeypatch) -> None:
    """Its steps are of rows, as in a compression, and nothing fits the head after them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.tsv").write_text("text\tlabel\ngood room\tpos\nbad room\tneg\n")
    recipe = load_recipe(RECIPE)
    setup, data = set_up_process(recipe), read_training_data(task_rows(recipe.task, recipe.data))
    for own_loss in (True, False):
        ready = make_ready(recipe, setup, make_task(recipe, data.labels), data, own_loss=own_loss)
        head = ready.model.network.classifier.parameters()
        assert [parameter.stop_gradient for parameter in head] == [own_loss] * 2


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(("classes", "weights"), [(2, None), (2, {0: 1.0, 1: 5.0}), (4, None), (4, {2: 3.0})])
def test_the_head_gives_the_probabilities_of_the_regression(classes: int, weights: dict[int, float] | None) -> None:
    chance = np.random.default_rng(1)
    vectors = chance.normal(size=(40, 8)).astype(np.float32)
    labels = [row % classes for row in range(40)]
    weight, bias = logistic_regression(vectors, labels, weights)
    assert weight.shape == (8, classes) and bias.shape == (classes,)
    reference = LogisticRegression(max_iter=1000, class_weight=weights).fit(vectors.astype(np.float64), labels)
    np.testing.assert_allclose(softmax(vectors @ weight + bias), reference.predict_proba(vectors), atol=1e-6)
    again = logistic_regression(vectors, labels, weights)
    assert weight.tobytes() == again[0].tobytes() and bias.tobytes() == again[1].tobytes()
