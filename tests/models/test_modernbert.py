"""ModernBERT: its config, its layers and its graphs; test_encoders.py compares it with Transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import paddle
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection, OptimizerSection
from nlpctl.engines.paddle_inference import PaddlePredictor
from nlpctl.errors import UserError
from nlpctl.graphs.graph_files import paddle_files
from nlpctl.graphs.onnx import write_fp16, write_onnx_graph
from nlpctl.graphs.onnx_quantize import quantize_dynamic, quantize_static
from nlpctl.graphs.ptq import quantize
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.models.families import Head, family_by_type
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.huggingface_layout import config_to_huggingface, to_huggingface
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.networks.modernbert import GLOBAL, LOCAL
from nlpctl.models.pruned import Kept, encoder_layers, keep_layers, prune
from nlpctl.models.weights import read_weights_file
from nlpctl.runtime.process import ProcessSetup
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.training.optimizer import rates_and_decays

RECORDED = Path(__file__).parent / "encoders" / "modernbert"
LABELS = ("neg", "mid", "pos")
CLASSIFIER = Head("SequenceClassification")
PAD = 3


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the recorded network, to be changed at will."""
    return Path(shutil.copytree(RECORDED, tmp_path / "modernbert", ignore=shutil.ignore_patterns("*.npz")))


def load(folder, head=CLASSIFIER, labels=LABELS, **config):
    paddle.seed(1)
    model = ModelSection(name_or_path=str(folder), config=config)
    loaded = load_to_train(model, head, labels, vocabulary_texts=None)
    loaded.network.eval()
    return loaded


def rewrite(folder, **values):
    """config.json with other values; None removes a key."""
    config = json.loads((folder / "config.json").read_text()) | values
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def some(rows=3, length=40, seed=0):
    """Random ids, the second row half as long."""
    ids = np.random.default_rng(seed).integers(5, 500, (rows, length))
    ids[1:2, length // 2 :] = PAD
    return ids


# -- against Transformers ---------------------------------------------------------------------------------------------


def test_the_window_and_both_bases_of_positions_matter(folder):
    """Otherwise the tests of test_encoders.py would not see them."""
    ids = paddle.to_tensor(some())
    before = load(folder).network(ids).numpy()
    for change in ({"local_attention": 128}, {"global_rope_theta": 500.0}, {"local_rope_theta": 160_000.0}):
        assert np.abs(load(folder, **change).network(ids).numpy() - before).max() > 1e-2


def test_both_versions_of_config_json(folder):
    """Version 4 of Transformers writes two thetas and a number, version 5 a table and a list."""
    ids = paddle.to_tensor(some())
    rewrite(folder, layer_types=None, rope_parameters=None, global_attn_every_n_layers=2, global_rope_theta=300.0)
    rewrite(folder, local_rope_theta=20.0)
    old = load(folder).network
    rewrite(folder, global_rope_theta=None, local_rope_theta=None, layer_types=[GLOBAL, LOCAL, GLOBAL, LOCAL])
    rewrite(folder, rope_parameters={GLOBAL: {"rope_theta": 300.0}, LOCAL: {"rope_theta": 20.0}})
    np.testing.assert_array_equal(old(ids).numpy(), load(folder).network(ids).numpy())


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"rope_parameters": {GLOBAL: {"rope_type": "yarn"}}}, "rope_type 'yarn' is not supported"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}, "rope_parameters must hold full_"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is .* as with None only"),
        ({"hidden_activation": "quick_gelu"}, "(?s)'quick_gelu': networks here compute gelu, relu.*take another model"),
        ({"classifier_pooling": "max"}, "classifier_pooling must be cls or mean, not 'max'"),
        ({"layer_types": [GLOBAL]}, "layer_types must be 4 of full_attention and sliding_attention"),
        ({"num_attention_heads": 3}, "hidden_size must be an even multiple of num_attention_heads"),
    ],
)
def test_a_config_of_another_network_is_refused(folder, values, told):
    rewrite(folder, **values)
    with pytest.raises(UserError, match=told):
        load(folder)


def test_half_a_window(folder):
    """Transformers 5 reads sliding_window before local_attention."""
    ids = paddle.to_tensor(some(2, 7))
    rewrite(folder, local_attention=2)
    expected = load(folder).network(ids).numpy()
    rewrite(folder, local_attention=8, sliding_window=1)
    model = load(folder)
    np.testing.assert_array_equal(model.network(ids).numpy(), expected)
    assert model.network.config.local_attention == 2
    assert config_to_huggingface(vars(model.network.config), "Model", "")["local_attention"] == 2


def test_gelu_by_tanh(folder):
    exact = load(folder).network(paddle.to_tensor(some(2, 7))).numpy()
    rewrite(folder, hidden_activation="gelu_pytorch_tanh")
    tanh = load(folder).network(paddle.to_tensor(some(2, 7))).numpy()
    assert 0 < np.abs(tanh - exact).max() < 1e-2


def test_the_head_of_a_language_model_is_taken(folder):
    """It is trained with the encoder: Transformers takes it too, whatever the labels are."""
    model = load(folder, labels=("no", "yes"))
    assert model.fresh == ("classifier.weight", "classifier.bias")
    assert load_trained(folder, CLASSIFIER).network.head.dense.weight.equal_all(model.network.head.dense.weight)


def test_pooling_ignores_padding(folder):
    rewrite(folder, classifier_pooling="mean")
    network, ids = load(folder).network, some()
    together = network(paddle.to_tensor(ids)).numpy()
    np.testing.assert_allclose(together[1], network(paddle.to_tensor(ids[1:2, :20])).numpy()[0], atol=1e-5)
    assert np.abs(network(paddle.to_tensor(ids[:, :30])).numpy()[0] - together[0]).max() > 1e-3


def test_back_in_hugging_faces_layout(folder):
    """Names, values and config are those of Transformers; the thetas stand under the keys of version 4."""
    network = load(folder).network
    stored = read_weights_file(folder / "model.safetensors").arrays
    arrays = {name: array.numpy() for name, array in network.state_dict().items()}
    # As a file that sorts its names gives them.
    written = to_huggingface(dict(sorted(arrays.items())), "modernbert", "SequenceClassification", "model")
    assert written.keys() == stored.keys()
    for name, array in stored.items():
        np.testing.assert_array_equal(written[name], array, err_msg=name)
    values = json.loads((folder / "config.json").read_text())
    config = config_to_huggingface(vars(network.config), "SequenceClassification", "config.json")
    assert config["global_rope_theta"] == values["rope_parameters"][GLOBAL]["rope_theta"] == 160_000
    shared = config.keys() & values.keys() - {"label2id", "id2label"}
    assert {key: config[key] for key in shared} == {key: values[key] for key in shared} and len(shared) > 25


def test_a_network_that_transformers_cannot_hold(folder):
    model = load(folder)
    keep_layers(model.network, (1, 3))
    with pytest.raises(UserError, match="attention_norms is .* networks of Transformers only have None"):
        config_to_huggingface(vars(model.network.config), "SequenceClassification", "config.json")


# -- layers -----------------------------------------------------------------------------------------------------------


def test_what_is_kept_of_a_pruned_network_computes_as_it_did(folder, tmp_path):
    whole, pruned, ids = load(folder), load(folder), paddle.to_tensor(some())
    kept = Kept(((1,), (0,), (0, 1), (1,)), tuple(tuple(range(place, 32, 2)) for place in range(4)))
    for layer, heads, neurons in zip(encoder_layers(whole.network), kept.heads, kept.neurons, strict=True):
        out = layer.self_attn.out_proj.weight.numpy().reshape(2, 8, 16)
        out[[head for head in range(2) if head not in heads]] = 0
        layer.self_attn.out_proj.weight.set_value(out.reshape(16, 16))
        inner = layer.linear2.weight.numpy()
        inner[[place for place in range(32) if place not in neurons]] = 0
        layer.linear2.weight.set_value(inner)
    prune(pruned.network, kept)
    np.testing.assert_allclose(pruned.network(ids).numpy(), whole.network(ids).numpy(), atol=1e-5)
    again = saved(pruned, tmp_path / "pruned")
    np.testing.assert_array_equal(again.network(ids).numpy(), pruned.network(ids).numpy())


@pytest.mark.parametrize("kept", [(1, 3), (0, 2)])
def test_layers_that_are_kept_stay_what_they_were(folder, tmp_path, kept):
    """Each its window and its norm: the first layer of a network has none."""
    model, ids = load(folder), paddle.to_tensor(some())
    layers = [encoder_layers(model.network)[place] for place in kept]
    base = model.network.base_model
    states, views = base.embeddings(ids), base._views((ids != PAD).astype("float32"))
    for layer in layers:
        states = layer(states, views[layer.kind])
    expected = base.encoder.norm(states).numpy()
    keep_layers(model.network, kept)
    np.testing.assert_array_equal(base(ids).numpy(), expected)
    again = saved(model, tmp_path / "student")
    np.testing.assert_array_equal(again.network.base_model(ids).numpy(), expected)


def test_fewer_layers_of_a_recipe(folder):
    network, ids = load(folder).network, paddle.to_tensor(some())
    _, every = network.base_model(ids, output_hidden_states=True)
    cut = load(folder, num_hidden_layers=2).network.base_model
    np.testing.assert_array_equal(cut(ids).numpy(), cut.encoder.norm(every[2]).numpy())


def test_learning_rates_by_layer(folder):
    found = rates_and_decays(load(folder).network, OptimizerSection(layer_decay=0.5), 1.0, 0.01)
    rates = {name: setting.learning_rate for name, setting in found.items()}
    assert rates["classifier.weight"] == rates["head.dense.weight"] == rates["modernbert.encoder.norm.weight"] == 1
    assert rates["modernbert.encoder.layers.3.gate.weight"] == 1 / 2
    assert rates["modernbert.encoder.layers.0.linear1.weight"] == 1 / 16
    assert rates["modernbert.embeddings.layer_norm.weight"] == 1 / 32
    assert found["modernbert.encoder.norm.weight"].weight_decay == 0


def saved(model, folder):
    save_model_folder(folder, model.network, model.tokenizer, make_description(load_recipe("quickstart"), model.labels))
    again = load_trained(folder, CLASSIFIER)
    again.network.eval()
    return again


# -- trained and exported ---------------------------------------------------------------------------------------------


def test_it_is_trained_to_the_same_weights_by_the_faster_functions(folder, tmp_path):
    recipe = load_recipe("quickstart")

    def trained():
        model = load(folder)
        model.network.train()
        rule = paddle.optimizer.AdamW(0.01, parameters=model.network.parameters())
        for step in range(3):
            paddle.nn.functional.cross_entropy(
                model.network(paddle.to_tensor(some(4, 12, step))), paddle.to_tensor([0, 1, 2, 1])
            ).backward()
            rule.step()
            rule.clear_grad()
        return {name: value.numpy() for name, value in model.network.state_dict().items()}

    expected = trained()
    with fast_cpu(recipe, "cpu", load(folder).network):
        found = trained()
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-4, err_msg=name)


@pytest.fixture
def exported(folder, tmp_path):
    """The network, and its graphs model.pdmodel and model.onnx in the folder."""
    network = load(folder).network
    write_paddle_graph(network, {"input_ids": some(2, 7)}, ("logits",), tmp_path / "model")
    write_onnx_graph(tmp_path / "model", tmp_path / "model.onnx", PAD)
    return network, tmp_path


def by_onnx_runtime(file, ids):
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run(None, {"input_ids": ids})[0]


def paddle_engine(folder, stem, precision):
    graph = Graph("paddle", precision, paddle_files(stem))
    inputs = (TensorSpec("input_ids", "int64", (None, None)),)
    outputs = (TensorSpec("logits", "float32", (None, len(LABELS))),)
    manifest = ExportManifest("sequence_classification", inputs, outputs, 80, (graph,), 0, "", {})
    return PaddlePredictor(folder, manifest, graph, precision, ProcessSetup("cpu", threads=1, rank=0, world_size=1))


def test_graphs_of_it_take_any_length(exported):
    """Window and positions are computed from the length of a batch."""
    network, folder = exported
    engine = paddle_engine(folder, "model", "fp32")
    for rows, length in ((1, 1), (3, 70)):
        ids = some(rows, length)
        expected = network(paddle.to_tensor(ids)).numpy()
        np.testing.assert_allclose(by_onnx_runtime(folder / "model.onnx", ids), expected, atol=1e-5)
        np.testing.assert_allclose(engine.outputs({"input_ids": ids})[0], expected, atol=1e-5)
    assert all(layer.bias is None for layer in network.sublayers() if type(layer) is paddle.nn.Linear and layer is not
               network.classifier)  # fmt: skip


@pytest.mark.slow
def test_positions_are_exact_in_16_bits(exported):
    """In fp16 no odd number follows 2,048: angles must not be rounded, nor the distances of a window."""
    network, folder = exported
    write_fp16(folder / "model.onnx", folder / "fp16.onnx")
    for length in (30, 3000):
        ids = some(1, length)
        expected = network(paddle.to_tensor(ids)).numpy()
        found = by_onnx_runtime(folder / "fp16.onnx", ids)
        assert 0 < np.abs(found - expected).max() < 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("native_int8")
def test_int8_graphs(exported):
    """Every product with a weight but the last, though none has a bias."""
    network, folder = exported
    batches = [{"input_ids": some(8, 30, seed)} for seed in range(1, 9)]
    assert len(quantize(folder / "model", folder / "ptq", batches)) == 4 * 7 + 1
    ids = some(64, 20, 100)
    expected = network(paddle.to_tensor(ids)).numpy()
    engine = paddle_engine(folder, "ptq", "int8")
    quantize_dynamic(folder / "model.onnx", folder / "dynamic.onnx")
    quantize_static(folder / "model.onnx", folder / "static.onnx", batches)
    found = [engine.outputs({"input_ids": ids})[0]]
    found += [by_onnx_runtime(folder / f"{name}.onnx", ids) for name in ("dynamic", "static")]
    for each in found:
        assert np.abs(each - expected).max() > 1e-4
        assert (each.argmax(1) == expected.argmax(1)).mean() > 0.85


def test_another_task_needs_another_head():
    family = family_by_type("modernbert", "config.json")
    assert not family.has("MultipleChoice") and family.has("QuestionAnswering")
