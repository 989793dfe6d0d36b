"""Outputs of layers: the same values as a forward alone, per text and per token, without padding."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification

from nlpctl.errors import UserError
from nlpctl.inference.layer_hooks import LayerOutputs, token_counts
from nlpctl.models.networks.bilstm import BiLSTMConfig, BiLSTMForSequenceClassification
from nlpctl.models.networks.textcnn import TextCNNConfig, TextCNNForSequenceClassification

LENGTH = 6
ROWS = [[3, 4, 5, 6, 7, 8], [5, 3], [9, 0, 8], [2, 2, 2, 2]]  # 0 is padding; inside a text it is none


def batch(rows=ROWS, width=LENGTH):
    ids = np.zeros((len(rows), width), np.int64)
    for row, text in zip(ids, rows, strict=True):
        row[: len(text)] = text
    return {"input_ids": ids}


def ernie(positions=32):
    paddle.seed(1)
    return ErnieForSequenceClassification(
        ErnieConfig(vocab_size=20, hidden_size=LENGTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
                    max_position_embeddings=positions)
    )  # fmt: skip


def textcnn():
    return TextCNNForSequenceClassification(
        TextCNNConfig(vocab_size=20, embedding_size=LENGTH, hidden_size=LENGTH, kernel_sizes=[2, 3])
    )


def test_tokens_up_to_the_last_that_is_no_padding():
    assert token_counts(batch(), 0).tolist() == [6, 2, 3, 4]
    assert token_counts({"input_ids": np.zeros((2, 3), np.int64)}, 0).tolist() == [0, 0]


@pytest.mark.parametrize("positions", [32, LENGTH])  # at the end of the positions nothing can be appended
def test_an_encoder(positions):
    """Width, length and the number of texts may agree: what is a token is told by what changes with the padding."""
    network = ernie(positions)
    by_row, by_token = LayerOutputs(network, ["ernie.encoder.layers.*", "ernie.pooler", "classifier"]).of(batch())
    assert set(by_row) == {"ernie.pooler", "classifier"}
    assert {"ernie.encoder.layers.0", "ernie.encoder.layers.1", "ernie.encoder.layers.1.linear1"} <= set(by_token)
    assert by_token["ernie.encoder.layers.1"].shape == (15, LENGTH) and by_row["classifier"].shape == (4, 2)
    hidden, pooled = network.ernie(paddle.to_tensor(batch()["input_ids"]))
    assert np.array_equal(by_token["ernie.encoder.layers.1"][8:11], hidden.numpy()[2, :3])
    assert np.array_equal(by_row["ernie.pooler"], pooled.numpy())


def test_tokens_on_another_axis():
    network = textcnn()
    layers = LayerOutputs(network, ["textcnn.convolutions.0-1", "textcnn"])
    by_row, by_token = layers.of(batch())
    convolution = network.textcnn.convolutions[1]
    embedded, _ = network.textcnn.embed(paddle.to_tensor(batch()["input_ids"]))
    alone = convolution(embedded.transpose([0, 2, 1])).numpy()  # [rows, filters, tokens]
    assert np.array_equal(by_token["textcnn.convolutions.1"][6:8], alone[1].T[:2])
    assert by_token["textcnn.convolutions.0"].shape == (15, LENGTH)  # an even window has one response more
    assert by_token["textcnn.0"].shape == (15, 12) and by_row["textcnn.1"].shape == (4, 12)
    again, _ = layers.of(batch([[4, 5, 6]], 3))  # another width, one text
    assert again["textcnn.1"].shape == (1, 12)


def test_recurrent_layers_and_what_has_no_rows():
    network = BiLSTMForSequenceClassification(BiLSTMConfig(vocab_size=20, embedding_size=4, hidden_size=3))
    layers = LayerOutputs(network, ["bilstm.lstm", "bilstm.embeddings"])
    by_row, by_token = layers.of(batch())
    assert by_token["bilstm.lstm.0"].shape == (15, 6) and by_token["bilstm.embeddings"].shape == (15, 4)
    assert set(layers.left_out) == {"bilstm.lstm.1", "bilstm.lstm.2"}  # states: [directions, rows, width]


def test_hooks_do_not_stay():
    network = ernie()
    LayerOutputs(network, ["*"]).of(batch())
    assert all(not layer._forward_post_hooks for layer in network.sublayers(include_self=True))


def test_layers_that_are_not_there_or_never_run():
    with pytest.raises(UserError, match=r"(?s)'ernie.encodr' matches no layer.*did you mean ernie.encoder\?"):
        LayerOutputs(ernie(), ["ernie.encodr"])
    with pytest.raises(UserError, match="never calls"):
        LayerOutputs(ernie(), ["ernie.encoder.layers"]).of(batch())  # a list, whose members are called
