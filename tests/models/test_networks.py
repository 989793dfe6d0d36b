"""nlpctl's own networks: what a row gives does not depend on its batch, and the GRU computes what it says."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from nlpctl.models.networks.bag_of_embeddings import (
    BagOfEmbeddingsConfig,
    BagOfEmbeddingsForSequenceClassification,
)
from nlpctl.models.networks.bigru import BiGRUConfig, BiGRUForTokenClassification, ResetBeforeGRU
from nlpctl.models.networks.bilstm import BiLSTMConfig, BiLSTMForSequenceClassification
from nlpctl.models.networks.common import INITIAL_RANGE
from nlpctl.models.networks.textcnn import TextCNNConfig, TextCNNForSequenceClassification

PAD = 29
SIZES = {"vocab_size": 30, "embedding_size": 12, "hidden_size": 8, "num_labels": 3, "pad_token_id": PAD}
NETWORKS = {
    "bilstm": (BiLSTMForSequenceClassification, BiLSTMConfig, {"num_hidden_layers": 2}),
    "textcnn": (TextCNNForSequenceClassification, TextCNNConfig, {"kernel_sizes": (1, 2, 3, 6)}),
    "bag_of_embeddings": (BagOfEmbeddingsForSequenceClassification, BagOfEmbeddingsConfig, {}),
    "bigru": (BiGRUForTokenClassification, BiGRUConfig, {}),
    "bigru, reset before": (BiGRUForTokenClassification, BiGRUConfig, {"reset_gate": "before"}),
}
ROWS = ([3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5], [8], [9, 7, 9, 3])


def build(name, **changes):
    network_class, config_class, own = NETWORKS[name]
    paddle.seed(7)
    network = network_class(config_class(**SIZES | own | changes))
    network.eval()
    return network


def logits(network, rows, width):
    """One array per row, [length, labels] or [labels], computed in one batch of `width`."""
    batch = np.full([len(rows), width], PAD, np.int64)
    for i, row in enumerate(rows):
        batch[i, : len(row)] = row
    found = network(paddle.to_tensor(batch)).numpy()
    return [found[i, : len(row)] if found.ndim == 3 else found[i] for i, row in enumerate(rows)]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_row_does_not_depend_on_its_batch(name):
    network = build(name)
    together = logits(network, ROWS, 8)
    for alone, row in zip(together, ROWS, strict=True):
        for width in (len(row), 40):
            np.testing.assert_allclose(logits(network, [row], width)[0], alone, atol=1e-6)
    assert len({array.round(4).tobytes() for array in together}) == len(ROWS)  # and rows do differ


@pytest.mark.parametrize("name", NETWORKS)
def test_order_matters_but_to_a_bag(name):
    network = build(name)
    forwards, backwards = logits(network, [[1, 2, 3, 4], [4, 3, 2, 1]], 4)
    same = np.allclose(forwards, backwards, atol=1e-6)
    assert same == (name == "bag_of_embeddings")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_row_of_padding_gives_finite_numbers(name):
    assert np.isfinite(build(name)(paddle.full([2, 3], PAD, "int64")).numpy()).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_learns_but_the_row_of_the_padding(name):
    network = build(name, dropout=0.0)
    network.train()
    before = {key: value.numpy().copy() for key, value in network.state_dict().items()}
    optimizer = paddle.optimizer.SGD(1.0, parameters=network.parameters())
    network(paddle.to_tensor(np.array([[*ROWS[0], PAD], [*ROWS[0][::-1], PAD]]))).square().sum().backward()
    optimizer.step()
    for key, value in network.state_dict().items():
        assert not np.array_equal(value.numpy(), before[key]), key
    assert not network.base_model.get_input_embeddings().weight.numpy()[PAD].any()


@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_acts_in_training_only(name):
    network = build(name, dropout=0.5)
    ids = paddle.to_tensor(np.array([ROWS[0]]))
    assert np.array_equal(network(ids).numpy(), network(ids).numpy())
    network.train()
    assert not np.array_equal(network(ids).numpy(), network(ids).numpy())


def test_embeddings_start_small():
    weights = build("textcnn").base_model.get_input_embeddings().weight.numpy()
    assert 0.5 * INITIAL_RANGE < np.abs(weights).max() <= INITIAL_RANGE


def test_the_config_survives_saving(tmp_path):
    network = build("bigru, reset before")
    network.save_pretrained(str(tmp_path))
    loaded = BiGRUConfig.from_pretrained(str(tmp_path))
    assert loaded.reset_gate == "before"
    assert loaded.to_dict() == network.config.to_dict() | {"architectures": ["BiGRUForTokenClassification"]}


def test_an_unknown_place_of_the_reset_gate_is_refused():
    with pytest.raises(ValueError, match="reset_gate"):
        BiGRUConfig(reset_gate="beside")


def test_reset_before_gru_is_the_published_gru():
    """Against a plain transcription of the formulas, row by row."""
    paddle.seed(3)
    gru = ResetBeforeGRU(5, 4, num_layers=2, direction="bidirect", dropout=0.0)
    for layer in gru.layers:  # biases start at 0, which would hide them
        layer.bias.set_value(paddle.randn(layer.bias.shape))
    rows = [np.random.default_rng(i).normal(size=(length, 5)).astype("float32") for i, length in enumerate((6, 2, 1))]
    inputs = np.zeros([3, 6, 5], "float32")
    for i, row in enumerate(rows):
        inputs[i, : len(row)] = row
    outputs, states = gru(paddle.to_tensor(inputs), paddle.to_tensor([len(row) for row in rows]))
    for i, row in enumerate(rows):
        expected = row
        for layer in gru.layers:
            expected = np.concatenate([published(layer, 0, expected), published(layer, 1, expected[::-1])[::-1]], -1)
        np.testing.assert_allclose(outputs.numpy()[i, : len(row)], expected, atol=1e-5)
        assert not outputs.numpy()[i, len(row) :].any()
        np.testing.assert_allclose(states[-1].numpy()[0, i], expected[-1, :4], atol=1e-5)
        np.testing.assert_allclose(states[-1].numpy()[1, i], expected[0, 4:], atol=1e-5)


def published(layer, direction, inputs):
    """States [length, h] of one direction: z, r = sigmoid(Wx + b + Uh), c = tanh(Wx + b + U(r * h))."""
    weight, bias = layer.input_weight.numpy()[direction], layer.bias.numpy()[direction, 0]
    gate, candidate = layer.gate_weight.numpy()[direction], layer.candidate_weight.numpy()[direction]
    size = len(candidate)
    state, states = np.zeros(size), []
    for x in inputs:
        projected = x @ weight + bias
        gates = 1 / (1 + np.exp(-(projected[: 2 * size] + state @ gate)))
        update, reset = gates[:size], gates[size:]
        new = np.tanh(projected[2 * size :] + (reset * state) @ candidate)
        state = (1 - update) * state + update * new
        states.append(state)
    return np.array(states)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_static_graph_takes_any_shape_and_gives_the_same(name, tmp_path):
    network = build(name)
    expected = {width: logits(network, ROWS, width) for width in (8, 13)}
    spec = paddle.static.InputSpec([None, None], "int64")
    paddle.jit.save(paddle.jit.to_static(network, input_spec=[spec], full_graph=True), str(tmp_path / "static"))
    static = paddle.jit.load(str(tmp_path / "static"))
    for width, rows in expected.items():
        for found, row in zip(logits(static, ROWS, width), rows, strict=True):
            np.testing.assert_allclose(found, row, atol=1e-6)
