"""Losses for imbalanced or difficult classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl import console
from nlpctl.config.schema import LossSection
from nlpctl.errors import UserError
from nlpctl.names import and_more

if TYPE_CHECKING:
    import paddle


def class_losses(
    logits: paddle.Tensor, labels: paddle.Tensor, loss: LossSection, weights: Sequence[float] | None
) -> paddle.Tensor:
    """Losses [rows] of logits [rows, classes] and int64 labels [rows].

    With p = softmax(logits) and y the label: cross entropy -log p_y; label smoothing e mixes in the mean of
    -log p over the classes, (1 - e) and e (Szegedy et al., 2016, section 7); focal loss multiplies by
    (1 - p_y)^gamma (Lin et al., 2017, equation 4) and, for two classes, by alpha for the second and 1 - alpha
    for the first (equation 5); `weights` multiply by that of the class. Not divided by the sum of the weights.
    """
    import paddle
    import paddle.nn.functional as F

    # float32 under autocast too: log of a float16 probability below 6e-8 is -inf.
    log_p = F.log_softmax(logits.astype("float32"), axis=-1)
    own = paddle.take_along_axis(log_p, labels.unsqueeze(-1), axis=-1).squeeze(-1)
    losses = -own
    if loss.label_smoothing:
        losses = (1 - loss.label_smoothing) * losses - loss.label_smoothing * log_p.mean(-1)
    if loss.focal_gamma is not None:
        losses = losses * _focus(1 - own.exp(), loss.focal_gamma)
    factors = _factors(loss, weights)
    return losses if factors is None else losses * paddle.gather(paddle.to_tensor(factors), labels)


def label_losses(
    logits: paddle.Tensor, labels: paddle.Tensor, loss: LossSection, weights: Sequence[float] | None
) -> paddle.Tensor:
    """Losses [rows] of independent labels: the mean over the labels of a binary loss each.

    `logits` and `labels` (0 or 1) are float32 [rows, labels]. The same formulas as `class_losses`, with
    p = sigmoid(logits); `weights` are those of the labels where they are given to a row.
    """
    import paddle
    import paddle.nn.functional as F

    logits = logits.astype("float32")
    # Each label is a decision between two, so half of the smoothing goes to either side.
    target = labels * (1 - loss.label_smoothing) + loss.label_smoothing / 2
    # The form with logits is stable; log(sigmoid(x)) underflows for x below -100 in float32.
    losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    if loss.focal_gamma is not None:
        p = F.sigmoid(logits)
        losses = losses * _focus(labels * (1 - p) + (1 - labels) * p, loss.focal_gamma)
    if loss.focal_alpha is not None:
        losses = losses * (labels * loss.focal_alpha + (1 - labels) * (1 - loss.focal_alpha))
    if weights is not None:
        given = paddle.to_tensor(np.asarray(weights, np.float32))
        losses = losses * (labels * given + (1 - labels))
    return losses.mean(-1)


def _focus(missing: paddle.Tensor, gamma: float) -> paddle.Tensor:
    """`missing` ** `gamma`, of what p lacks of 1. At 0 the slope is infinite where gamma is below 1, and a row that
    is certain to the last bit would give a gradient of NaN; clipped, it gives none."""
    return missing.clip(min=1e-12) ** gamma


def _factors(loss: LossSection, weights: Sequence[float] | None) -> np.ndarray | None:
    factors = None if weights is None else np.asarray(weights, np.float32)
    if loss.focal_alpha is not None:
        alpha = np.array([1 - loss.focal_alpha, loss.focal_alpha], np.float32)
        factors = alpha if factors is None else factors * alpha
    return factors


def require_two_labels(labels: int, where: str, hint: str) -> None:
    """UserError for a key, `where`, that means something for two labels only."""
    if labels != 2:
        raise UserError(f"this is for two labels, there are {labels}", where=where, hint=hint)


def given_weights(loss: LossSection, names: Sequence[str]) -> tuple[float, ...] | None:
    """One weight per label as the recipe writes them, None if it does not. UserError: one for an unknown label."""
    if not loss.weights:
        return None
    unknown = [name for name in loss.weights if name not in names]
    if unknown:
        known = ", ".join(list(names)[:10])
        raise UserError(f"there is no label {unknown[0]!r}", where="loss.weights", hint=f"the labels are {known}")
    weights: Mapping[str, Any] = loss.weights  # config/checks.py refuses what is no number
    return tuple(float(weights.get(name, 1.0)) for name in names)


def balanced_weights(names: Sequence[str], counts: Sequence[int]) -> tuple[float, ...]:
    """One weight per label, n / (k * count) for n rows of k labels (scikit-learn's rule).

    The mean over the rows of the training data is 1, so the learning rate keeps its meaning. A label without a row,
    which a fold of a rare one may be, is not one of the k; its weight is 1, and a warning names it.
    """
    absent = [repr(name) for name, count in zip(names, counts, strict=True) if not count]
    if absent:
        console.warn(f"no training row has the label {and_more(absent)}: loss.class_weights balances the others")
    present = len(names) - len(absent)
    return tuple(sum(counts) / (present * count) if count else 1.0 for count in counts)
