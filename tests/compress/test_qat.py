"""Training for int8, and the graphs that come of it, judged in the engine that runs them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import paddle
import pytest
from made_runs import make_run

from nlpctl.compress.networks import qat
from nlpctl.compress.networks.qat import check, noting_inputs, train_qat, write_qat_graph
from nlpctl.compress.strategies import Qat
from nlpctl.config.load import load_recipe
from nlpctl.config.recipe_of import recipe_of
from nlpctl.engines.trained import load_network
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.graphs.int8_program import write_onednn_program, write_simulated_graph
from nlpctl.models.folder import read_description
from nlpctl.models.simulated_int8 import KEY, Simulation, make_plain, simulate, simulated_layers
from nlpctl.models.source import read_config
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.train import train

CASES = [
    ("sequence_classification", "ernie", "linear"),
    pytest.param("text_matching", "bert", "linear", marks=pytest.mark.slow),
    ("token_classification", "roberta", "crf"),
    pytest.param("question_answering", "electra", "linear", marks=pytest.mark.slow),
]


def trained(recipe, name="qat", **settings):
    """Train for one epoch of three steps, with keys of section compression; the run directory."""
    training = replace(recipe.training, num_train_epochs=1.0, per_device_train_batch_size=8, learning_rate=1e-3)
    recipe = replace(recipe, training=training, compression=replace(recipe.compression, **settings))
    run = RunDirectory(recipe.run_dir / name)
    assert train_qat(recipe, str(recipe.run_dir / "model"), run, set_up_process(recipe)) == run.model
    return run


def checksums(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def weights(folder):
    return paddle.load(str(folder / "model_state.pdparams"), return_numpy=True)


def limits(recipe, folder):
    network = load_network(recipe, str(folder)).predictor.network
    return {name: layer.input_rounding.limit() for name, layer in simulated_layers(network)}


@pytest.mark.usefixtures("native_int8")
@pytest.mark.parametrize(("task", "architecture", "head"), CASES)
def test_the_engine_decides_as_the_simulated_network(tmp_path, task, architecture, head):
    recipe = make_run(tmp_path, task, architecture, head)
    source = recipe.run_dir / "model"
    before = checksums(source)
    run = trained(recipe)
    assert checksums(source) == before and read_config(run.model)[KEY]["clipped"] is True
    assert read_description(run.model).labels == read_description(source).labels
    result = export(recipe, str(source), ExportRequest())
    folder = recipe.run_dir / "candidate"
    folder.mkdir()
    write_qat_graph(recipe, run.path, result.folder, folder, recipe_of(result.folder))
    graph = Qat.graph
    assert (graph.precision, graph.method) == ("int8", "qat")
    assert sorted(path.name for path in folder.iterdir()) == sorted(graph.files)
    model = load_network(recipe, str(run.model))
    from nlpctl.data.rows.task_rows import task_rows
    from nlpctl.data.sample_rows import rows_to_compare
    from nlpctl.engines.paddle_inference import PaddlePredictor
    from nlpctl.engines.parity import Parity

    rows = rows_to_compare(task_rows(task, recipe.data), None, model.encoder.tokenizer, 40, masked=False)
    parity = Parity(model.task, model.encoder, rows.examples, model.predictor.outputs)
    predictor = PaddlePredictor(folder, result.manifest, graph, "int8", set_up_process(recipe))
    found = parity.difference(predictor.outputs)
    assert parity.distinct_decisions > 1
    # a value that lies on the limit between two steps may be rounded otherwise, and weights are large here
    assert found.agreement == 1 and found.relative < 0.05
    sizes = [(place / name).stat().st_size for place, name in ((result.folder, "model.pdiparams"),
                                                             (folder, "model.int8.pdiparams"))]  # fmt: skip
    inside = sum(layer.weight.size for _, layer in simulated_layers(model.predictor.network))
    assert sizes[0] - sizes[1] > 2 * inside
    with pytest.raises(UserError, match="this network simulates int8"):
        export(recipe, str(run.model), ExportRequest(), output=tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_labels_weigh_as_in_the_training_of_the_source(tmp_path, monkeypatch):
    recipe = make_run(tmp_path, "sequence_classification", "ernie", "linear")
    recipe = replace(recipe, loss=replace(recipe.loss, class_weights="balanced"))
    seen = {}
    monkeypatch.setattr(qat, "train_network", lambda *words, loss: seen.update(task=words[4], data=words[3], loss=loss))
    train_qat(recipe, str(recipe.run_dir / "model"), RunDirectory(recipe.run_dir / "qat"), set_up_process(recipe))
    task, rows = seen["task"], seen["data"].train
    logits, labels = paddle.randn([8, len(task.labels)]), {"labels": paddle.zeros([8], "int64")}
    plain = float(seen["loss"](None, lambda: logits, {}, labels))
    task.collect_statistics([row for row in rows if row.label] + [row for row in rows if not row.label][:1])
    weighted = float(seen["loss"](None, lambda: logits, {}, labels))
    assert task.weights is not None and weighted == pytest.approx(plain * task.weights[0], rel=1e-5)


def test_interrupted_and_continued(tmp_path, monkeypatch):
    recipe = make_run(tmp_path, "sequence_classification")
    recipe = replace(recipe, training=replace(recipe.training, evaluation_strategy="steps", save_strategy="steps",
                                              eval_steps=1, save_steps=1, load_best_model_at_end=True))  # fmt: skip
    whole = trained(recipe, "whole")
    from nlpctl.tasks.sequence_classification import SequenceClassification

    loss, calls = SequenceClassification.loss, []

    def stopped(*arguments):
        calls.append(1)
        if len(calls) == 12:  # 5 batches of dev and one to train on a step
            raise KeyboardInterrupt
        return loss(*arguments)

    monkeypatch.setattr(SequenceClassification, "loss", stopped)
    with pytest.raises(Interrupted, match="the same `nlpctl compress` command goes on from checkpoint-"):
        trained(recipe, "parts")
    monkeypatch.undo()
    run = RunDirectory(recipe.run_dir / "parts")
    for how in ({"resume": True}, {"overwrite": True}):  # its recipe does not tell of its loss
        with pytest.raises(UserError, match="(?s)neither resumes.*the same `nlpctl compress` command to continue"):
            train(load_recipe(run.path), **how)
    checkpoint = run.last_checkpoint()
    assert checkpoint is not None and checkpoint.name != "checkpoint-3"
    assert any(name.endswith("input_rounding.bound") for name in weights(checkpoint))
    trained(recipe, "parts")
    assert not run.checkpoints.exists()  # no command goes on with a finished network
    one, other = weights(whole.model), weights(run.model)
    assert one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)
    before = (run.model / "model_state.pdparams").stat().st_mtime
    trained(recipe, "parts")  # finished: nothing is done again
    with pytest.raises(UserError, match="neither resumes.*\n.*name it as model.name_or_path"):
        train(load_recipe(run.path), overwrite=True)
    assert (run.model / "model_state.pdparams").stat().st_mtime == before


@pytest.mark.slow
def test_arguments(tmp_path):
    recipe = make_run(tmp_path, "sequence_classification")
    learned = trained(recipe, "learned")
    fixed = trained(recipe, "fixed", use_pact=False, activation_quantize_type="range_abs_max",
                    weight_quantize_type="abs_max")  # fmt: skip
    assert any(name.endswith("input_rounding.clip") for name in weights(learned.model))
    assert not any(name.endswith("input_rounding.clip") for name in weights(fixed.model))
    moved = [abs(value.item()) for name, value in weights(learned.model).items() if name.endswith("clip")]
    assert 1e-3 < max(moved) < 0.02  # three steps of 0.3 % or so
    began, ended = limits(recipe, fixed.path / "start"), limits(recipe, fixed.model)
    assert all(ended[name] >= bound for name, bound in began.items())  # the largest ever seen
    averaged = limits(recipe, learned.path / "start")
    assert all(began[name] >= bound for name, bound in averaged.items()) and began != averaged
    settings = [read_config(run.model)[KEY] for run in (learned, fixed)]
    assert [each["weights"] for each in settings] == ["channel_wise_abs_max", "abs_max"]
    result = export(recipe, str(recipe.run_dir / "model"), ExportRequest())
    write_qat_graph(recipe, fixed.path, result.folder, fixed.path, recipe_of(result.folder))
    assert (fixed.path / "model.int8.pdmodel").is_file()


def test_null_stands_for_the_default(tmp_path):
    run = trained(make_run(tmp_path, "sequence_classification"), moving_rate=None, use_pact=None)
    settings = read_config(run.model)[KEY]
    assert (settings["moving_rate"], settings["clipped"]) == (0.9, True)
    assert any(name.endswith("input_rounding.clip") for name in weights(run.model))


def test_killed_while_the_graph_is_made(tmp_path, monkeypatch):
    """What is left lies in the folder that is being made, which the next command clears away; not beside it."""
    recipe = make_run(tmp_path, "sequence_classification")
    run, result = trained(recipe), export(recipe, str(recipe.run_dir / "model"), ExportRequest())
    folder = tmp_path / "candidates" / ".staged"
    folder.mkdir(parents=True)
    beside = []

    def watch(*arguments, **options):
        beside.extend(path.name for path in folder.parent.iterdir())
        return write_simulated_graph(*arguments, **options)

    monkeypatch.setattr("nlpctl.compress.networks.qat.write_simulated_graph", watch)
    write_qat_graph(recipe, run.path, result.folder, folder, recipe_of(result.folder))
    assert beside == [".staged"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(Qat.graph.files)


def test_refused_before_any_work(tmp_path):
    recipe = make_run(tmp_path, "sequence_classification")
    config = read_config(recipe.run_dir / "model")
    check(recipe, config)
    wrong = [
        (recipe, config | {"model_type": "bilstm"}, "bilstm has next to none"),
        (recipe, config | {KEY: {}}, "is already trained for int8"),
        (replace(recipe, training=replace(recipe.training, bf16=True)), config, "training.bf16 would round again"),
        (replace(recipe, compression=replace(recipe.compression, activation_quantize_type="abs_max")), config,
         "no graph for oneDNN can"),
    ]  # fmt: skip
    for each, values, message in wrong:
        with pytest.raises(UserError, match=message):
            check(each, values)


def test_nothing_is_wide_enough(tmp_path, monkeypatch):
    recipe = make_run(tmp_path, "sequence_classification")
    monkeypatch.setattr("nlpctl.compress.networks.qat.NARROW", 1000)
    with pytest.raises(UserError, match="nothing here can be int8"):
        trained(recipe)


@pytest.mark.usefixtures("native_int8")
def test_the_graph_computes_what_is_simulated(attention, tmp_path):
    """One bound for three layers that read a tensor, per column and for the whole weight."""
    plain = attention.network
    names = (("query", "key", "value"), ("inner",), ("outer",))
    seen = {}
    with noting_inputs(plain, [each[0] for each in names], lambda name, x: seen.update({name: float(x.abs().max())})):
        expected = attention.expected
    plain.config = type("Config", (), {})()
    for weights, per_column in (("channel_wise_abs_max", True), ("abs_max", False)):
        simulate(plain, Simulation(weights, "moving_average_abs_max", 0.9, False, names), "here")
        layers = dict(simulated_layers(plain))
        for each in names:
            layers[each[0]].input_rounding.start(0.8 * seen[each[0]])
        simulated = attention.expected
        bounds = {layer.weight.name: layer.input_rounding.limit() for layer in layers.values()}
        make_plain(plain)
        write_simulated_graph(attention.prefix, tmp_path / "simulated", bounds, per_column=per_column)
        assert len(write_onednn_program(tmp_path / "simulated", tmp_path / "int8")) == 5
        found = attention.paddle_int8(tmp_path / "int8")
        np.testing.assert_allclose(found, simulated, atol=1e-6)
        assert np.abs(expected - simulated).max() > 1e-3
    assert attention.expected.tobytes() == expected.tobytes()


def test_a_weight_that_is_in_no_product(attention, tmp_path):
    table = attention.network.table.weight.name
    with pytest.raises(RunFailed, match=f"no product of the graph has the weight {table}"):
        write_simulated_graph(attention.prefix, tmp_path / "simulated", {table: 1.0}, per_column=True)
    assert not list(tmp_path.iterdir())


def test_a_pooler_that_no_output_needs(tmp_path):
    recipe = make_run(tmp_path, "token_classification", "ernie")
    run = trained(recipe)
    assert "ernie.pooler.dense" in limits(recipe, run.model)
    result = export(recipe, str(recipe.run_dir / "model"), ExportRequest())
    write_qat_graph(recipe, run.path, result.folder, run.path, recipe_of(result.folder))
    assert (run.path / "model.int8.pdmodel").is_file()
