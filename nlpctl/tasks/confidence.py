"""How sure a model is of its decisions, and whether it is right as often as it says.

A decision is the label of a row, an answer, or one of the labels or entities that were found; its confidence is the
probability in the answer. A task turns the predictions of a split into `Confidences`; the rest is common to all
tasks. Calibration (models/calibration.py) changes probabilities and no decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.layout import CALIBRATION, CONFIDENCE, ECE
from nlpctl.models.calibration import Calibration

DIGITS = 6  # decimals of the probabilities in answers
BINS = 15
_DRAWS, _SEED = 10_000, 2007
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # least confidences of the table of coverage


@dataclass(frozen=True, eq=False)
class Confidences:
    """The n decisions of a split, with their `confidence`, float64 [n].

    `what`: what they are, for people: rows, answers, labels, entities, words. `right`: bool [n]; `rows`: int64 [n], the
    example of each. `kept_up_to`, float64 [n]: up to which least confidence each is kept, where that is more than its
    own: a label is kept with the surest of the labels below it. None: its own.
    """

    what: str
    confidence: np.ndarray
    right: np.ndarray
    rows: np.ndarray
    kept_up_to: np.ndarray | None = None

    @property
    def keep_threshold(self) -> np.ndarray:
        """The highest `--min-confidence` that keeps each decision, rounded as answers show it; float64 [n]."""
        return (self.confidence if self.kept_up_to is None else self.kept_up_to).round(DIGITS)


def reliability(decisions: Confidences) -> list[list[float]]:
    """[mean confidence, share of right decisions, decisions] of each bin that is not empty.

    BINS bins of equal width over [0, 1], as of Guo et al. (2017), "On Calibration of Modern Neural Networks", section
    2; the last one holds 1.
    """
    places = np.minimum((decisions.confidence * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    sums = np.bincount(places, decisions.confidence, BINS), np.bincount(places, decisions.right, BINS)
    held = np.flatnonzero(counts)
    return [[*(round(float(each[i] / counts[i]), 6) for each in sums), int(counts[i])] for i in held]


def ece(decisions: Confidences) -> float:
    """The expected calibration error, sum over bins of n_b / n |right_b - confidence_b| (Guo et al., 2017, eq. 3).

    0 is honest; the bins are those of `reliability`. Naeini et al. (2015) gave it its name.
    """
    bins = np.array(reliability(decisions))
    return float((np.abs(bins[:, 0] - bins[:, 1]) * bins[:, 2]).sum() / len(decisions.right))


def chance_ece(bins: Sequence[Sequence[float]]) -> float:
    """The ECE that honest probabilities stay below in 95 of 100 splits as large as that of `bins` (of `reliability`).

    In each bin as many decisions are drawn, right as often as its confidence says: the consistency resampling of
    Bröcker and Smith (2007), "Increasing the Reliability of Reliability Diagrams". Below it a split cannot tell whether
    anything is to be calibrated.
    """
    honest, count = np.array([each[0] for each in bins]), np.array([int(each[2]) for each in bins])
    drawn = np.random.default_rng(_SEED).binomial(count, honest.clip(0, 1), (_DRAWS, len(bins)))
    return float(np.quantile(np.abs(drawn - honest * count).sum(-1) / count.sum(), 0.95))


def coverage(decisions: Confidences) -> list[dict[str, Any]]:
    """Per level of LEVELS the share of decisions that `--min-confidence` keeps, and the share of these that is right.

    `precision` is None where no decision is left.
    """
    levels = []
    for level in LEVELS:
        kept = decisions.keep_threshold >= level
        right = float(decisions.right[kept].mean()) if kept.any() else None
        levels.append({"min_confidence": level, "coverage": float(kept.mean()), "precision": right})
    return levels


def confidence_report(decisions: Confidences | None, before: Confidences | None) -> dict[str, Any]:
    """What a report says of confidence: ECE, and under CONFIDENCE what stands behind it and the `coverage`.

    `before`: the same decisions without the calibration of the model; None: it has none. Empty without decisions.
    """
    if decisions is None or not len(decisions.right):
        return {}
    report: dict[str, Any] = {
        "of": decisions.what,
        "reliability": reliability(decisions),
        "coverage": coverage(decisions),
    }
    if before is not None:
        report["before"] = {ECE: ece(before), "reliability": reliability(before)}
    return {ECE: ece(decisions), CONFIDENCE: report}


# -- calibrated probabilities ----------------------------------------------------------------------


def scales_and_shifts(calibration: Calibration, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift of each of `names`: float64 [names] both. UserError: the calibration is of other names."""
    if not calibration.names:
        return np.full(len(names), calibration.scales[0]), np.full(len(names), calibration.shifts[0])
    places = {name: place for place, name in enumerate(calibration.names)}
    other = next((name for name in names if name not in places), None)
    if other is not None:
        hint = "fit it again: nlpctl calibrate MODEL"
        raise UserError(f"says nothing of {other!r}, so it is of another model", CALIBRATION, hint)
    chosen = [places[name] for name in names]
    return np.array(calibration.scales)[chosen], np.array(calibration.shifts)[chosen]


def temperature_scaled(logits: np.ndarray, calibration: Calibration, names: Sequence[str]) -> np.ndarray:
    """Logits [rows, labels] as a calibration scales each row, which leaves the order of its labels; float64."""
    scales, _ = scales_and_shifts(calibration, names)
    of_rows = scales[logits.argmax(-1)]
    if calibration.power:
        of_rows = of_rows * np.exp(calibration.power * margins(logits))
    return logits.astype(np.float64) * of_rows[:, None]


def margins(logits: np.ndarray) -> np.ndarray:
    """log(1 + how far the highest logit of each row is ahead of the second), float64 [rows]; 0 for a single label."""
    if logits.shape[-1] < 2:
        return np.zeros(len(logits))
    two = np.partition(logits.astype(np.float64), -2, axis=-1)[:, -2:]
    return np.log1p(two[:, 1] - two[:, 0])


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """log(p / (1 - p)), finite for 0 and 1."""
    held = np.clip(probabilities.astype(np.float64), 1e-12, 1 - 1e-12)
    return np.log(held) - np.log1p(-held)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Of each value, in float64."""
    return 1 / (1 + np.exp(-np.clip(values.astype(np.float64), -500, 500)))  # exp overflows above 709
