"""One interface for every engine that can run a network: a padded batch in, outputs out."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nlpctl.data.batches.collate import Batch
from nlpctl.runtime.threads import ONE_STREAM, Streams
from nlpctl.tasks.base import as_tuple

if TYPE_CHECKING:
    import paddle


class Predictor(Protocol):
    """An engine with a loaded network, which any thread may ask, also while it answers another one.

    `engine` and `precision` are named as in the recipe's section inference.
    """

    @property
    def engine(self) -> str: ...
    @property
    def precision(self) -> str: ...

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The network's outputs for one padded batch without labels; inputs are found by name."""
        ...


class DygraphPredictor:
    """The network in Paddle's eager mode (dygraph).

    It answers one thread at a time. On a CPU it does so in the settings of runtime/paddle_cpu.py. Freed memory is kept
    within `batch_context`, which whoever answers many batches keeps open around them.
    """

    engine = "dygraph"
    precision = "fp32"

    def __init__(self, network: paddle.nn.Layer):
        import paddle

        from nlpctl.runtime.paddle_cpu import copying_transposes, freed_memory_kept, may_copy_transposes

        network.eval()
        self.network, self._turn = network, threading.Lock()
        on_cpu = paddle.get_device() == "cpu"
        self.batch_context = freed_memory_kept if on_cpu else nullcontext()
        self._settings = copying_transposes if on_cpu and may_copy_transposes(network) else nullcontext()

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        import paddle

        with self._turn, paddle.no_grad(), self._settings:
            outputs = self.network(**{name: paddle.to_tensor(array) for name, array in batch.items()})
            return tuple(output.numpy() for output in as_tuple(outputs))


def batch_context(predictor: Predictor) -> AbstractContextManager[Any]:
    """The context to keep open around many batches of `predictor`, which are answered faster in it."""
    return getattr(predictor, "batch_context", nullcontext())


def streams_of(predictor: Predictor) -> Streams:
    """How many batches `predictor` computes side by side; one where it says nothing."""
    return getattr(predictor, "streams", ONE_STREAM)
