"""Sequence classification: one label for a sentence or a pair of sentences; its scores, and thresholds for them."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.models.calibration import Calibration
from nlpctl.models.families import Head
from nlpctl.tasks.base import Mistake, Task, Texts
from nlpctl.tasks.confidence import DIGITS, Confidences, temperature_scaled
from nlpctl.tasks.losses import balanced_weights, class_losses, given_weights, require_two_labels
from nlpctl.tasks.tallies import Tallies, class_columns, make_tallies

if TYPE_CHECKING:
    import paddle

    from nlpctl.models.load import LoadedModel


_AT_ONCE = 1024  # rows
LEAST = 1e-30  # probability whose logarithm is still taken


class TextClassification(Task):
    """Labels of whole texts, one each or several. Outputs are logits [batch, labels]; a prediction is one row of them.

    A subclass also says what the labels of an example are, and how logits become probabilities.
    """

    def __init__(self, recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None = None):
        super().__init__(recipe, labels, thresholds)
        self.weights: tuple[float, ...] | None = None  # of the labels in the loss

    def build_model(self, texts: Texts | None) -> LoadedModel:
        self._check_labels()
        self.weights = given_weights(self.recipe.loss, self.labels.names)
        return super().build_model(texts)

    @abstractmethod
    def _check_labels(self) -> None:
        """UserError if the recipe asks for what this number of labels does not allow."""

    def collect_statistics(self, examples: Sequence[Any]) -> None:
        if self.recipe.loss.class_weights == "balanced":
            self.weights = balanced_weights(self.labels.names, self._label_counts(examples))

    def constant_loss(self, examples: Sequence[Any]) -> float | None:
        loss = self.recipe.loss
        if loss.focal_gamma is not None or loss.focal_alpha is not None or loss.label_smoothing:
            return None
        return self._entropy(np.asarray(self._label_counts(examples), np.float64) / len(examples))

    @abstractmethod
    def _entropy(self, shares: np.ndarray) -> float:
        """The loss of giving the labels their `shares` of the rows, [labels], weighted as the loss is."""

    @abstractmethod
    def _label_counts(self, examples: Sequence[Any]) -> Sequence[int]:
        """The number of rows with each label."""

    @staticmethod
    def head(recipe: Recipe) -> Head:
        return Head("SequenceClassification")

    def predictions(self, outputs: tuple[np.ndarray, ...], features: Sequence[Any]) -> list[np.ndarray]:
        return list(outputs[0])

    def label_probabilities(self, predictions: Sequence[np.ndarray]) -> dict[str, float]:
        return rounded(self.labels.names, self._answer_probabilities([predictions]))[0]

    @abstractmethod
    def log_odds(self, logits: paddle.Tensor, label: int) -> paddle.Tensor:
        """The log odds log(p / (1 - p)) of a label, [rows], from logits [rows, labels]."""

    def answer(self, example: Any, predictions: Sequence[np.ndarray]) -> dict[str, Any]:
        (answer,) = self.answers((example,), (predictions,))
        return answer

    @abstractmethod
    def _answer_probabilities(self, predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """float64 [rows, labels]: the probabilities in answers, calibrated if the task is."""


class SequenceClassification(TextClassification):
    """One label per text: labels are int64 [batch]."""

    answer_keys = ("label", "probabilities")

    def _check_labels(self) -> None:
        if self.recipe.decode.tune == "f1":
            require_two_labels(len(self.labels), "decode.tune", "use macro_f1 or weighted_f1")
        if self.recipe.loss.focal_alpha is not None:
            hint = "give each its weight: loss.weights, or loss.class_weights"
            require_two_labels(len(self.labels), "loss.focal_alpha", hint)

    def _entropy(self, shares: np.ndarray) -> float:
        weighted = shares if self.weights is None else shares * np.asarray(self.weights)
        return float(-(weighted * np.log(np.maximum(weighted / weighted.sum(), 1e-300))).sum())

    def _label_counts(self, examples: Sequence[TextExample]) -> Sequence[int]:
        counts = Counter(example.label for example in examples)
        return [counts[label] for label in range(len(self.labels))]

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Collator:
        return Collator(encoder, self.data.max_seq_length, with_labels=labelled)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        return class_losses(outputs[0], batch["labels"], self.recipe.loss, self.weights).mean()

    def probabilities(self, outputs: tuple[np.ndarray, ...], features: Sequence[TextExample]) -> list[np.ndarray]:
        return [softmax(logits)[None] for logits in outputs[0]]

    def prediction_from(self, probabilities: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(probabilities[0], LEAST))

    def report(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> dict[str, Any]:
        return classification_report(_gold(examples), self._chosen_labels(predictions), self.labels.names)

    def tallies(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> Tallies:
        gold, chosen = _gold(examples), self._chosen_labels(predictions)
        columns, names = class_columns(gold, chosen, len(self.labels)), self.labels.names
        asked = [(each.text, each.text_pair, names[label]) for each, label in zip(examples, gold.tolist(), strict=True)]
        return make_tallies("classes", names, columns, gold == chosen, asked)

    def mistakes(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> list[Mistake]:
        """The misclassified rows. The size of a mistake is 1 minus the probability of the true label."""
        gold, chosen = _gold(examples), self._chosen_labels(predictions)
        true, given = self._probability_of(predictions, gold, chosen)
        names = self.labels.names
        return [
            Mistake(
                row,
                1 - float(true[row]),
                f"{names[gold[row]]} ({true[row]:.3f})",
                f"{names[chosen[row]]} ({given[row]:.3f})",
            )
            for row in np.flatnonzero(gold != chosen).tolist()
        ]

    def tune(
        self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> tuple[float, ...] | None:
        """Thresholds (`best_thresholds`) for the score that decode.tune names."""
        metric = self.recipe.decode.tune
        return None if metric is None else best_thresholds(_probabilities(predictions), _gold(examples), metric)

    def log_odds(self, logits: paddle.Tensor, label: int) -> paddle.Tensor:
        """Of a label against all others."""
        import paddle

        # p / (1 - p) = exp(logit) / sum of exp of the other logits; so no probability near 1 is subtracted from 1.
        others = paddle.to_tensor([i for i in range(len(self.labels)) if i != label])
        return logits[:, label] - paddle.logsumexp(paddle.index_select(logits, others, axis=1), axis=1)

    def answers(
        self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> list[dict[str, Any]]:
        if not predictions:
            return []
        names, chosen = self.labels.names, self._chosen_labels(predictions).tolist()
        probabilities = self._answer_probabilities(predictions)
        return [
            {"label": names[best], "probabilities": shares}
            for best, shares in zip(chosen, rounded(names, probabilities), strict=True)
        ]

    def confidences(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> Confidences:
        """The label of each row, with its probability."""
        chosen, rows = self._chosen_labels(predictions), np.arange(len(examples))
        (confidence,) = self._probability_of(predictions, chosen)
        return Confidences("rows", confidence, chosen == _gold(examples), rows)

    def fit_calibration(
        self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]
    ) -> Calibration | None:
        from nlpctl.tasks.calibration import fit_temperature

        return fit_temperature(stacked(predictions), _gold(examples), self.labels.names)

    def abstain(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """The label null; the probabilities stay."""
        return answer if answer["probabilities"][answer["label"]] >= least else {**answer, "label": None}

    def _chosen_labels(self, predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """int [rows]: the labels given. Calibration has no say in them."""
        if self.thresholds is None:
            # The largest logit is the largest probability. Row by row: of 10,000 labels a row is a megabyte of copies.
            return np.array([int(np.argmax(logits)) for (logits,) in predictions], np.int64)
        parts = [chosen_labels(_probabilities(part), self.thresholds) for part in _chunks(predictions)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _answer_probabilities(self, predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        if self.calibration is None:
            return _probabilities(predictions)
        return softmax(temperature_scaled(stacked(predictions), self.calibration, self.labels.names))

    def _probability_of(self, predictions: Sequence[Sequence[np.ndarray]], *labels: np.ndarray) -> list[np.ndarray]:
        """As `_answer_probabilities`, of one label per row: float64 [rows] for each of `labels`, int [rows]."""
        columns: list[list[np.ndarray]] = [[np.zeros(0)] for _ in labels]
        start = 0
        for part in _chunks(predictions):
            probabilities, rows = self._answer_probabilities(part), np.arange(len(part))
            for column, chosen in zip(columns, labels, strict=True):
                column.append(probabilities[rows, chosen[start : start + len(part)]])
            start += len(part)
        return [np.concatenate(column) for column in columns]


def _chunks(predictions: Sequence[Sequence[np.ndarray]]) -> Iterator[Sequence[Sequence[np.ndarray]]]:
    """The rows in parts: computing probabilities takes several copies of their logits in float64."""
    for start in range(0, len(predictions), _AT_ONCE):
        yield predictions[start : start + _AT_ONCE]


def _gold(examples: Sequence[TextExample]) -> np.ndarray:
    return np.array([example.label for example in examples])


def _probabilities(predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """float64 [rows, labels] of the logits, one row each."""
    return softmax(stacked(predictions))


def stacked(predictions: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """The logits [rows, labels] of examples with one feature each."""
    return np.concatenate([logits for (logits,) in predictions]).reshape(len(predictions), -1)


def rounded(names: Sequence[str], probabilities: np.ndarray) -> list[dict[str, float]]:
    """Name -> probability of each row of float64 [rows, labels], as answers show them."""
    return [dict(zip(names, row, strict=True)) for row in probabilities.round(DIGITS).tolist()]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


# -- scores -----------------------------------------------------------------------------------------------------------

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
    right, support, given = label_counts(np.asarray(gold), np.asarray(predicted), len(names))
    precision, recall = right / np.maximum(given, 1), right / np.maximum(support, 1)
    f1 = 2 * right / np.maximum(given + support, 1)
    accuracy = float(np.mean(gold == predicted))
    return {
        "rows": int(len(gold)),
        "accuracy": accuracy,
        "macro_f1": float(f1.mean()),
        "micro_f1": accuracy,  # every row has one label and one answer
        "weighted_f1": float((f1 * support).sum() / max(len(gold), 1)),
        "labels": figures_by_label(names, precision, recall, f1, support),
        **_confused(gold, predicted, names),
    }


def _confused(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    size = len(names)
    pairs = np.asarray(gold, np.int64) * size + predicted
    if size <= MOST_SQUARED:
        return {"confusion": np.bincount(pairs, minlength=size * size).reshape(size, size).tolist()}
    distinct, counts = np.unique(pairs[gold != predicted], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_CONFUSIONS]
    most_frequent = zip(distinct[order].tolist(), counts[order].tolist(), strict=True)
    return {"confusions": [[names[pair // size], names[pair % size], count] for pair, count in most_frequent]}


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


# -- thresholds, found on labelled data -------------------------------------------------------------------------------
#
# The predicted label maximises p_i / t_i. With equal thresholds that is the most probable label. With two labels and
# t = (1 - s, s), the second is predicted if its probability is above s.

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
