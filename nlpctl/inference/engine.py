"""One interface for every engine that can run a network: a padded batch in, outputs out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from nlpctl.data.collate import Batch
from nlpctl.tasks.base import as_tuple

if TYPE_CHECKING:
    import paddle


class Predictor(Protocol):
    """An engine with a loaded network. `engine` and `precision` are named as in the recipe's section inference."""

    @property
    def engine(self) -> str: ...
    @property
    def precision(self) -> str: ...

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

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        import paddle

        with paddle.no_grad():
            outputs = self.network(**{name: paddle.to_tensor(array) for name, array in batch.items()})
        return tuple(output.numpy() for output in as_tuple(outputs))
