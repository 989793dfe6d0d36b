"""The parts of contrastive few-shot classification; tests/end_to_end/test_contrastive.py trains with them."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from sklearn.linear_model import LogisticRegression

from nlpctl.tasks.contrastive import cosine_loss, logistic_regression


def test_equal_labels_are_to_meet_and_different_ones_to_part() -> None:
    """Three texts: one pair of equal labels with cosine 0, two of different labels with cosines 0 and 1."""
    vectors = paddle.to_tensor(np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    loss = cosine_loss(vectors, paddle.to_tensor(np.array([0, 0, 1])))
    assert float(loss) == pytest.approx((1 + (0 + 1) / 2) / 2)
    assert float(cosine_loss(vectors[1:], paddle.to_tensor(np.array([1, 1])))) == 0
    assert np.isfinite(float(cosine_loss(vectors[:2], paddle.to_tensor(np.array([0, 1])))))  # no equal labels


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
