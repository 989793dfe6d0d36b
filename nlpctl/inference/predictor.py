"""One interface for every engine that can run a network: a padded batch in, logits out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
import paddle

from nlpctl.data.collate import raise_failure
from nlpctl.data.examples import TextExample
from nlpctl.tasks.base import Batch

T = TypeVar("T")


class Predictor(Protocol):
    """An engine with a loaded network."""

    engine: str

    def logits(self, batch: Batch) -> np.ndarray:
        """Logits [rows, labels] of one padded batch."""
        ...


class DygraphPredictor:
    """The network as Paddle runs it eagerly."""

    engine = "dygraph"

    def __init__(self, network: paddle.nn.Layer):
        network.eval()
        self.network = network

    @paddle.no_grad()
    def logits(self, batch: Batch) -> np.ndarray:
        return self.network(**{name: paddle.to_tensor(array) for name, array in batch.items()}).numpy()


def windows(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut a stream into lists of `size`; the last may be shorter. Memory holds one of them."""
    stream = iter(rows)
    while window := list(islice(stream, size)):
        yield window


def logits_in_order(
    predictor: Predictor,
    collate: Callable[[Sequence[TextExample]], Batch],
    examples: Sequence[TextExample],
    batch_size: int,
) -> np.ndarray:
    """Logits [examples, labels] in the order of `examples`, computed in batches of similar length."""
    order = sorted(range(len(examples)), key=lambda i: examples[i].byte_length)
    logits: np.ndarray | None = None
    for start in range(0, len(order), batch_size):
        positions = order[start : start + batch_size]
        batch = collate([examples[i] for i in positions])
        raise_failure(batch)
        rows = predictor.logits({name: array for name, array in batch.items() if name != "labels"})
        if logits is None:
            logits = np.empty((len(examples), *rows.shape[1:]), rows.dtype)
        logits[positions] = rows
    return logits
