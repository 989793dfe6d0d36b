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
        "labels": {
            name: {
                "precision": float(precision[i]),
                "recall": float(recall[i]),
                "f1": float(f1[i]),
                "support": int(support[i]),
            }
            for i, name in enumerate(names)
        },
        "confusion": confusion_matrix(gold, predicted, labels=ids).tolist(),
    }
