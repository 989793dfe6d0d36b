"""Sequence classification: one label for a sentence or a pair of sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from nlpctl.config.schema import DataSection, ModelSection
from nlpctl.data.collate import Collator
from nlpctl.data.examples import TextExample
from nlpctl.data.labels import LabelSet
from nlpctl.data.tokenizers import TextEncoder
from nlpctl.models.load import LoadedModel, load_classifier
from nlpctl.tasks.base import Batch
from nlpctl.tasks.scores import classification_report


class SequenceClassification:
    """Logits are [batch, labels]; labels are int64 [batch]."""

    name = "sequence_classification"

    def __init__(self, data: DataSection, labels: LabelSet):
        self.data = data
        self.labels = labels

    def build_model(self, model: ModelSection, texts: Callable[[], Iterable[str]] | None) -> LoadedModel:
        return load_classifier(model, self.labels.names, vocabulary_texts=texts)

    def collator(self, encoder: TextEncoder, *, with_labels: bool) -> Callable[[Sequence[TextExample]], Batch]:
        return Collator(encoder, self.data.max_seq_length, with_labels=with_labels)

    def loss(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        return F.cross_entropy(logits, labels)

    def metrics(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        report = self.report(logits, labels)
        return {name: report[name] for name in ("accuracy", "macro_f1", "micro_f1", "weighted_f1")}

    def report(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        return classification_report(labels, logits.argmax(-1), self.labels.names)

    def decode(self, logits: np.ndarray) -> list[Mapping[str, Any]]:
        return [self._answer(row) for row in softmax(logits)]

    def _answer(self, probabilities: np.ndarray) -> Mapping[str, Any]:
        values = [round(float(p), 6) for p in probabilities]
        best = int(np.argmax(probabilities))
        return {"label": self.labels.names[best], "probabilities": dict(zip(self.labels.names, values, strict=True))}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Row-wise softmax of [batch, labels], in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
