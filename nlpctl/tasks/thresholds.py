"""Decision thresholds of a classifier, found on labelled data.

The label given is the one with the largest p_i / t_i. With the same t for all that is the most probable
one; with two labels and t = (1 - s, s) it is the second from p = s on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Score = Callable[[np.ndarray], float]  # of the chosen label ids, int [rows]
GRID = 64  # candidate thresholds per label where there are more than two
ROUNDS = 3  # times that each label's threshold is tried anew


def chosen_labels(probabilities: np.ndarray, thresholds: Sequence[float] | None) -> np.ndarray:
    """int [rows]: the label given to each row of float [rows, labels]."""
    if thresholds is None:
        return probabilities.argmax(-1)
    return (probabilities / np.asarray(thresholds)).argmax(-1)


def best_thresholds(probabilities: np.ndarray, score: Score) -> tuple[float, ...]:
    """Thresholds, one per label, that sum to 1 and with which `score` is highest on these rows.

    Two labels: the best of all cuts between the rows' probabilities, the one nearest to 0.5 among equals.
    More: one label's threshold after the other, from equal ones on; a change has to raise the score.
    """
    labels = probabilities.shape[1]
    if labels == 2:
        return _best_cut(probabilities, score)
    thresholds = np.full(labels, 1 / labels)
    best = score(chosen_labels(probabilities, thresholds))
    for _ in range(ROUNDS):
        before = best
        for label in range(labels):
            for value in _candidates(probabilities, thresholds, label):
                tried = thresholds.copy()
                tried[label] = value
                reached = score(chosen_labels(probabilities, tried))
                if reached > best:
                    best, thresholds = reached, tried
        if best == before:
            break
    return tuple(float(t) for t in thresholds / thresholds.sum())


def _best_cut(probabilities: np.ndarray, score: Score) -> tuple[float, ...]:
    values = np.unique(probabilities[:, 1])
    cuts = [0.5, *((values[:-1] + values[1:]) / 2)]
    found = [(score(chosen_labels(probabilities, (1 - cut, cut))), -abs(cut - 0.5), cut) for cut in cuts]
    cut = float(max(found)[2])
    return (1 - cut, cut)


def _candidates(probabilities: np.ndarray, thresholds: np.ndarray, label: int) -> np.ndarray:
    """Thresholds of `label` at which some row changes its label: GRID quantiles of them."""
    others = np.delete(probabilities / thresholds, label, axis=1).max(1)
    turning = probabilities[:, label] / np.maximum(others, 1e-12)
    turning = turning[(turning > 1e-6) & np.isfinite(turning)]
    return np.unique(np.quantile(turning, np.linspace(0, 1, GRID))) * (1 + 1e-9) if len(turning) else turning
