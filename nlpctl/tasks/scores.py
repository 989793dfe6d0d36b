"""Scores of classification, computed by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def classification_report(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Accuracy, macro/micro/weighted F1, figures per label, and the confusion matrix.

    `gold` and `predicted` are int [n] label ids. A label that never occurs and is never predicted
    scores 0, as scikit-learn does with zero_division=0. `confusion[i][j]` counts rows of label i
    that were given label j.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

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
        "confusion": confusion_matrix(gold, predicted, labels=ids).tolist(),
    }


def figures_by_label(
    names: Sequence[str], precision: np.ndarray, recall: np.ndarray, f1: np.ndarray, support: np.ndarray
) -> dict[str, dict[str, float | int]]:
    """The part of a report that goes label by label, from arrays [labels]."""
    return {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(count)}
        for name, p, r, f, count in zip(names, precision, recall, f1, support, strict=True)
    }


def confusion(gold: np.ndarray, given: np.ndarray, labels: int) -> np.ndarray:
    """int [labels, labels], rows of label i that were given label j, from int [rows] label ids."""
    return np.bincount(gold * labels + given, minlength=labels * labels).reshape(labels, labels)


def table_score(tables: np.ndarray, metric: str) -> np.ndarray:
    """One figure of the report for each of int [..., labels, labels] `confusion` tables: float [...].

    accuracy, macro_f1, weighted_f1, or f1 of label 1. Computed here because a search of thresholds asks for
    thousands of them.
    """
    right, support, given = tables.diagonal(axis1=-2, axis2=-1), tables.sum(-1), tables.sum(-2)
    if metric == "accuracy":
        return right.sum(-1) / support.sum(-1)
    f1 = 2 * right / np.maximum(support + given, 1)
    if metric == "f1":
        return f1[..., 1]
    return f1.mean(-1) if metric == "macro_f1" else (f1 * support).sum(-1) / support.sum(-1)
