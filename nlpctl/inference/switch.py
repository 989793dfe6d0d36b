"""An engine that can be exchanged while it answers."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np

from nlpctl.data.collate import Batch
from nlpctl.inference.engine import Predictor, streams_of
from nlpctl.runtime.streams import Streams


class Switch:
    """Runs each batch in the engine that was `use`d last. Batches that run already are finished by their engine.

    An engine without streams gets one batch at a time, whichever threads ask.
    """

    def __init__(self, predictor: Predictor):
        self.use(predictor)

    @property
    def engine(self) -> str:
        return self._current[0].engine

    @property
    def precision(self) -> str:
        return self._current[0].precision

    @property
    def streams(self) -> Streams:
        return streams_of(self._current[0])

    def use(self, predictor: Predictor) -> None:
        """Run the next batches in `predictor`. Any thread may call it."""
        turn = threading.Lock() if streams_of(predictor).count == 1 else nullcontext()
        self._current = predictor, turn  # one assignment: another thread sees the old engine or the new one

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        predictor, turn = self._current
        with turn:
            return predictor.outputs(batch)
