"""One interface for every engine that can run a network: a padded batch in, outputs out."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import paddle

from nlpctl.data.collate import Batch
from nlpctl.tasks.base import as_tuple


class Predictor(Protocol):
    """An engine with a loaded network. `engine` and `precision` are named as in the recipe's section inference."""

    engine: str
    precision: str

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The network's outputs for one padded batch without labels; inputs are found by name."""
        ...


class DygraphPredictor:
    """The network in Paddle's eager mode (dygraph)."""

    engine = "dygraph"
    precision = "fp32"

    def __init__(self, network: paddle.nn.Layer):
        network.eval()
        self.network = network

    @paddle.no_grad()
    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        outputs = self.network(**{name: paddle.to_tensor(array) for name, array in batch.items()})
        return tuple(output.numpy() for output in as_tuple(outputs))
