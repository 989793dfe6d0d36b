"""paddle2onnx in its own process: what becomes of its failures."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nlpctl import extras
from nlpctl.compress.source import add_onnx
from nlpctl.compress.strategies import STRATEGIES
from nlpctl.errors import RunFailed, UserError
from nlpctl.export.export import export
from nlpctl.export.request import BY_FORMAT, ExportRequest
from nlpctl.export.strategies import OnnxInt8
from nlpctl.graphs import onnx
from nlpctl.models.export_folder import read_manifest, write_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.worker import is_alive


@pytest.fixture(scope="module")
def paddle_export(classifier, tmp_path_factory):
    output = tmp_path_factory.mktemp("paddle") / "export"
    return export(classifier, find_trained_model(classifier), ExportRequest(("paddle",), rows=4), output=output).folder


def test_what_a_branch_reads_stays():
    """A network of one's own may have an If, whose branches read constants of the graph around it."""
    from onnx import TensorProto, checker, helper, numpy_helper

    from nlpctl.graphs.onnx_graph import drop_unused, fold_constants

    def branch(name: str, constant: str):
        made = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
        return helper.make_graph([helper.make_node("Add", ["x", constant], [name])], name, [], [made])

    values = [numpy_helper.from_array(np.ones(2, np.float32), name) for name in ("one", "two", "unread")]
    ask = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "one"), else_branch=branch("b", "two"))
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), *_floats("x")]
    model = helper.make_model(helper.make_graph([ask], "g", inputs, _floats("y"), values))
    fold_constants(model, {"Mul"})
    assert [tensor.name for tensor in model.graph.initializer] == ["one", "two"]
    drop_unused(model.graph, ["one", "two"])
    checker.check_model(model)
    assert len(model.graph.initializer) == 2


def _floats(name: str):
    from onnx import TensorProto, helper

    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])]


def test_a_damaged_graph_is_a_message(paddle_export, tmp_path):
    (tmp_path / "model.pdmodel").write_bytes(b"no graph")
    (tmp_path / "model.pdiparams").write_bytes((paddle_export / "model.pdiparams").read_bytes())
    with pytest.raises(RunFailed, match=r"^--format onnx: paddle2onnx could not convert the graph \((exit|killed)"):
        onnx.write_onnx_graph(tmp_path / "model", tmp_path / "model.onnx", 0, *BY_FORMAT)
    assert not (tmp_path / "model.onnx").exists()


def test_compress_names_its_own_key_for_a_graph_too(paddle_export, tmp_path, capsys):
    shutil.copytree(paddle_export, tmp_path / "copy")
    (tmp_path / "copy" / "model.pdmodel").write_bytes(b"no graph")
    write_manifest(tmp_path / "copy", read_manifest(paddle_export))  # with its checksum
    add_onnx(tmp_path / "copy")
    told = " ".join(capsys.readouterr().err.split())
    assert "no ONNX graph: compression.strategy: paddle2onnx could not convert" in told and "--format" not in told


def test_a_process_that_aborts_is_a_message(paddle_export, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "_MODULE", "tests_of_nlpctl_abort")
    (tmp_path / "tests_of_nlpctl_abort.py").write_text("import os\nprint('terrible')\nos.abort()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RunFailed, match=r"\(killed by SIGABRT\)"):
        onnx.write_onnx_graph(paddle_export / "model", tmp_path / "model.onnx", 0)


def test_a_process_that_the_system_kills_says_nothing_of_the_network(paddle_export, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "_MODULE", "tests_of_nlpctl_kill")
    (tmp_path / "tests_of_nlpctl_kill.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OSError, match="Cannot allocate memory"):
        onnx.write_onnx_graph(paddle_export / "model", tmp_path / "model.onnx", 0)


def test_without_paddle2onnx(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "paddle2onnx")
    with pytest.raises(UserError, match="paddle2onnx not installed"):
        export(classifier, find_trained_model(classifier), ExportRequest(("onnx",)), output=tmp_path / "new")
    assert not any(tmp_path.iterdir())


FOR_ONNX_RUNTIME = [each for each in STRATEGIES if isinstance(each, OnnxInt8)]


@pytest.mark.parametrize("strategy", FOR_ONNX_RUNTIME, ids=lambda strategy: strategy.name)
def test_compress_names_its_own_key(classifier, strategy, monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda package: False)
    with pytest.raises(UserError) as caught:
        strategy.refuse_settings(classifier, ())
    (problem,) = caught.value.problems
    assert problem.where == "compression.strategy" and problem.hint.endswith(f", or leave {strategy.name} out")


def test_the_process_ends_with_its_parent(tmp_path):
    os.mkfifo(tmp_path / "model.pdmodel")  # a graph that never comes keeps the conversion running
    (tmp_path / "model.pdiparams").write_bytes(b"")
    code = f"from pathlib import Path; from nlpctl.graphs import onnx; folder = Path({str(tmp_path)!r}); "
    code += "onnx.write_onnx_graph(folder / 'model', folder / 'model.onnx', 0)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    try:
        child = _within(120, lambda: next(map(int, children.read_text().split()), None))
    finally:
        parent.kill()
        parent.wait()
    try:
        assert _within(60, lambda: not is_alive(child))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _within(seconds, found):
    """The first value of `found()` that is true. AssertionError after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


def test_onnx_alone_leaves_no_paddle_graph(classifier, tmp_path):
    source, request = find_trained_model(classifier), ExportRequest(("onnx",), rows=4)
    result = export(classifier, source, request, output=tmp_path / "new")
    assert [graph.files for graph in result.manifest.graphs] == [("model.onnx",)]
    assert not list(result.folder.glob("*.pd*"))
    assert [spec.name for spec in result.manifest.outputs] == ["logits"]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(result.folder / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_outputs()] == ["logits"]
    assert [each.name for each in session.get_inputs()] == ["input_ids", "token_type_ids"]


def test_a_place_that_cannot_be_written(paddle_export, tmp_path):
    with pytest.raises(OSError, match="No such file or directory"):
        onnx.write_onnx_graph(paddle_export / "model", tmp_path / "nowhere" / "model.onnx", 0)
