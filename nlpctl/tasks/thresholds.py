"""Decision thresholds of a classifier, found on labelled data.

The predicted label maximises p_i / t_i. With equal thresholds that is the most probable label. With two labels and
t = (1 - s, s), the second is predicted if its probability is above s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nlpctl.tasks.scores import counted_score, label_counts

GRID = 64  # candidate thresholds per label where there are more than two
ROUNDS = 3  # times that each label's threshold is tried anew


def chosen_labels(probabilities: np.ndarray, thresholds: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """int [rows]: the label given to each row of float [rows, labels]."""
    if thresholds is None:
        return probabilities.argmax(-1)
    return (probabilities / np.asarray(thresholds)).argmax(-1)


def best_thresholds(probabilities: np.ndarray, gold: np.ndarray, metric: str) -> tuple[float, ...]:
    """Thresholds, one per label, that sum to 1 and with which the score `metric` is highest on these rows.

    float [rows, labels], int [rows]. Two labels: the best of all cuts between the rows' probabilities, the one
    nearest to 0.5 among equals. More: one label's threshold after the other, from equal ones on; a change has to
    raise the score.
    """
    labels = probabilities.shape[1]
    if labels == 2:
        return _best_cut(probabilities[:, 1], gold, metric)
    thresholds = np.full(labels, 1 / labels)
    best = counted_score(label_counts(gold, chosen_labels(probabilities, thresholds), labels), metric)
    for _ in range(ROUNDS):
        before = best
        for label in range(labels):
            rivals, turning = _turning_points(probabilities, thresholds, label)
            for value in _candidates(turning):
                given = np.where(turning > value, label, rivals)
                reached = counted_score(label_counts(gold, given, labels), metric)
                if reached > best:
                    best, thresholds[label] = reached, value
        if best == before:
            break
    return tuple(float(t) for t in thresholds / thresholds.sum())


def _best_cut(probabilities: np.ndarray, gold: np.ndarray, metric: str) -> tuple[float, float]:
    """The best of all cuts. The counts of a cut follow from the number of rows of each label above it."""
    probabilities = probabilities.astype(np.float64)  # the middle between 1 and the number before it is neither
    values = np.unique(probabilities)
    # Only cuts between two probabilities can change an answer; 0.5 is kept where it is as good.
    cuts = np.array([0.5, *((values[:-1] + values[1:]) / 2)])
    counts = np.zeros((len(cuts), 3, 2), np.int64)  # as of `label_counts`
    for label in (0, 1):
        own = np.sort(probabilities[gold == label])
        below = np.searchsorted(own, cuts, side="right")
        counts[:, 0, label] = len(own) - below if label else below
        counts[:, 1, label] = len(own)
        counts[:, 2] += np.stack([below, len(own) - below], 1)
    scores = counted_score(counts, metric)
    best = cuts[scores == scores.max()]
    cut = float(best[np.argmin(np.abs(best - 0.5))])
    return (1 - cut, cut)


def _turning_points(probabilities: np.ndarray, thresholds: np.ndarray, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Per row the label that is given where `label` is not, int [rows], and the threshold below which `label` is."""
    scaled = probabilities / thresholds
    scaled[:, label] = -1.0
    return scaled.argmax(1), probabilities[:, label] / np.maximum(scaled.max(1), 1e-12)


def _candidates(turning: np.ndarray) -> np.ndarray:
    """Thresholds at which some row changes its label: GRID quantiles of them."""
    turning = turning[(turning > 1e-6) & np.isfinite(turning)]
    return np.unique(np.quantile(turning, np.linspace(0, 1, GRID))) * (1 + 1e-9) if len(turning) else turning
