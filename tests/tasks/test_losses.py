"""Losses against their formulas, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import LossSection
from nlpctl.errors import UserError
from nlpctl.tasks.losses import balanced_weights, class_losses, given_weights, label_losses
from nlpctl.tasks.sequence_classification import softmax

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(7, 3)).astype("float32") * 3
LABELS = RANDOM.integers(0, 3, 7)
GIVEN = RANDOM.integers(0, 2, (7, 3)).astype("float32")


def losses(section: LossSection, weights=None, logits=LOGITS, labels=LABELS):
    import paddle

    return class_losses(paddle.to_tensor(logits), paddle.to_tensor(labels), section, weights).numpy()


def of_labels(section: LossSection, weights=None):
    import paddle

    return label_losses(paddle.to_tensor(LOGITS), paddle.to_tensor(GIVEN), section, weights).numpy()


def own(logits=LOGITS, labels=LABELS):
    return softmax(logits)[np.arange(len(labels)), labels]


def test_cross_entropy_is_paddles():
    import paddle
    import paddle.nn.functional as F

    paddles = F.cross_entropy(paddle.to_tensor(LOGITS), paddle.to_tensor(LABELS), reduction="none")
    np.testing.assert_allclose(losses(LossSection()), paddles.numpy().reshape(-1), rtol=1e-5)
    paddles = F.binary_cross_entropy_with_logits(paddle.to_tensor(LOGITS), paddle.to_tensor(GIVEN))
    assert of_labels(LossSection()).mean() == pytest.approx(float(paddles), rel=1e-5)


def test_label_smoothing_is_paddles():
    import paddle
    import paddle.nn.functional as F

    soft = F.label_smooth(F.one_hot(paddle.to_tensor(LABELS), 3), epsilon=0.2)
    paddles = F.cross_entropy(paddle.to_tensor(LOGITS), soft, soft_label=True, reduction="none")
    np.testing.assert_allclose(losses(LossSection(label_smoothing=0.2)), paddles.numpy().reshape(-1), rtol=1e-5)


def test_focal_loss():
    p = own()
    np.testing.assert_allclose(losses(LossSection(focal_gamma=2.0)), -((1 - p) ** 2) * np.log(p), rtol=1e-4)
    np.testing.assert_allclose(losses(LossSection(focal_gamma=0.0)), -np.log(p), rtol=1e-5)  # cross entropy
    two, labels = LOGITS[:, :2], LABELS % 2
    p, alpha = own(two, labels), np.where(labels == 1, 0.25, 0.75)
    section = LossSection(focal_gamma=2.0, focal_alpha=0.25)
    np.testing.assert_allclose(losses(section, None, two, labels), -alpha * (1 - p) ** 2 * np.log(p), rtol=1e-4)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_of_rows_that_are_certain_has_a_gradient(gamma):
    import paddle

    section = LossSection(focal_gamma=gamma)
    logits = paddle.to_tensor(np.array([[30, -120], [0, 1]], "float32"), stop_gradient=False)
    class_losses(logits, paddle.to_tensor([0, 1]), section, None).sum().backward()
    certain, other = logits.grad.numpy()
    assert np.abs(certain).max() < 1e-9 and (other != 0).all() and np.isfinite(other).all()
    logits.clear_gradient()
    label_losses(logits, paddle.to_tensor([[1.0, 0.0], [1.0, 0.0]]), section, None).sum().backward()
    certain, other = logits.grad.numpy()
    assert np.abs(certain).max() < 1e-9 and (other != 0).all() and np.isfinite(other).all()


def test_focal_loss_of_independent_labels_is_paddles():
    """Paddle's own sigmoid_focal_loss, summed."""
    import paddle
    import paddle.nn.functional as F

    paddles = F.sigmoid_focal_loss(paddle.to_tensor(LOGITS), paddle.to_tensor(GIVEN), alpha=0.25, gamma=2.0)
    ours = of_labels(LossSection(focal_gamma=2.0, focal_alpha=0.25)).sum() * 3
    assert ours == pytest.approx(float(paddles), rel=1e-5)


def test_weights():
    weights = (2.0, 0.5, 1.0)
    np.testing.assert_allclose(losses(LossSection(), weights), -np.log(own()) * np.array(weights)[LABELS], rtol=1e-5)
    p = 1 / (1 + np.exp(-LOGITS.astype("float64")))
    expected = -(GIVEN * np.array(weights) * np.log(p) + (1 - GIVEN) * np.log(1 - p)).mean(1)
    np.testing.assert_allclose(of_labels(LossSection(), weights), expected, rtol=1e-4)


def test_balanced_weights_have_mean_one_over_the_rows():
    counts = (10, 30, 60)
    weights = balanced_weights("abc", counts)
    assert weights == pytest.approx((100 / 30, 100 / 90, 100 / 180))
    assert np.average(weights, weights=counts) == pytest.approx(1)


def test_a_label_without_a_row_is_not_balanced(capsys):
    """As a fold of a rare one: it used to end a series of folds, for which data.labels is set."""
    counts = (1, 0, 3)
    weights = balanced_weights("abc", counts)
    assert weights == pytest.approx((4 / 2, 1, 4 / 6))
    assert np.average(weights, weights=counts) == pytest.approx(1)
    assert "no training row has the label 'b'" in capsys.readouterr().err


def test_weights_by_name():
    assert given_weights(LossSection(), "abc") is None
    assert given_weights(LossSection(weights={"b": 3}), "abc") == (1.0, 3.0, 1.0)
    with pytest.raises(UserError, match="there is no label 'd'"):
        given_weights(LossSection(weights={"d": 3}), "abc")
