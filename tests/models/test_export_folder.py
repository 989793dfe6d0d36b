"""export.json: what is stored is read back, and figures that are none are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nlpctl.errors import UserError
from nlpctl.models.engine_speeds import Conditions, EngineSpeeds
from nlpctl.models.export_folder import (
    Check,
    Chosen,
    DevScores,
    ExportManifest,
    Graph,
    TensorSpec,
    read_manifest,
    write_manifest,
)

SPEEDS = EngineSpeeds(Conditions("AMD", ("avx2",), "cpu", 2, {"onnxruntime": "1"}), {"a": {1: 5.0}})
CHECKS = (Check("onnxruntime", "fp32", 1e-6, 1.0), Check("onnxruntime", "int8", None, 0.5))
MANIFEST = ExportManifest(
    "sequence_classification",
    (TensorSpec("input_ids", "int64", (None, 8)),),
    (TensorSpec("logits", "float32", (None, 2)),),
    64,
    (Graph("onnx", "int8", ("model.onnx",), "dynamic", CHECKS),),
    10,
    "outputs/x",
    {"nlpctl": "1"},
    Chosen("onnxruntime", "int8"),
    SPEEDS,
    DevScores("accuracy", 10, False, 0.9, {"onnxruntime int8 (dynamic)": 0.8}),
    "abc",
)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(b"graph")
    write_manifest(tmp_path, MANIFEST)
    return tmp_path


def test_what_is_stored_is_read_back(export: Path) -> None:
    assert read_manifest(export) == MANIFEST


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("dev.fp32", float("nan")),
        ("dev.fp32", "0.9"),
        ("dev.scores", {"a": float("inf")}),
        ("dev.scores", [0.8]),
        ("dev.rows", 1e400),
        ("dev", {"metric": "accuracy"}),
        ("inputs.0.dtype", "int63"),
        ("graphs.0.format", "tensorrt"),
        ("graphs.0.precision", ["fp32"]),
        ("graphs.0.checks.0.agreement", float("nan")),
        ("graphs.0.checks.0.difference", "small"),
        ("graphs.0.checks.0", {"engine": "onnxruntime"}),
        ("speeds.rows_per_second.a.1", float("inf")),
        ("max_seq_length", float("inf")),
    ],
)
def test_figures_that_are_none(export: Path, place: str, value: Any) -> None:
    file = export / "export.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    *parents, last = (int(part) if part.isdigit() and part != "1" else part for part in place.split("."))
    inner = content
    for part in parents:
        inner = inner[part]
    inner[last] = value
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=r"export.json: is incomplete or damaged"):
        read_manifest(export)
