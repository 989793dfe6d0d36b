"""The device for answering a model, where Paddle and ONNX Runtime can use different ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import InferenceSection, RuntimeSection
from nlpctl.engines import onnx_runtime
from nlpctl.inference import open_model
from nlpctl.inference.open_model import runtime_to_answer
from nlpctl.models.export_folder import ExportManifest, Graph

FP32, INT8 = Graph("onnx", "fp32", ("model.onnx",)), Graph("onnx", "int8", ("d.onnx",), "dynamic")
PADDLE = Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams"))


@pytest.fixture
def device_of(monkeypatch):
    """The device that remains of `device` for an export with these graphs, or a run. `paddle`, `onnxruntime`: whether
    they can use a card, `lacking`: the CUDA libraries that are not there."""

    def device_of(*graphs, device="auto", cards=(), paddle=False, onnxruntime=True, lacking=(), **inference):
        manifest = ExportManifest("sequence_classification", (), (), 64, graphs, 256, "", {})
        source = SimpleNamespace(export="export" if graphs else None)
        monkeypatch.setattr(open_model, "resolve_source", lambda name: source)
        monkeypatch.setattr(open_model, "read_checked_manifest", lambda export: manifest)
        monkeypatch.setattr(open_model, "paddle_has_card", lambda: paddle)
        monkeypatch.setattr(open_model, "onnx_runtime_gpu", lambda: SimpleNamespace(usable=onnxruntime))
        monkeypatch.setattr(onnx_runtime, "missing_cuda", lambda: lacking)
        runtime = RuntimeSection(device=device, devices=cards)
        recipe = SimpleNamespace(runtime=runtime, inference=InferenceSection(**inference))
        return runtime_to_answer(recipe, "model").device

    return device_of


def test_auto_leaves_the_card_to_those_who_can_use_it(device_of):
    assert device_of(FP32, INT8) == "auto"
    assert device_of(FP32, INT8, onnxruntime=False) == "cpu"
    assert device_of(INT8, PADDLE) == "cpu"  # int8 graphs are for CPUs
    assert device_of(INT8, PADDLE, paddle=True) == "auto"
    assert device_of(FP32, PADDLE, engine="paddle") == "cpu"
    assert device_of(FP32, PADDLE, engine="paddle", paddle=True) == "auto"
    assert device_of(FP32, INT8, precision="int8") == "cpu"
    assert device_of(FP32, paddle=True, onnxruntime=False) == "cpu"  # no graph for Paddle


def test_missing_cuda_is_told_and_the_cpu_answers(device_of, capsys):
    assert device_of(FP32, lacking=("libcublas.so.13",)) == "cpu"
    assert "the CPU is used, since ONNX Runtime lacks libcublas.so.13" in capsys.readouterr().err


def test_what_is_asked_for_stays(device_of):
    assert device_of(INT8, device="gpu") == "gpu"
    assert device_of(INT8, cards=(0,)) == "auto"
    assert device_of() == "auto"  # a run: Paddle answers it


def test_what_a_folder_says_is_no_flag():
    folder = Path(__file__).parents[1] / "models" / "sentence_folders" / "cls-dense"
    recipe = load_recipe(folder, [Override("retrieval.scale", "30", "--set")], "embed")
    assert recipe.retrieval.pooling == "cls" and not recipe.set_by_flag("retrieval.pooling")
    assert recipe.set_by_flag("retrieval.scale")
