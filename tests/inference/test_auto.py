"""What open_predictor takes, and what it says about it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nlpctl.config.schema import InferenceSection
from nlpctl.inference import auto as choose
from nlpctl.inference.auto import open_predictor
from nlpctl.inference.speeds import Speeds
from nlpctl.inference.support import Machine
from nlpctl.models.export_folder import Check, ExportManifest, Graph
from nlpctl.runtime.cpu import CpuInfo
from nlpctl.runtime.process import ProcessSetup

SETUP = ProcessSetup("cpu", threads=2, rank=0, world_size=1)
CPU = CpuInfo("", "", ("avx512_vnni", "avx512_bf16"))
PADDLE = Graph("paddle", "fp32", ("a", "b"), checks=(Check("paddle", "bf16", 0.1, 1.0),))
DYNAMIC = Graph("onnx", "int8", ("c",), "dynamic", (Check("onnxruntime", "int8", 0.5, 0.95),))
STATIC = Graph("onnx", "int8", ("d",), "static")
MANIFEST = ExportManifest("sequence_classification", (), (), 64, (PADDLE, DYNAMIC, STATIC), 256, "", {})


@pytest.fixture
def taken(monkeypatch):
    """`taken(speeds, **inference)`: the name of the choice that is opened."""

    def run(speeds, manifest=MANIFEST, **inference):
        machine = Machine(CPU, "cpu", onnxruntime=True, onnxruntime_gpu=False, gpu_bf16=False, tensorrt=False)
        monkeypatch.setattr(choose, "this_machine", lambda setup: machine)
        monkeypatch.setattr(choose, "open_choice", lambda folder, manifest, choice, *rest, **options: choice.name)
        monkeypatch.setattr(choose, "measured_speeds", lambda *words: speeds)
        return open_predictor(Path("export"), manifest, InferenceSection(**inference), SETUP, 8, None)

    return run


def test_the_fastest_is_taken(taken, capsys):
    assert taken(Speeds({"paddle fp32": 10.0, "paddle bf16": 1234.0})) == "paddle bf16"
    assert taken(Speeds({"paddle fp32": 1300.0, "paddle bf16": 1234.0}, kept=True)) == "paddle fp32"
    said = capsys.readouterr().err.splitlines()
    size = "rows per second, batch size 8, 2 threads, timed"
    assert said[0] == f"auto takes paddle bf16; {size} now: paddle bf16 1,234, paddle fp32 10"
    assert said[1] == "  not onnxruntime int8 (dynamic): it decided 95.00% of the rows like the network"
    assert said[2].startswith("  not onnxruntime int8 (static): it was not compared")
    assert said[3] == f"auto takes paddle fp32; {size} earlier: paddle fp32 1,300, paddle bf16 1,234"


def test_where_nothing_can_be_timed_the_plainest_is_taken(taken, capsys):
    assert taken(Speeds({}, {"paddle bf16": "exit 1"})) == "paddle fp32"
    assert "none was timed" in (said := capsys.readouterr().err)
    assert "not paddle bf16: it failed (exit 1)" in said


def test_one_that_failed_is_not_taken(taken):
    assert taken(Speeds({"paddle bf16": 1.0}, {"paddle fp32": "exit 1"})) == "paddle bf16"


def test_what_is_named_is_not_timed_but_doubted_aloud(taken, capsys):
    only = dataclasses.replace(MANIFEST, graphs=(PADDLE, DYNAMIC))
    assert taken(None, only, precision="int8") == "onnxruntime int8 (dynamic)"
    expected = "warning: onnxruntime int8 (dynamic) decided 95.00% of the rows like the network\n"
    assert capsys.readouterr().err == expected
    assert taken(None, only, precision="int8", min_agreement=0.9) == "onnxruntime int8 (dynamic)"
    assert taken(None, only, engine="paddle", precision="bf16") == "paddle bf16"
    assert capsys.readouterr().err == ""


def test_graphs_of_one_precision_are_timed(taken, capsys):
    speeds = Speeds({"onnxruntime int8 (dynamic)": 1.0, "onnxruntime int8 (static)": 2.0})
    assert taken(speeds, precision="int8") == "onnxruntime int8 (static)"
    said = capsys.readouterr().err
    assert "auto takes onnxruntime int8 (static)" in said
    assert "warning: onnxruntime int8 (static) was not compared with the network when it was exported" in said
