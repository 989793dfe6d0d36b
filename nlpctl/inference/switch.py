"""An engine that can be exchanged while it answers."""

from __future__ import annotations

import numpy as np

from nlpctl.data.collate import Batch
from nlpctl.inference.engine import Predictor, streams_of
from nlpctl.runtime.streams import Streams


class Switch:
    """Runs each batch in the engine that was `use`d last. Batches that run already are finished by their engine."""

    def __init__(self, predictor: Predictor):
        self.use(predictor)

    @property
    def engine(self) -> str:
        return self._predictor.engine

    @property
    def precision(self) -> str:
        return self._predictor.precision

    @property
    def streams(self) -> Streams:
        return streams_of(self._predictor)

    def use(self, predictor: Predictor) -> None:
        """Run the next batches in `predictor`. Any thread may call it."""
        self._predictor = predictor

    def outputs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        return self._predictor.outputs(batch)
