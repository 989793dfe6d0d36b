"""An engine that is exchanged while threads ask it."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from nlpctl.engines.engine import SwappablePredictor
from nlpctl.runtime.threads import Streams


class Engine:
    precision = "fp32"

    def __init__(self, engine: str, streams: int):
        self.engine, self.streams = engine, Streams(streams, nullcontext())

    def outputs(self, batch: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        return (batch["x"] * self.streams.count,)


def test_the_engine_that_came_last_answers() -> None:
    predictor = SwappablePredictor(Engine("onnxruntime", 2))
    assert predictor.outputs({"x": np.array(3)}) == (6,)
    predictor.swap(Engine("paddle", 1))
    assert (predictor.engine, predictor.precision, predictor.streams.count) == ("paddle", "fp32", 1)
    assert predictor.outputs({"x": np.array(3)}) == (3,)
