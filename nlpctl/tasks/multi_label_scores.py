"""Scores and thresholds of multi-label classification; arrays are [rows, labels].

A label is given where its probability reaches its threshold, and with it all its ancestors (label_tree.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nlpctl.data.rows.multi_label_rows import ancestor_ids, depth
from nlpctl.tasks.scores import figures_by_label


def consistent(chosen: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """bool [rows, labels]: `chosen`, and the ancestors of what is chosen."""
    closed = chosen.copy()
    for label, above in enumerate(ancestor_ids(names)):
        for ancestor in above:
            closed[:, ancestor] |= chosen[:, label]
    return closed


def tuned_thresholds(
    probabilities: np.ndarray, gold: np.ndarray, names: Sequence[str], default: float
) -> tuple[float, ...]:
    """Per label the threshold with the best F1; `default` for a label that never occurs in `gold`.

    Lower levels are tuned first: a predicted label implies its ancestors, so the thresholds of these decide about the
    other rows only.
    """
    thresholds = [default] * len(names)
    implied = np.zeros(gold.shape, bool)
    above = ancestor_ids(names)
    # Deepest first: a child's threshold decides which rows its ancestors get, whatever their own thresholds are.
    for label in sorted(range(len(names)), key=lambda i: -depth(names[i])):
        thresholds[label] = best_threshold(probabilities[:, label], gold[:, label], implied[:, label], default)
        given = implied[:, label] | (probabilities[:, label] >= thresholds[label])
        for ancestor in above[label]:
            implied[:, ancestor] |= given
    return tuple(thresholds)


def best_threshold(probabilities: np.ndarray, gold: np.ndarray, implied: np.ndarray, default: float) -> float:
    """The threshold of one label with the best F1, halfway between two probabilities; of ties the nearest to `default`.

    All arrays are [rows]. Rows with `implied` get the label whatever the threshold. `default` is returned if no row of
    `gold` has the label.
    """
    if not gold.any():
        return default
    order = np.argsort(-probabilities, kind="stable")
    free = ~implied[order]
    # Entry k: the k most probable rows are given the label, from none to all.
    # Rows that are implied count from the start; moving the cut adds the free ones only.
    hits = implied[gold].sum() + np.cumsum([0, *(gold[order] & free)])
    given = implied.sum() + np.cumsum([0, *free])
    f1 = 2 * hits / (given + gold.sum())
    upper, lower = np.append(1.0, probabilities[order]), np.append(probabilities[order], 0.0)
    cuts = upper > lower  # equal probabilities cannot be told apart
    cuts[-1] = True
    candidates, scores = ((upper + lower) / 2)[cuts], f1[cuts]
    # With a tolerance, since equal fractions may differ in their last bit.
    best = candidates[scores >= scores.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - default))])


def multi_label_report(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Micro, macro and weighted F1, the share of rows with all labels right, and figures per label and level.

    `gold` and `predicted` are bool [rows, labels]. A label that never occurs and is never predicted scores 0,
    as scikit-learn does with zero_division=0. "levels" is there for hierarchical labels only.
    """
    hits = (gold & predicted).sum(0)
    given, support = predicted.sum(0), gold.sum(0)
    f1 = _ratio(2 * hits, given + support)
    precision, recall = _ratio(hits, given), _ratio(hits, support)
    levels = np.array([depth(name) for name in names])
    report: dict[str, Any] = {
        "rows": len(gold),
        **_f1_of(hits, given, support),
        "weighted_f1": float((f1 * support).sum() / max(support.sum(), 1)),
        "exact_match": float((gold == predicted).all(1).mean()),
        "labels": figures_by_label(names, precision, recall, f1, support),
    }
    if levels.max() > 1:
        report["levels"] = {
            str(level): {
                **_f1_of(hits[levels == level], given[levels == level], support[levels == level]),
                "labels": int((levels == level).sum()),
            }
            for level in range(1, levels.max() + 1)
        }
    return report


def _f1_of(hits: np.ndarray, given: np.ndarray, support: np.ndarray) -> dict[str, float]:
    return {
        "micro_f1": float(_ratio(2 * hits.sum(), given.sum() + support.sum())),
        "macro_f1": float(_ratio(2 * hits, given + support).mean()),
    }


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, 0 where whole is 0."""
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)
