"""Sequence classification: one label for a sentence or a pair of sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from nlpctl.config.schema import Recipe
from nlpctl.data.collate import Collator
from nlpctl.data.text_rows import TextExample
from nlpctl.data.tokenizers import TextEncoder
from nlpctl.models.families import Head
from nlpctl.tasks.base import Batch, Task
from nlpctl.tasks.scores import classification_report


class SequenceClassification(Task):
    """Outputs are logits [batch, labels]; labels are int64 [batch]; a prediction is one row of logits."""

    name = "sequence_classification"
    @staticmethod
    def head(recipe: Recipe) -> Head:
        return Head("SequenceClassification")

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Callable[[Sequence[TextExample]], Batch]:
        return Collator(encoder, self.data.max_seq_length, with_labels=labelled)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        return F.cross_entropy(outputs[0], batch["labels"])

    def predictions(self, outputs: tuple[np.ndarray, ...], features: Sequence[TextExample]) -> list[np.ndarray]:
        return list(outputs[0])

    def report(self, examples: Sequence[TextExample], predictions: Sequence[Sequence[np.ndarray]]) -> dict[str, Any]:
        gold = np.array([example.label for example in examples])
        chosen = np.array([int(logits.argmax()) for (logits,) in predictions])
        return classification_report(gold, chosen, self.labels.names)

    def answer(self, example: TextExample, predictions: Sequence[np.ndarray]) -> dict[str, Any]:
        (logits,) = predictions
        probabilities = softmax(logits)
        values = [round(float(p), 6) for p in probabilities]
        best = int(np.argmax(probabilities))
        return {"label": self.labels.names[best], "probabilities": dict(zip(self.labels.names, values, strict=True))}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
