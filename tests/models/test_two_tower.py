"""The network that makes vectors: pooling, projection, and what is loaded into it."""

from __future__ import annotations

import functools

import numpy as np
import paddle
import pytest

from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.two_tower import two_tower

IDS = np.array([[5, 6, 7, 0], [5, 8, 0, 0]])


def head(pooling="mean", size=None):
    return Head("Model", adapt=functools.partial(two_tower, pooling=pooling, embedding_size=size), labelled=False)


def load(folder, **settings):
    paddle.seed(1)
    loaded = load_to_train(ModelSection(name_or_path=str(folder)), head(**settings), (), vocabulary_texts=None)
    loaded.network.eval()  # without dropout
    return loaded


def vectors(network, ids=IDS):
    network.eval()
    return network(paddle.to_tensor(ids))[0].numpy()


@pytest.mark.parametrize("family", ["Ernie", "Bert", "Roberta", "Electra"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_pooled_states_of_unit_length(paddle_folder, family, pooling):
    network = load(paddle_folder(family), pooling=pooling).network
    states = network.base_model(paddle.to_tensor(IDS))
    states = (states[0] if isinstance(states, tuple) else states).numpy()
    by_hand = {"cls": states[:, 0], "mean": np.stack([states[0, :3].mean(0), states[1, :2].mean(0)])}
    pooled = by_hand[pooling]
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors(network), expected, atol=1e-6)
    assert not [name for name in network.state_dict() if "pooler" in name]


def test_padding_changes_nothing(paddle_folder):
    network = load(paddle_folder()).network
    np.testing.assert_allclose(vectors(network)[1:], vectors(network, IDS[1:, :2]), atol=1e-6)


def test_second_texts_and_negatives_go_through_the_same_encoder(paddle_folder):
    network = load(paddle_folder()).network
    texts, pairs, negatives = network(
        paddle.to_tensor(IDS), None, paddle.to_tensor(IDS[::-1].copy()), None, paddle.to_tensor(IDS[:1])
    )
    np.testing.assert_allclose(pairs.numpy(), texts.numpy()[::-1], atol=1e-6)
    np.testing.assert_allclose(negatives.numpy(), texts.numpy()[:1], atol=1e-6)


def test_an_encoder_is_complete_without_training_unless_it_is_projected(paddle_folder):
    folder = paddle_folder("Bert")
    loaded = load_trained(folder, head())
    assert loaded.fresh == () and loaded.labels == ()
    np.testing.assert_allclose(vectors(loaded.network), vectors(load(folder).network), atol=1e-6)
    assert load(folder, size=3).fresh == ("projection.weight", "projection.bias")
    with pytest.raises(UserError, match="never trained: projection.bias, projection.weight"):
        load_trained(folder, head(size=3))


def test_a_saved_network_loads_as_it_was(paddle_folder, tmp_path):
    loaded = load(paddle_folder(), size=3)
    loaded.network.save_pretrained(str(tmp_path / "saved"))
    loaded.tokenizer.save_pretrained(str(tmp_path / "saved"))
    again = load_trained(tmp_path / "saved", head(size=3))
    assert vectors(again.network).shape == (2, 3)
    assert (vectors(again.network) == vectors(loaded.network)).all()
    goes_on = load_to_train(
        ModelSection(name_or_path=str(tmp_path / "saved")), head(size=3), (), vocabulary_texts=None
    )
    assert goes_on.fresh == ()  # the projection is kept too


def test_networks_of_our_own_make_vectors_too():
    from nlpctl.models.networks.bilstm import BiLSTMConfig, BiLSTMModel

    paddle.seed(1)
    network = two_tower(BiLSTMModel, "mean", 5)(BiLSTMConfig(vocab_size=9, embedding_size=4, hidden_size=3))
    made = vectors(network)
    assert made.shape == (2, 5)
    np.testing.assert_allclose(made[1:], vectors(network, IDS[1:, :2]), atol=1e-6)
