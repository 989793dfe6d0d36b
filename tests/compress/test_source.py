"""Exports and static models that a compression starts from."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from made_runs import make_run

from nlpctl.compress.plan import check_plan, make_plan, static_model, write_plan
from nlpctl.compress.source import copy_fp32, import_static
from nlpctl.compress.steps import StepExecutor, int8_batches
from nlpctl.compress.strategies import FP32_EXPORT
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import answering_like, recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.engines.choice import Choice, open_choice
from nlpctl.engines.trained import load_network
from nlpctl.errors import UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.export.strategies import CalibrationRows, OrtStatic, Step
from nlpctl.layout import CANDIDATES, EXPORTS
from nlpctl.models.export_folder import read_manifest, write_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.models.folder import read_labels, tune_labels
from nlpctl.runtime.process import set_up_process
from nlpctl.tasks.base import task_and_encoder

ORIGINAL = Step(EXPORTS, "original", FP32_EXPORT)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return make_run(tmp_path_factory.mktemp("source"), "sequence_classification")


@pytest.fixture(scope="session")
def exported(run: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export for Paddle alone."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    export(run, find_trained_model(run), ExportRequest(rows=8), output=folder)
    return folder


def given(run: Recipe, exported: Path) -> Recipe:
    """The recipe of an export with the data of the run."""
    own = load_recipe(exported, (), "apply")
    data = dataclasses.replace(own.data, train=run.data.train, dev=run.data.dev)
    return dataclasses.replace(own, data=data, runtime=run.runtime)


def sums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_an_export_is_copied_and_gets_the_graph_that_it_lacks(run, exported, tmp_path):
    before = sums(exported)
    executor = StepExecutor(given(run, exported), set_up_process(run), str(exported), tmp_path)
    executor.make(ORIGINAL)
    manifest = read_manifest(tmp_path / "exports" / "original")
    assert [(graph.format, graph.precision) for graph in manifest.graphs] == [("paddle", "fp32"), ("onnx", "fp32")]
    assert (tmp_path / "exports/original/model.pdmodel").read_bytes() == (exported / "model.pdmodel").read_bytes()
    step = Step(CANDIDATES, "x", OrtStatic(), ("exports/original",), calibration=CalibrationRows(None, 4, 2))
    executor.make(dataclasses.replace(step, name="original+ort-static-4x2"))
    (graph,) = read_manifest(tmp_path / "candidates" / "original+ort-static-4x2").graphs
    assert (graph.format, graph.precision, graph.method) == ("onnx", "int8", "static")
    (check,) = graph.checks
    assert check.agreement > 0.8 and check.difference > 0
    assert sums(exported) == before
    everything = dataclasses.replace(step, calibration=CalibrationRows(None, 4, None))
    batches = int8_batches(everything, given(run, exported), tmp_path / "exports" / "original")
    rows = Path(run.data.train[0]).read_text(encoding="utf-8").splitlines()
    assert sum(len(batch["input_ids"]) for batch in batches) == len(rows)


@pytest.fixture(scope="session")
def tagging(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    """A run of several labels with thresholds, and an export of it."""
    run = make_run(tmp_path_factory.mktemp("tagging"), "multi_label_classification")
    model = run.run_dir / "model"
    tune_labels(model, read_labels(model)[0], (0.2, 0.3, 0.4))
    export(run, find_trained_model(run), ExportRequest(rows=8), output=model.parent / "export")
    return run, model.parent / "export"


@pytest.mark.parametrize("static", [False, True])
def test_a_copied_graph_answers_as_the_command_says(tagging, tmp_path, static):
    """By what is in the folder best/ answers, wherever it is copied to."""
    run, exported = tagging
    short, strict = Override("data.max_seq_length", "6", "--set"), Override("decode.threshold", "0.9", "--set")
    made = tmp_path / "exports" / "original"
    for flags, thresholds in (((short, strict), None), ((short,), (0.2, 0.3, 0.4))):
        recipe = load_recipe(exported, flags, "apply")
        if static:
            import_static(recipe, exported / "model", str(exported), _empty(made))
        else:
            copy_fp32(recipe, exported, _empty(made))
        own = recipe_of(made)
        assert own.data.max_seq_length == read_manifest(made).max_seq_length == 6
        assert own.decode.threshold == (0.5 if thresholds else 0.9) and read_labels(made)[1] == thresholds
    assert read_labels(exported)[1] == (0.2, 0.3, 0.4) and recipe_of(exported).data.max_seq_length == 24


def test_a_flag_goes_before_the_thresholds_of_a_trained_network(tagging, tmp_path):
    run, _ = tagging
    network = tmp_path / "networks" / "width-0.75"
    shutil.copytree(run.run_dir, network, ignore=lambda *_: ["export"])
    recipe = load_recipe(run.run_dir, [Override("decode.threshold", "0.5", "--set")], "apply")
    step = Step(EXPORTS, "width-0.75", FP32_EXPORT, ("networks/width-0.75",))
    for folder, command, thresholds in (("flag", recipe, None), ("none", run, (0.2, 0.3, 0.4))):
        executor = StepExecutor(command, set_up_process(run), "unread", tmp_path)
        executor.make(step)
        made = (tmp_path / step.folder).rename(tmp_path / folder)
        assert read_labels(made)[1] == thresholds
        assert task_and_encoder(made, answering_like(recipe, recipe_of(made)))[0].thresholds == thresholds


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def test_graphs_in_8_bits_do_not_count(run, exported, tmp_path):
    """Of an export only what was not made smaller is taken; without that it is no source."""
    manifest = read_manifest(exported)
    small = dataclasses.replace(manifest.graphs[0], precision="int8", method="ptq")
    for name, graphs in (("both", (*manifest.graphs, small)), ("small", (small,))):
        copy = tmp_path / name
        copy.mkdir()
        for path in exported.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        write_manifest(copy, dataclasses.replace(manifest, graphs=graphs))
    with pytest.raises(UserError, match="no fp32 graph to start from"):
        StepExecutor(given(run, exported), set_up_process(run), str(tmp_path / "small"), tmp_path / "out").make(
            ORIGINAL
        )
    assert not (tmp_path / "out" / "exports" / "original").exists()


@pytest.mark.parametrize("from_export", [True, False])
def test_a_broken_disk_is_no_network_that_onnx_cannot_have(run, exported, tmp_path, monkeypatch, from_export):
    """An export without the graph would be kept, and the same command would never make it."""

    def broken(*_):
        try:
            raise OSError(errno.EIO, "Input/output error")
        except OSError as error:  # as of a file that cannot be read
            raise UserError(str(error)) from error

    executor = StepExecutor(run, set_up_process(run), find_trained_model(run), tmp_path)
    if from_export:
        executor = StepExecutor(given(run, exported), set_up_process(run), str(exported), tmp_path)
    for module in ("nlpctl.graphs.onnx", "nlpctl.export.write_export"):
        monkeypatch.setattr(f"{module}.write_onnx_graph", broken)
    with pytest.raises((UserError, OSError), match="Input/output error"):
        executor.make(ORIGINAL)
    assert not (tmp_path / "exports" / "original").exists()
    monkeypatch.undo()
    executor.make(ORIGINAL)
    assert len(read_manifest(tmp_path / "exports" / "original").graphs) == 2


def test_a_static_model_of_another_task(run, exported, tmp_path):
    other = make_run(tmp_path, "question_answering")
    section = dataclasses.replace(other.compression, input_infer_model_path=str(exported / "model"))
    recipe = dataclasses.replace(other, compression=section)
    with pytest.raises(UserError, match="and 1 outputs; question_answering needs the .* and 2 outputs"):
        StepExecutor(recipe, set_up_process(recipe), find_trained_model(other), tmp_path / "out").make(ORIGINAL)


@pytest.fixture(scope="session")
def static(run: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix of a graph as PaddleNLP exports one: outputs named by Paddle, no token types, nothing beside it."""
    network = load_network(run, find_trained_model(run)).predictor.network
    prefix = tmp_path_factory.mktemp("static") / "inference" / "model"
    specs = [paddle.static.InputSpec([None, None], "int64", "input_ids")]
    paddle.jit.save(paddle.jit.to_static(network, input_spec=specs), str(prefix))
    network.forward.rollback()
    return prefix


def test_a_static_model_answers_as_the_network(run, static, tmp_path):
    before = sums(static.parent)
    section = dataclasses.replace(run.compression, input_infer_model_path=f"{static}.pdmodel")
    recipe = dataclasses.replace(run, compression=section)
    assert static_model(recipe) == static and static_model(run) is None
    StepExecutor(recipe, set_up_process(recipe), find_trained_model(run), tmp_path).make(ORIGINAL)
    made = tmp_path / "exports" / "original"
    manifest = read_manifest(made)
    assert [spec.name for spec in manifest.inputs] == ["input_ids"]
    assert [(spec.name, spec.shape) for spec in manifest.outputs] == [("logits", (None, 3))]
    assert [graph.format for graph in manifest.graphs] == ["paddle", "onnx"]
    assert not [path.name for path in made.iterdir() if path.name.startswith("model_state")]
    ids = np.random.default_rng(1).integers(5, 12, (3, 7))
    expected = load_network(run, find_trained_model(run)).predictor.outputs({"input_ids": ids})[0]
    for graph, engine in zip(manifest.graphs, ("paddle", "onnxruntime"), strict=True):
        predictor = open_choice(made, manifest, Choice(engine, "fp32", graph), set_up_process(run), 3)
        np.testing.assert_allclose(predictor.outputs({"input_ids": ids})[0], expected, atol=1e-4)
    assert sums(static.parent) == before


def test_what_may_differ_between_two_calls(run, exported, tmp_path):
    source = find_trained_model(run)
    write_plan(tmp_path, make_plan(run, source))

    def changed(name: str, value: object, section: str = "compression") -> Recipe:
        return dataclasses.replace(run, **{section: dataclasses.replace(getattr(run, section), **{name: value})})

    for name, value in {"strategy": "qat", "width_mult_list": ("1/3",), "budget": "1h", "max_drop": 2.0}.items():
        recipe = changed(name, value)
        check_plan(tmp_path, make_plan(recipe, source), recipe, training=True)
    faster = changed("learning_rate", 0.1, "training")
    check_plan(tmp_path, make_plan(faster, source), faster, training=True)  # nothing was trained yet
    (tmp_path / "networks" / "width-0.75" / "model").mkdir(parents=True)
    for recipe, told in (
        (faster, "made with training.learning_rate: "),
        (changed("round_type", "adaround"), "made with compression.round_type: round"),
        (changed("max_seq_length", 12, "data"), "made with data.max_seq_length: "),
    ):
        with pytest.raises(UserError, match=told):
            check_plan(tmp_path, make_plan(recipe, source), recipe, training=True)
    with pytest.raises(UserError, match="compressed models of another model"):
        check_plan(tmp_path, make_plan(run, exported), run, training=True)
    with pytest.raises(UserError, match="its files have changed"):
        check_plan(tmp_path, make_plan(run, source, exported / "model"), run, training=True)
    dev = Path(run.data.dev[0])
    before = dev.read_text()
    dev.write_text(before + before)
    try:
        with pytest.raises(UserError, match="the data changed .*dev.jsonl"):
            check_plan(tmp_path, make_plan(run, source), run, training=True)
    finally:
        dev.write_text(before)
