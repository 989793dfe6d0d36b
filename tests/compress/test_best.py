"""best/: what goes into it, and that its manifest names the way that was chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scored import scored

from nlpctl.compress.selection import holds, is_given_by, write_best
from nlpctl.models.calibration import Calibration, read_calibration, write_calibration
from nlpctl.models.export_folder import Check, Chosen, ExportManifest, Graph, read_manifest, write_manifest

PADDLE = Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams"), checks=(Check("paddle", "fp32", 1e-6, 1.0),))
ONNX = Graph("onnx", "fp32", ("model.onnx",))
DYNAMIC = Graph("onnx", "int8", ("model.int8-dynamic.onnx",), "dynamic")
STATIC = Graph("onnx", "int8", ("model.int8-static.onnx",), "static")
OTHERS = {"config.json", "vocab.txt", "labels.json", "task.json", "export.json"}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    folder.mkdir()
    graphs = (PADDLE, ONNX, DYNAMIC, STATIC)
    names = [name for graph in graphs for name in graph.files]
    for name in (*names, "model.pdiparams.info", "report.json", *OTHERS - {"export.json"}):
        (folder / name).write_text(name)
    write_manifest(folder, ExportManifest("sequence_classification", (), (), 64, graphs, 256, "run", {"nlpctl": "1"}))
    return folder


@pytest.mark.parametrize(
    ("way", "files"),
    [
        (("paddle", "bf16", None), {*PADDLE.files, "model.pdiparams.info"}),
        (("onnxruntime", "fp32", None), {"model.onnx"}),
        (("onnxruntime", "int8", "static"), {"model.int8-static.onnx"}),
    ],
)
def test_best_holds_what_was_chosen_and_no_other_graph(tmp_path, export, way, files):
    engine, precision, method = way
    names = {"engine": engine, "precision": precision, "method": method}
    row = scored("original", 0.88, folder=str(export), difference=0.07, agreement=0.985, **names)
    before = {path.name: path.read_bytes() for path in export.iterdir()}
    write_best(row, tmp_path / "best")
    assert {path.name for path in (tmp_path / "best").iterdir()} == OTHERS | files
    manifest = read_manifest(tmp_path / "best")
    assert manifest.chosen == Chosen(engine, precision)
    (graph,) = manifest.graphs
    assert graph.method == method and graph.checks == (Check(engine, precision, 0.07, 0.985),)
    assert manifest.rows == 200  # of dev
    assert before == {path.name: path.read_bytes() for path in export.iterdir()}


def test_best_is_replaced_as_a_whole(tmp_path, export):
    best = tmp_path / "best"
    row = scored("original", 0.88, folder=str(export))
    write_best(row, best)
    int8 = scored("original", 0.88, folder=str(export), engine="onnxruntime", precision="int8", method="dynamic")
    write_best(int8, best)
    assert not (best / "model.pdmodel").exists()
    assert read_manifest(best).chosen == Chosen("onnxruntime", "int8")


def test_it_is_known_what_best_holds(tmp_path, export):
    """So that the same command leaves it as it is, also with a calibration of the user's."""
    best = tmp_path / "best"
    rows = {each: scored("original", 0.88, folder=str(export), precision=each) for each in ("fp32", "bf16")}
    write_best(rows["bf16"], best)
    assert {each: holds(best, row) for each, row in rows.items()} == {"fp32": False, "bf16": True}
    int8 = {"engine": "onnxruntime", "precision": "int8"}
    dynamic, static = (scored("x", 0.88, folder=str(export), **int8, method=each) for each in ("dynamic", "static"))
    write_best(dynamic, best)
    assert holds(best, dynamic) and not holds(best, static) and is_given_by(best, [dynamic])
    write_calibration(best, Calibration("temperature", (0.5,), (0.0,)))
    write_manifest(best, read_manifest(best))
    assert holds(best, dynamic) and not is_given_by(best, [dynamic])
    (best / "export.json").write_text("{")
    assert not holds(best, dynamic)


@pytest.mark.parametrize("file", ["model.int8-dynamic.onnx", "labels.json", "calibration.json"])
def test_a_damaged_best_holds_nothing(tmp_path, export, file):
    """So that it is written again."""
    best = tmp_path / "best"
    names = {"engine": "onnxruntime", "precision": "int8", "method": "dynamic"}
    calibration = Calibration("temperature", (0.5,), (0.0,)).to_json()
    row = scored("x", 0.88, folder=str(export), calibration=calibration, **names)
    write_best(row, best)
    assert is_given_by(best, [row])
    (best / file).write_text("")
    assert not holds(best, row) and not is_given_by(best, [row])


def test_a_best_that_a_newer_version_calibrated_is_kept(tmp_path, export):
    best, row = tmp_path / "best", scored("original", 0.88, folder=str(export))
    write_best(row, best)
    (best / "calibration.json").write_text('{"format": 99}')
    write_manifest(best, read_manifest(best))
    assert holds(best, row) and not is_given_by(best, [row])


def test_a_card_has_no_checksum(export):
    """It may be written again, or edited, also where an older version listed it."""
    (export / "README.md").write_text("a card")
    write_manifest(export, read_manifest(export))
    content = json.loads((export / "export.json").read_text())
    assert "README.md" not in content["sha256"]
    older = {**content, "sha256": {**content["sha256"], "README.md": "0" * 64}}
    (export / "export.json").write_text(json.dumps(older))
    read_manifest(export)


def test_an_export_without_a_choice_names_none(export):
    assert read_manifest(export).chosen is None


def test_best_gets_the_calibration_that_its_engine_needs(tmp_path, export):
    write_calibration(export, Calibration("temperature", (0.5,), (0.0,)))
    write_manifest(export, read_manifest(export))
    own = Calibration("temperature", (0.7,), (0.0,), rows=200, ece=(0.08, 0.02))
    for given, expected in ((None, 0.5), (own.to_json(), 0.7)):
        write_best(scored("original", 0.88, folder=str(export), calibration=given), tmp_path / "best")
        assert read_calibration(tmp_path / "best").scales == (expected,)
        read_manifest(tmp_path / "best")  # its checksums hold
