"""A service that goes over to a faster engine while it answers."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial

import numpy as np
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.units import PAD, SEP, UNK, UnitEncoder, UnitSettings, UnitTokenizer
from nlpctl.engines.auto import OpenedEngine
from nlpctl.engines.trained import _run_by
from nlpctl.models.calibration import TEMPERATURE, Calibration
from nlpctl.runtime.process import ProcessSetup
from nlpctl.serve import service
from nlpctl.serve.settings import ServeSettings
from nlpctl.tasks.base import make_task


class Engine:
    """Gives one row the logits 0 and 1, once it is told to."""

    def __init__(self, engine: str):
        self.engine, self.precision = engine, "fp32"
        self.asked, self.go = threading.Event(), threading.Event()

    def outputs(self, batch: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        self.asked.set()
        assert self.go.wait(60)
        return (np.array([[0.0, 1.0]], np.float32),)


def test_each_engine_is_read_with_its_own_calibration(tmp_path, monkeypatch):
    """Also a batch that the engine before was still computing."""
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n")
    recipe = load_recipe(tmp_path / "recipe.yaml", purpose="apply")
    temperature = partial(Calibration, TEMPERATURE, shifts=(0.0,))
    whole = temperature((1.0,), ways={"slow fp32": temperature((2.0,)), "fast fp32": temperature((3.0,))})
    slow, fast = Engine("slow"), Engine("fast")
    fast.go.set()
    opened = OpenedEngine(slow, "slow fp32", lambda: OpenedEngine(fast, "fast fp32"))
    encoder = UnitEncoder(UnitTokenizer([PAD, UNK, SEP, "a"], UnitSettings()))
    model = _run_by(opened, make_task(recipe, LabelSet(("no", "yes")), None, whole), encoder)
    monkeypatch.setattr(service, "open_trained_model", lambda *words: model)
    served = service.make_service(recipe, ProcessSetup("cpu", 1, 0, 1), "export", ServeSettings())

    async def answered() -> float:
        read = served.reader.read(json.dumps({"text": "a"}).encode())
        return read.response(await served.batcher.submit(read.rows))["probabilities"]["yes"]

    async def story() -> tuple[float, float]:
        served.batcher.start()
        first = asyncio.create_task(answered())
        await asyncio.to_thread(slow.asked.wait, 60)
        served.find_faster()
        slow.go.set()
        try:
            return await first, await answered()
        finally:
            await served.batcher.close()

    expected = [1 / (1 + np.exp(-scale)) for scale in (2.0, 3.0)]
    assert asyncio.run(story()) == pytest.approx(expected, abs=1e-4)
    assert served.facts()["engine"] == "fast"
