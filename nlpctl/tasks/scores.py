"""Scores of classification, computed by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_SQUARED = 100  # labels; above, nothing has a figure per pair of labels
MOST_CONFUSIONS = 1000


def classification_report(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Accuracy, macro/micro/weighted F1, figures per label, and what was confused.

    `gold` and `predicted` are int [n] label ids. A label that never occurs and is never predicted
    scores 0, as scikit-learn does with zero_division=0. `confusion[i][j]` counts rows of label i
    that were given label j. A table of 10,000 labels has 100 million cells, so with more than
    MOST_SQUARED labels there are `confusions` in its place: [label, predicted as, rows], the
    MOST_CONFUSIONS most frequent first.
    """
    from sklearn.metrics import precision_recall_fscore_support

    ids = np.arange(len(names))
    precision, recall, f1, support = precision_recall_fscore_support(gold, predicted, labels=ids, zero_division=0)

    def average(kind: str) -> float:
        return float(precision_recall_fscore_support(gold, predicted, labels=ids, average=kind, zero_division=0)[2])

    return {
        "rows": int(len(gold)),
        "accuracy": float(np.mean(gold == predicted)),
        "macro_f1": average("macro"),
        "micro_f1": average("micro"),
        "weighted_f1": average("weighted"),
        "labels": figures_by_label(names, precision, recall, f1, support),
        **_confused(gold, predicted, names),
    }


def _confused(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    size = len(names)
    pairs = np.asarray(gold, np.int64) * size + predicted
    if size <= MOST_SQUARED:
        return {"confusion": np.bincount(pairs, minlength=size * size).reshape(size, size).tolist()}
    found, counts = np.unique(pairs[gold != predicted], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_CONFUSIONS]
    told = zip(found[order].tolist(), counts[order].tolist(), strict=True)
    return {"confusions": [[names[pair // size], names[pair % size], count] for pair, count in told]}


def figures_by_label(
    names: Sequence[str], precision: np.ndarray, recall: np.ndarray, f1: np.ndarray, support: np.ndarray
) -> dict[str, dict[str, float | int]]:
    """The part of a report that goes label by label, from arrays [labels]."""
    return {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(count)}
        for name, p, r, f, count in zip(names, precision, recall, f1, support, strict=True)
    }


def label_counts(gold: np.ndarray, given: np.ndarray, labels: int) -> np.ndarray:
    """int [3, labels], from int [rows] label ids: the rows of each label that were given it, its rows, and the rows
    that were given it."""
    return np.stack([np.bincount(each, minlength=labels) for each in (gold[gold == given], gold, given)])


def counted_score(counts: np.ndarray, metric: str) -> np.ndarray:
    """One figure of the report for each of int [..., 3, labels] `label_counts`: float [...].

    accuracy, macro_f1, weighted_f1, or f1 of label 1. Computed here because a search of thresholds asks for
    thousands of them.
    """
    right, support, given = (counts[..., i, :] for i in range(3))
    if metric == "accuracy":
        return right.sum(-1) / support.sum(-1)
    f1 = 2 * right / np.maximum(support + given, 1)
    if metric == "f1":
        return f1[..., 1]
    return f1.mean(-1) if metric == "macro_f1" else (f1 * support).sum(-1) / support.sum(-1)
