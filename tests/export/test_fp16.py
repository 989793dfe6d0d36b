"""The fp16 graph for ONNX Runtime on cards: made, compared and never run on a CPU by itself."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from nlpctl.config.schema import InferenceSection
from nlpctl.engines.choice import Machine, allowed_choices, runnable
from nlpctl.errors import UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.graphs import onnx as onnx_fp16
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.machine import cpu_info

WANTED = ExportRequest(("onnx",), ("fp32", "fp16"), rows=16, timing=0)


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    output = tmp_path_factory.mktemp("fp16") / "export"
    return export(classifier, find_trained_model(classifier), WANTED, output=output).folder


def test_it_is_half_as_large_and_close_to_the_network(exported):
    fp32, fp16 = (exported / name for name in ("model.onnx", "model.fp16.onnx"))
    assert fp16.stat().st_size < 0.6 * fp32.stat().st_size
    model = onnx.load(str(fp16))
    assert {each.type.tensor_type.elem_type for each in model.graph.output} == {onnx.TensorProto.FLOAT}
    assert onnx.TensorProto.FLOAT not in {each.data_type for each in model.graph.initializer if each.dims}
    report = json.loads((exported / "report.json").read_text(encoding="utf-8"))
    (check,) = next(graph for graph in report["graphs"] if graph["precision"] == "fp16")["checks"]
    assert check["engine"] == "onnxruntime (CPU)" and check["agreement"] > 0.9
    assert 0 < check["largest_difference"] < 0.05


def test_only_a_card_is_offered_it(exported):
    manifest, cpu = read_manifest(exported), cpu_info()
    here = Machine(cpu, "cpu", onnxruntime=True, onnxruntime_gpu=False, gpu_bf16=False, tensorrt=False)
    card = Machine(cpu, "gpu:0", onnxruntime=True, onnxruntime_gpu=True, gpu_bf16=True, tensorrt=False)
    assert [each.name for each in runnable(manifest, here)] == ["onnxruntime fp32"]
    assert [each.name for each in runnable(manifest, card)] == ["onnxruntime fp32", "onnxruntime fp16"]
    # What a CPU compared says nothing of cards: auto takes it only from an export that was made on one.
    found = allowed_choices(manifest, InferenceSection(), card)
    assert [each.name for each in found.choices] == ["onnxruntime fp32"]
    assert found.left_out[0][1] == "was not compared with the network when it was exported"


def test_paddle_takes_none():
    with pytest.raises(UserError, match="fp16 is not a graph: engines compute the fp32 graph in it"):
        ExportRequest(("paddle",), ("fp16",))
    ExportRequest(("paddle", "onnx"), ("fp32", "fp16"))


@pytest.mark.parametrize("fault", ["raises", "not finite"])
def test_a_graph_that_fails_is_left_out(classifier, tmp_path, monkeypatch, capsys, fault):
    def broken(model, **options):
        if fault == "raises":
            raise ValueError("no such operator")
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                values = np.full_like(onnx.numpy_helper.to_array(tensor), np.nan)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        return model

    monkeypatch.setattr(onnx_fp16, "convert_float_to_float16", broken)
    result = export(classifier, find_trained_model(classifier), WANTED, output=tmp_path / "export")
    assert [graph.precision for graph in result.manifest.graphs] == ["fp32"]
    assert not (tmp_path / "export" / "model.fp16.onnx").exists()
    told = " ".join(capsys.readouterr().err.split())
    assert "model.fp16.onnx is left out: " in told
    assert ("the conversion fails: ValueError: no such operator" if fault == "raises" else "not finite") in told
