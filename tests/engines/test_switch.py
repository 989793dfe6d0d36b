"""An engine that is exchanged while threads ask it."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from nlpctl.engines.engine import Switch
from nlpctl.runtime.threads import Streams


class Engine:
    precision = "fp32"

    def __init__(self, engine: str, streams: int):
        self.engine, self.streams = engine, Streams(streams, nullcontext())

    def outputs(self, batch: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        return (batch["x"] * self.streams.count,)


def test_the_engine_that_came_last_answers() -> None:
    switch = Switch(Engine("onnxruntime", 2))
    assert switch.outputs({"x": np.array(3)}) == (6,)
    switch.use(Engine("paddle", 1))
    assert (switch.engine, switch.precision, switch.streams.count) == ("paddle", "fp32", 1)
    assert switch.outputs({"x": np.array(3)}) == (3,)
