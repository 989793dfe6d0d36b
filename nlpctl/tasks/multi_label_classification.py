"""Multi-label classification: any number of labels for a text or a pair of texts, flat or hierarchical."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.data.batches.collate import Batch, Collator
from nlpctl.data.rows.multi_label_rows import MultiLabelExample, ancestor_ids, ancestors
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.models.confidence import Calibration
from nlpctl.tasks.base import Mistake
from nlpctl.tasks.confidence import Judged, numbers, sigmoid
from nlpctl.tasks.losses import label_losses
from nlpctl.tasks.multi_label_scores import consistent, multi_label_report, tuned_thresholds
from nlpctl.tasks.sequence_classification import LEAST, SequenceClassification, asked, rounded, stacked
from nlpctl.tasks.tallies import Tallies, tally

if TYPE_CHECKING:
    import paddle


class MultiLabelCollator(Collator):
    """Labels are float32 [batch, labels], 1 where a row has the label."""

    def __init__(self, encoder: TextEncoder, max_length: int, labels: int, with_labels: bool) -> None:
        super().__init__(encoder, max_length, with_labels)
        self.labels = labels

    def label_array(self, examples: Sequence[MultiLabelExample]) -> np.ndarray:
        return gold_array(examples, self.labels).astype(np.float32)


class MultiLabelClassification(SequenceClassification):
    """Outputs are logits [batch, labels], one binary decision each; a prediction is one row of them."""

    independent = True
    answer_keys = ("labels", "probabilities")

    def _check_labels(self) -> None:
        """Any number of labels is valid, since each is a binary decision."""

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Callable[[Sequence[MultiLabelExample]], Batch]:
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

    def probabilities(
        self, outputs: tuple[np.ndarray, ...], features: Sequence[MultiLabelExample]
    ) -> list[np.ndarray]:
        return [sigmoid(logits)[None] for logits in outputs[0]]

    def decided(self, probabilities: np.ndarray) -> np.ndarray:
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
        return tally("label_sets", self.labels.names, columns, right, asked(examples))

    def mistakes(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> list[Mistake]:
        """Rows that lack a label or have one too many; the size adds up how far each of those probabilities is off."""
        gold, probabilities = gold_array(examples, len(self.labels)), self._told(predictions)
        chosen = self._chosen(_probabilities(predictions))

        def told(row: int, labels: np.ndarray) -> str:
            names = [f"{self.labels.names[i]} ({probabilities[row, i]:.3f})" for i in np.flatnonzero(labels)]
            return ", ".join(names) or "(no label)"

        sizes = (np.abs(gold - probabilities) * (gold != chosen)).sum(1)
        return [
            Mistake(row, float(sizes[row]), told(row, gold[row]), told(row, chosen[row]))
            for row in np.flatnonzero((gold != chosen).any(1)).tolist()
        ]

    def told_probabilities(self, predictions: Sequence[np.ndarray]) -> dict[str, float]:
        return rounded(self.labels.names, self._told([predictions]))[0]

    def log_odds(self, logits: paddle.Tensor, label: int) -> paddle.Tensor:
        return logits[:, label]

    def answers(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> list[dict[str, Any]]:
        if not predictions:
            return []
        names, chosen = self.labels.names, self._chosen(_probabilities(predictions))
        probabilities = self._told(predictions)
        return [
            {"labels": [names[label] for label in np.flatnonzero(given)], "probabilities": shown}
            for given, shown in zip(chosen, rounded(names, probabilities), strict=True)
        ]

    def judged(self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]) -> Judged:
        """The labels that are given, each with its probability. One stays as long as a label below it does."""
        gold, chosen = gold_array(examples, len(self.labels)), self._chosen(_probabilities(predictions))
        told = self._told(predictions)
        held_by = np.where(chosen, told, 0.0)
        for label, above in enumerate(ancestor_ids(self.labels.names)):
            for ancestor in above:
                held_by[:, ancestor] = np.maximum(held_by[:, ancestor], np.where(chosen[:, label], told[:, label], 0.0))
        rows, labels = np.nonzero(chosen)
        return Judged("labels", told[rows, labels], gold[rows, labels], rows, held_by[rows, labels])

    def fit_calibration(
        self, examples: Sequence[MultiLabelExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> Calibration | None:
        """Of all decisions, for and against a label."""
        from nlpctl.tasks.calibration import fit_logistic

        gold, logits = gold_array(examples, len(self.labels)), stacked(predictions)
        rows, groups = np.indices(gold.shape, np.int32)
        return fit_logistic(logits.ravel(), gold.ravel(), groups.ravel(), self.labels.names, rows.ravel())

    def abstained(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """The labels that are sure enough, and what is above them; all probabilities stay."""
        sure = [name for name in answer["labels"] if answer["probabilities"][name] >= least]
        kept = {*sure, *(above for name in sure for above in ancestors(name))}
        return {**answer, "labels": [name for name in answer["labels"] if name in kept]}

    def _told(self, predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        if self.calibration is None:
            return _probabilities(predictions)
        scales, shifts = numbers(self.calibration, self.labels.names)
        return sigmoid(stacked(predictions) * scales + shifts)

    def _chosen(self, probabilities: np.ndarray) -> np.ndarray:
        default = (self.recipe.decode.threshold,) * len(self.labels)
        thresholds = np.array(default if self.thresholds is None else self.thresholds)
        return consistent(probabilities >= thresholds, self.labels.names)


def gold_array(examples: Sequence[MultiLabelExample], labels: int) -> np.ndarray:
    """bool [rows, labels], true where a row has the label."""
    gold = np.zeros((len(examples), labels), bool)
    for row, example in enumerate(examples):
        gold[row, list(example.labels)] = True
    return gold


def _probabilities(predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Sigmoids float64 [rows, labels] of the logits, one row each."""
    return sigmoid(stacked(predictions))


