"""What every task gives to the runners. Adding a task is adding a module here and a line in tasks/registry.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import paddle

from nlpctl.config.schema import ModelSection
from nlpctl.data.examples import TextExample
from nlpctl.data.labels import LabelSet
from nlpctl.data.tokenizers import TextEncoder
from nlpctl.models.load import LoadedModel

Batch = dict[str, np.ndarray]


class Task(Protocol):
    """One kind of problem: how examples become batches, outputs become a loss, scores and answers."""

    name: str
    labels: LabelSet

    def build_model(self, model: ModelSection, texts: Callable[[], Iterable[str]] | None) -> LoadedModel:
        """The network to train. `texts` gives the training text, for a vocabulary built from it."""
        ...

    def collator(self, encoder: TextEncoder, *, with_labels: bool) -> Callable[[Sequence[TextExample]], Batch]:
        """A picklable function from examples to a padded NumPy batch."""
        ...

    def loss(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """The mean loss of a batch, a scalar."""
        ...

    def metrics(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The figures that evaluation during training reports and model selection may use, 0 to 1."""
        ...

    def report(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """The full score of one split, as written to metrics.json."""
        ...

    def decode(self, logits: np.ndarray) -> list[Mapping[str, Any]]:
        """One JSON-ready answer per row of `logits`."""
        ...
