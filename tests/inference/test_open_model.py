"""The device for answering a model, where Paddle and ONNX Runtime can use different ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nlpctl.config.schema import InferenceSection, RuntimeSection
from nlpctl.inference import open_model
from nlpctl.inference.open_model import runtime_to_answer

FP32 = SimpleNamespace(format="onnx", precision="fp32")
INT8 = SimpleNamespace(format="onnx", precision="int8")
PADDLE = SimpleNamespace(format="paddle", precision="fp32")


@pytest.fixture
def device_of(monkeypatch):
    """The device that remains of `device` for an export with these graphs, or a run, and this engine."""

    def device_of(graphs, engine="auto", device="auto", cards=(), paddle=False):
        source = SimpleNamespace(export=None if graphs is None else "export")
        monkeypatch.setattr(open_model, "resolve_source", lambda name: source)
        monkeypatch.setattr(open_model, "read_checked_manifest", lambda export: SimpleNamespace(graphs=graphs))
        monkeypatch.setattr(open_model, "usable_gpu", lambda: SimpleNamespace(usable=paddle))
        runtime, inference = RuntimeSection(device=device, devices=cards), InferenceSection(engine=engine)
        recipe = SimpleNamespace(runtime=runtime, inference=inference)
        return runtime_to_answer(recipe, "model").device

    return device_of


def test_auto_leaves_the_card_to_those_who_can_use_it(device_of):
    assert device_of((FP32, INT8)) == "auto"
    assert device_of((INT8, PADDLE)) == "cpu"  # int8 graphs are for CPUs
    assert device_of((INT8, PADDLE), paddle=True) == "auto"
    assert device_of((FP32, PADDLE), engine="paddle") == "cpu"
    assert device_of((FP32, PADDLE), engine="paddle", paddle=True) == "auto"


def test_what_is_asked_for_stays(device_of):
    assert device_of((INT8,), device="gpu") == "gpu"
    assert device_of((INT8,), cards=(0,)) == "auto"
    assert device_of(None) == "auto"  # a run: Paddle answers it
