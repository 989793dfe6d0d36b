"""An engine that is exchanged, and asked by several threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from nlpctl.inference.switch import Switch
from nlpctl.runtime.streams import Streams


class Engine:
    precision = "fp32"

    def __init__(self, engine: str, streams: int):
        self.engine, self.streams = engine, Streams(streams, nullcontext())
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def outputs(self, batch: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.02)
        with self._lock:
            self.inside -= 1
        return (batch["x"],)


@pytest.mark.parametrize("streams, most", [(1, 1), (2, 2)])
def test_an_engine_without_streams_gets_one_batch_at_a_time(streams: int, most: int) -> None:
    """Also from the threads of an engine that had streams."""
    first, second = Engine("onnxruntime", 2), Engine("paddle", streams)
    switch = Switch(first)
    switch.use(second)
    assert (switch.engine, switch.streams.count) == ("paddle", streams)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda number: switch.outputs({"x": np.array(number)})[0], range(8)))
    assert [int(each) for each in found] == list(range(8))
    assert (first.most, second.most) == (0, most)
