"""`nlpctl export` and what it leaves behind."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from nlpctl import checksums
from nlpctl.checksums import sha256_of
from nlpctl.cli.app import main
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import InferenceSection
from nlpctl.errors import RunFailed, UserError
from nlpctl.export import layouts
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.inference.open_model import find_model, open_trained_model, refuse_model
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.paddle_version import installed_paddle
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import set_up_process


@pytest.fixture
def run(classifier, tmp_path):
    """A copy of the run, to be changed."""
    return shutil.copytree(classifier.run_dir, tmp_path / "run")


def test_a_run_is_exported_into_itself(run, capsys):
    assert main(["export", str(run), "--rows", "20", "--format", "paddle"]) == 0
    told = capsys.readouterr()
    assert "compared on 20 rows" in told.err and "model.pdmodel" in told.err or "model.pdmodel" in told.out
    manifest = read_manifest(run / "export")
    assert manifest.rows == 20 and manifest.max_seq_length == 24 and manifest.task == "sequence_classification"
    assert [(spec.name, spec.dtype, spec.shape) for spec in manifest.inputs] == [
        ("input_ids", "int64", (None, None)),
        ("token_type_ids", "int64", (None, None)),
    ]
    assert [(spec.name, spec.dtype, spec.shape) for spec in manifest.outputs] == [("logits", "float32", (None, 3))]
    assert manifest.versions["paddlepaddle"] == installed_paddle() and manifest.source == str(run / "model")
    (graph,) = manifest.graphs
    assert {(check.engine, check.precision) for check in graph.checks} >= {("paddle", "fp32")}
    if cpu_info().computes("bf16"):
        assert (manifest.dev.metric, manifest.dev.rows, set(manifest.dev.scores)) == ("accuracy", 40, {"paddle bf16"})
        assert abs(manifest.dev.drop("paddle bf16")) <= 100 and set(manifest.speeds.rows_per_second) == {
            "paddle fp32",
            "paddle bf16",
        }
    names = {path.name for path in (run / "export").iterdir()}
    assert not {name for name in names if name.startswith("model_state")}  # no weights of the network itself
    assert {"config.json", "vocab.txt", "labels.json", "task.json", "report.json", "report.md"} <= names
    page = (run / "export" / "report.md").read_text()
    assert "20 rows (dev), in batches of 1 to 7 rows and 1 to 24 tokens." in page
    foreign = dataclasses.replace(load_recipe(run / "export", (), "apply"), task="text_matching")
    with pytest.raises(UserError, match="this export is of sequence_classification, not of text_matching"):
        refuse_model(foreign, str(run / "export"))  # before Paddle is imported
    with pytest.raises(UserError, match="this export is of sequence_classification, not of text_matching"):
        open_trained_model(foreign, set_up_process(foreign), str(run / "export"))
    assert main(["export", str(run), "--rows", "20", "--format", "paddle"]) == 2  # it already exists
    capsys.readouterr()
    assert main(["export", str(run), "--rows", "10", "--format", "paddle", "--overwrite", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["rows"]["count"] == 10 and result["folder"] == str(run / "export")


def test_the_files_of_an_export_are_hashed_once(run, monkeypatch):
    export(load_recipe(run, (), "apply"), str(run / "model"), ExportRequest(("paddle",), rows=4), output=run / "export")
    recipe, hashed = load_recipe(run / "export", [Override("inference.engine", "paddle", "--engine")], "apply"), []
    monkeypatch.setattr(checksums, "sha256_of", lambda path: hashed.append(path.name) or sha256_of(path))
    source = find_model(recipe)
    open_trained_model(recipe, set_up_process(recipe), source, 4)
    assert "model.pdiparams" in hashed and len(hashed) == len(set(hashed))


@pytest.mark.usefixtures("native_int8")
def test_int8_of_every_method(classifier, tmp_path, monkeypatch):
    from nlpctl.tasks.sequence_classification import SequenceClassification

    monkeypatch.setattr(SequenceClassification, "int8_agreement", 0.5)  # the network was never trained
    wanted = ExportRequest(("paddle", "onnx"), ("int8",))
    result = export(classifier, find_trained_model(classifier), wanted, output=tmp_path / "x")
    found = {(graph.format, graph.precision, graph.method) for graph in result.manifest.graphs}
    fp32 = {("paddle", "fp32", None), ("onnx", "fp32", None)}
    int8 = {("paddle", "int8", "ptq"), ("onnx", "int8", "dynamic"), ("onnx", "int8", "static")}
    assert found == fp32 | int8
    for graph in result.manifest.graphs:
        (check,) = [each for each in graph.checks if each.precision == graph.precision]
        assert (check.difference > 1e-3) == (graph.precision == "int8") and check.agreement >= 0.5


def test_int8_that_decides_otherwise_is_refused(classifier, tmp_path, monkeypatch):
    from nlpctl.engines.onnx_runtime import OnnxPredictor

    right = OnnxPredictor.outputs

    def outputs(self, batch):
        return tuple(-each if self.precision == "int8" else each for each in right(self, batch))

    monkeypatch.setattr(OnnxPredictor, "outputs", outputs)
    message = r"model.int8-dynamic.onnx \(onnxruntime\): changes too many decisions: 40 decisions differ"
    with pytest.raises(RunFailed, match=message):
        wanted = ExportRequest(("onnx",), ("int8-dynamic",))
        export(classifier, find_trained_model(classifier), wanted, output=tmp_path / "x")
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_int8_as_a_family_keeps_the_graphs_that_pass(classifier, tmp_path, monkeypatch, capsys):
    from nlpctl.engines.onnx_runtime import OnnxPredictor
    from nlpctl.tasks.sequence_classification import SequenceClassification

    right = OnnxPredictor.outputs

    def outputs(self, batch):  # the static graph answers well but for texts of one token
        found, (file,) = right(self, batch), self.graph_files
        wrong = "static" in file and batch["input_ids"].shape[1] == 1
        return tuple(each * np.float32("nan") for each in found) if wrong else found

    loaded = OnnxPredictor.__init__

    def remember(self, folder, manifest, graph, setup):
        self.graph_files = graph.files
        loaded(self, folder, manifest, graph, setup)

    monkeypatch.setattr(OnnxPredictor, "__init__", remember)
    monkeypatch.setattr(OnnxPredictor, "outputs", outputs)
    monkeypatch.setattr(SequenceClassification, "int8_agreement", 0.5)  # the network was never trained
    source = find_trained_model(classifier)
    result = export(classifier, source, ExportRequest(("onnx",), ("int8",), rows=8), output=tmp_path / "x")
    assert [graph.method for graph in result.manifest.graphs] == [None, "dynamic"]
    assert not (tmp_path / "x" / "model.int8-static.onnx").exists() and read_manifest(tmp_path / "x")
    reason = "onnxruntime int8 (static) fails: its outputs are not finite"
    assert f"model.int8-static.onnx is left out: {reason}" in " ".join(capsys.readouterr().err.split())
    (refused,) = json.loads((tmp_path / "x" / "report.json").read_text())["refused"]
    assert refused["method"] == "static" and refused["reason"].startswith(reason)
    assert f"- model.int8-static.onnx: {reason}" in (tmp_path / "x" / "report.md").read_text()
    with pytest.raises(RunFailed, match="its outputs are not finite"):
        export(classifier, source, ExportRequest(("onnx",), ("int8-static",), rows=8), output=tmp_path / "y")
    assert not (tmp_path / "y").exists()


def test_int8_goes_without_what_cannot_be_quantised(made_run, tmp_path):
    recipe = made_run("sequence_classification", "bilstm")  # its products are LSTMs and narrow: dynamic alone does them
    source = find_trained_model(recipe)
    result = export(recipe, source, ExportRequest(("paddle", "onnx"), ("int8",), rows=8), output=tmp_path / "x")
    assert [(graph.format, graph.method) for graph in result.manifest.graphs][:2] == [("paddle", None), ("onnx", None)]
    refused = json.loads((tmp_path / "x" / "report.json").read_text())["refused"]
    assert "static" in {each["method"] for each in refused}
    assert {name for each in refused for name in each["files"]}.isdisjoint(os.listdir(tmp_path / "x"))
    with pytest.raises(RunFailed, match="model.int8-static.onnx: nothing in this graph can be int8"):
        export(recipe, source, ExportRequest(("onnx",), ("int8-static",), rows=8), output=tmp_path / "y")
    assert not (tmp_path / "y").exists()


@pytest.mark.slow
def test_a_quantiser_that_fails_costs_its_graph_alone(classifier, tmp_path, monkeypatch):
    from nlpctl.graphs import onnx_quantize

    def fails(*words, **options):
        raise KeyError("scale")

    monkeypatch.setattr(onnx_quantize, "quantize_static", fails)
    monkeypatch.setattr("nlpctl.tasks.base.Task.int8_agreement", 0.5)
    source = find_trained_model(classifier)
    result = export(classifier, source, ExportRequest(("onnx",), ("int8",), rows=8), output=tmp_path / "x")
    assert [graph.method for graph in result.manifest.graphs] == [None, "dynamic"]
    with pytest.raises(RunFailed, match="model.int8-static.onnx: quantisation fails: KeyError: 'scale'"):
        export(classifier, source, ExportRequest(("onnx",), ("int8-static",), rows=8), output=tmp_path / "y")


def test_int8_for_the_moment_that_was_refused(classifier, monkeypatch):
    from nlpctl.tasks.sequence_classification import SequenceClassification

    monkeypatch.setattr(SequenceClassification, "int8_agreement", 1.1)
    inference = InferenceSection(engine="onnxruntime", precision="int8")
    recipe = dataclasses.replace(classifier, inference=inference)
    with pytest.raises(RunFailed, match="no int8 graph of this model passed the comparison"):
        open_trained_model(recipe, set_up_process(recipe), find_trained_model(recipe), 4)


def test_thresholds_and_terms_go_with_the_export(made_run, tmp_path):
    recipe = made_run("token_classification")
    (tmp_path / "mine.tsv").write_text("good\tPRODUCT\n", encoding="utf-8")
    decode = dataclasses.replace(recipe.decode, terms=str(tmp_path / "mine.tsv"))
    recipe = dataclasses.replace(recipe, decode=decode)
    labels = recipe.run_dir / "model" / "labels.json"
    content = json.loads(labels.read_text())
    labels.write_text(json.dumps(content | {"thresholds": [0.25] * len(content["labels"])}))
    (labels.parent / "manifest.json").unlink()  # the edit is meant
    result = export(recipe, find_trained_model(recipe), ExportRequest(("paddle",), rows=8))
    assert (result.folder / "terms.tsv").read_text() == "good\tPRODUCT\n"
    assert json.loads((result.folder / "task.json").read_text())["decode"]["terms"] == "terms.tsv"
    assert json.loads((result.folder / "labels.json").read_text())["thresholds"] == [0.25] * 4


def test_rows_from_the_vocabulary_are_told(classifier, tmp_path, capsys):
    data = dataclasses.replace(classifier.data, train=(), dev=())
    recipe = dataclasses.replace(classifier, data=data)
    export(recipe, find_trained_model(recipe), ExportRequest(("paddle",), rows=30), output=tmp_path / "x")
    assert "compared on synthetic text" in capsys.readouterr().err
    assert "No real row could be read" in (tmp_path / "x" / "report.md").read_text()
    assert json.loads((tmp_path / "x" / "report.json").read_text())["rows"]["real"] is False


class FakeLayout:
    """What a module of export/layouts has."""

    FORMAT = "onnx"

    @staticmethod
    def holds(precision):
        return True

    @staticmethod
    def write_repository(export, manifest, repository, name):
        (repository / name).mkdir()
        shutil.copy(export / "model.onnx", repository / name / "model.onnx")
        (repository / "fake.txt").write_text(manifest.task)


def test_a_layout_takes_a_run_or_an_export(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(layouts.LAYOUTS, "fake", "fake")
    monkeypatch.setattr(layouts, "import_module", lambda name: FakeLayout)
    words = ["--layout", "fake", "--format", "onnx", "--rows", "8"]
    assert main(["export", str(run), "--layout", "fake", "--format", "paddle"]) == 2
    assert "--format: fake takes onnx graphs" in " ".join(capsys.readouterr().err.split())
    assert main(["export", str(run), *words]) == 0
    assert (run / "fake" / "run" / "model.onnx").is_file() and not (run / "export").exists()
    assert main(["export", str(run), "--format", "onnx", "--rows", "8"]) == 0
    before = read_manifest(run / "export")
    capsys.readouterr()
    for flag, value in (("--precision", "fp32,int8"), ("--data", str(run / "recipe.yaml")), ("--rows", "8")):
        assert main(["export", str(run / "export"), "--layout", "fake", "-o", str(tmp_path / "x"), flag, value]) == 2
        assert f"{flag}: " in capsys.readouterr().err and not (tmp_path / "x").exists()
    arrange = ["--layout", "fake", "-o", str(tmp_path / "repository")]
    assert main(["export", str(run / "export"), *arrange]) == 0
    assert (tmp_path / "repository" / "run" / "model.onnx").is_file() and read_manifest(run / "export") == before
    assert main(["export", str(run / "export"), *arrange]) == 2
    assert main(["export", str(run / "export"), *arrange, "--overwrite"]) == 0
    capsys.readouterr()
    (tmp_path / "repository" / ".nlpctl.json").unlink()
    assert main(["export", str(run / "export"), *arrange, "--overwrite"]) == 2
    assert "is not an export to fake with a list of its files" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["export", "--format", "paddle"], ["predict", "--engine", "onnxruntime"]])
def test_what_is_told_to_end_leaves_nothing(classifier, tmp_path, words):
    """In a process of its own, with Paddle freshly imported."""
    told = (
        "import os, signal, sys; from nlpctl.models import folder; from nlpctl.cli.app import main\n"
        "folder.save_description = lambda *words: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    (tmp_path / "temporary").mkdir()
    command, *flags = words
    words = [command, str(classifier.run_dir), *flags, "-o", str(tmp_path / "x")]
    if command == "predict":
        words[2:2] = map(str, classifier.data.dev)
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run([sys.executable, "-c", told, *words], env=environ, capture_output=True, text=True)
    assert done.returncode == 130 and [path.name for path in tmp_path.iterdir()] == ["temporary"], done.stderr
    assert not list((tmp_path / "temporary").glob("nlpctl-*"))


def test_precisions_that_are_no_files():
    with pytest.raises(UserError, match="engines compute the fp32 graph in it"):
        ExportRequest(("paddle",), ("fp16",))
