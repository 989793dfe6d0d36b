"""Text matching: whether two texts, read together, match, and how likely that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.models.families import Head
from nlpctl.tasks.confidence import DIGITS
from nlpctl.tasks.sequence_classification import SequenceClassification, softmax
from nlpctl.tasks.tallies import Tallies, area_under_roc, bins, one_hot


class TextMatching(SequenceClassification):
    """Sequence classification of pairs; the second of the two labels means a match (data/rows/matching_rows.py)."""

    answer_keys = ("label", "score")

    @staticmethod
    def head(recipe: Recipe) -> Head:
        return Head("SequenceClassification", matches=True)

    def report(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> dict[str, Any]:
        """The report of a classifier, with `f1` of the matches and `auc`, the area under the ROC curve.

        auc is 0.5, that of guessing, where all rows have the same label.
        """
        report = super().report(examples, predictions)
        gold = np.array([example.label for example in examples])
        scores = [softmax(logits)[1] for (logits,) in predictions]
        distinct, places = np.unique(scores, return_inverse=True)
        matches, others = (np.bincount(places[gold == each], minlength=len(distinct)) for each in (1, 0))
        auc = float(area_under_roc(matches, others))
        f1 = report["labels"][self.labels.names[1]]["f1"]
        return {"rows": report["rows"], "accuracy": report["accuracy"], "f1": f1, "auc": auc, **report}

    def tallies(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> Tallies:
        from scipy.sparse import hstack

        classes = super().tallies(examples, predictions)
        gold = np.array([example.label for example in examples])
        places, count = bins(np.array([softmax(logits)[1] for (logits,) in predictions]))
        ranked = one_hot([places + count * (1 - gold)], 2 * count)
        return replace(classes, kind="matches", counts=hstack([classes.counts, ranked], "csr"))

    def abstain(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """The label null; the score, the probability of a match, stays."""
        # Rounded once more: 1 - 0.002137 is a little below 0.997863.
        share = answer["score"] if answer["label"] == self.labels.names[1] else round(1 - answer["score"], DIGITS)
        return answer if share >= least else {**answer, "label": None}

    def answers(
        self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> list[dict[str, Any]]:
        """The label, and the probability of a match as `score`."""
        match = self.labels.names[1]
        answers = super().answers(examples, predictions)
        return [{"label": answer["label"], "score": answer["probabilities"][match]} for answer in answers]
