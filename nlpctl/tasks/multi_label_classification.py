"""Multi-label classification: any number of labels for a text or a pair of texts, flat or hierarchical.

A label is given where its probability reaches its threshold, and with it all its ancestors
(data/rows/multi_label_rows.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.config.tasks import NO_LABEL
from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.multi_label_rows import MultiLabelExample, ancestor_ids, ancestors, depth
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.models.calibration import Calibration
from nlpctl.tasks.base import Mistake
from nlpctl.tasks.confidence import Confidences, scales_and_shifts, sigmoid
from nlpctl.tasks.losses import label_losses
from nlpctl.tasks.sequence_classification import (
    LEAST,
    TextClassification,
    figures_by_label,
    rounded,
    stacked,
)
from nlpctl.tasks.tallies import Tallies, make_tallies, ratio

if TYPE_CHECKING:
    import paddle


class MultiLabelClassification(TextClassification):
    """One binary decision per label: labels are float32 [batch, labels], 0 or 1."""

    independent = True
    answer_keys = ("labels", "probabilities")

    def _check_labels(self) -> None:
        """Any number of labels is valid, since each is a binary decision."""

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> MultiLabelCollator:
        return MultiLabelCollator(encoder, self.data.max_seq_length, len(self.labels), labelled)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        return label_losses(outputs[0], batch["labels"], self.recipe.loss, self.weights).mean()

    def _entropy(self, shares: np.ndarray) -> float:
        with_it = shares if self.weights is None else shares * np.asarray(self.weights)
        p = np.clip(with_it / (with_it + 1 - shares), 1e-300, 1 - 1e-15)
        return float(-(with_it * np.log(p) + (1 - shares) * np.log(1 - p)).mean())

    def _label_counts(self, examples: Sequence[MultiLabelExample]) -> Sequence[int]:
        return gold_array(examples, len(self.labels)).sum(0).tolist()

    def tune(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> tuple[float, ...]:
        gold = gold_array(examples, len(self.labels))
        return tuned_thresholds(_probabilities(predictions), gold, self.labels.names, self.recipe.decode.threshold)

    def probabilities(self, outputs: tuple[np.ndarray, ...], features: Sequence[MultiLabelExample]) -> list[np.ndarray]:
        return [sigmoid(logits)[None] for logits in outputs[0]]

    def prediction_from(self, probabilities: np.ndarray) -> np.ndarray:
        share = np.clip(probabilities[0].astype(np.float64), LEAST, 1 - 1e-15)
        return np.log(share) - np.log1p(-share)

    def report(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> dict[str, Any]:
        gold = gold_array(examples, len(self.labels))
        return multi_label_report(gold, self._chosen(_probabilities(predictions)), self.labels.names)

    def tallies(self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]) -> Tallies:
        gold, chosen = gold_array(examples, len(self.labels)), self._chosen(_probabilities(predictions))
        right = (gold == chosen).all(1)
        columns = np.column_stack([gold & chosen, chosen, gold, right, np.ones(len(gold))])
        names = self.labels.names
        expected = (sorted(names[i] for i in np.flatnonzero(row)) for row in gold)
        asked = [(each.text, each.text_pair, labels) for each, labels in zip(examples, expected, strict=True)]
        return make_tallies("label_sets", names, columns, right, asked)

    def mistakes(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> list[Mistake]:
        """Rows that lack a label or have one too many; the size adds up how far each of those probabilities is off."""
        gold, probabilities = gold_array(examples, len(self.labels)), self._answer_probabilities(predictions)
        chosen = self._chosen(_probabilities(predictions))

        def format_labels(row: int, labels: np.ndarray) -> str:
            names = [f"{self.labels.names[i]} ({probabilities[row, i]:.3f})" for i in np.flatnonzero(labels)]
            return ", ".join(names) or NO_LABEL

        sizes = (np.abs(gold - probabilities) * (gold != chosen)).sum(1)
        return [
            Mistake(row, float(sizes[row]), format_labels(row, gold[row]), format_labels(row, chosen[row]))
            for row in np.flatnonzero((gold != chosen).any(1)).tolist()
        ]

    def log_odds(self, logits: paddle.Tensor, label: int) -> paddle.Tensor:
        return logits[:, label]

    def answers(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> list[dict[str, Any]]:
        if not predictions:
            return []
        names, chosen = self.labels.names, self._chosen(_probabilities(predictions))
        probabilities = self._answer_probabilities(predictions)
        return [
            {"labels": [names[label] for label in np.flatnonzero(given)], "probabilities": shares}
            for given, shares in zip(chosen, rounded(names, probabilities), strict=True)
        ]

    def confidences(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> Confidences:
        """The labels that are given, each with its probability. One stays as long as a label below it does."""
        gold, chosen = gold_array(examples, len(self.labels)), self._chosen(_probabilities(predictions))
        probabilities = self._answer_probabilities(predictions)
        kept_up_to = np.where(chosen, probabilities, 0.0)
        for label, above in enumerate(ancestor_ids(self.labels.names)):
            for ancestor in above:
                kept_up_to[:, ancestor] = np.maximum(
                    kept_up_to[:, ancestor], np.where(chosen[:, label], probabilities[:, label], 0.0)
                )
        rows, labels = np.nonzero(chosen)
        return Confidences("labels", probabilities[rows, labels], gold[rows, labels], rows, kept_up_to[rows, labels])

    def fit_calibration(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> Calibration | None:
        """Of all decisions, for and against a label."""
        from nlpctl.tasks.calibration import fit_logistic

        gold, logits = gold_array(examples, len(self.labels)), stacked(predictions)
        rows, groups = np.indices(gold.shape, np.int32)
        return fit_logistic(logits.ravel(), gold.ravel(), groups.ravel(), self.labels.names, rows.ravel())

    def abstain(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """The labels that are sure enough, and what is above them; all probabilities stay."""
        sure = [name for name in answer["labels"] if answer["probabilities"][name] >= least]
        kept = {*sure, *(above for name in sure for above in ancestors(name))}
        return {**answer, "labels": [name for name in answer["labels"] if name in kept]}

    def _answer_probabilities(self, predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        if self.calibration is None:
            return _probabilities(predictions)
        scales, shifts = scales_and_shifts(self.calibration, self.labels.names)
        return sigmoid(stacked(predictions) * scales + shifts)

    def _chosen(self, probabilities: np.ndarray) -> np.ndarray:
        default = (self.recipe.decode.threshold,) * len(self.labels)
        thresholds = np.array(default if self.thresholds is None else self.thresholds)
        return consistent(probabilities >= thresholds, self.labels.names)


class MultiLabelCollator(Collator):
    """Labels are float32 [batch, labels], 1 where a row has the label."""

    def __init__(self, encoder: TextEncoder, max_length: int, labels: int, with_labels: bool) -> None:
        super().__init__(encoder, max_length, with_labels)
        self.labels = labels

    def label_array(self, examples: Sequence[MultiLabelExample]) -> np.ndarray:
        return gold_array(examples, self.labels).astype(np.float32)


def gold_array(examples: Sequence[MultiLabelExample], labels: int) -> np.ndarray:
    """bool [rows, labels], true where a row has the label."""
    gold = np.zeros((len(examples), labels), bool)
    for row, example in enumerate(examples):
        assert example.labels is not None, "the examples are labelled ones"
        gold[row, list(example.labels)] = True
    return gold


def _probabilities(predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Sigmoids float64 [rows, labels] of the logits, one row each."""
    return sigmoid(stacked(predictions))


# -- thresholds and scores; arrays are [rows, labels] -----------------------------------------------------------------


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
    cuts = upper > lower  # equal probabilities cannot be probabilities apart
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
    f1 = ratio(2 * hits, given + support)
    precision, recall = ratio(hits, given), ratio(hits, support)
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
        "micro_f1": float(ratio(2 * hits.sum(), given.sum() + support.sum())),
        "macro_f1": float(ratio(2 * hits, given + support).mean()),
    }
