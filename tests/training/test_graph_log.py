"""VisualDL's graph of every kind of network, read back."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest
from paddlenlp import transformers

import nlpctl  # noqa: F401
from nlpctl.models.crf import with_crf
from nlpctl.models.masked_lm import MaskedWords, mixed
from nlpctl.models.networks import bag_of_embeddings, bigru, bilstm, textcnn
from nlpctl.models.two_tower import two_tower
from nlpctl.training.graph_log import write_graph

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 16, "max_position_embeddings": 16}
IDS = np.array([[1, 5, 6, 2]])
TYPED = {"input_ids": IDS, "token_type_ids": np.zeros_like(IDS)}


def own(module, name, head="SequenceClassification"):
    config = vars(module)[f"{name}Config"](vocab_size=30, embedding_size=6, hidden_size=8)
    return vars(module)[f"{name}For{head}"](config)


def encoder(family, head="SequenceClassification"):
    return vars(transformers)[f"{family}For{head}"](vars(transformers)[f"{family}Config"](**SIZES))


NETWORKS = {
    "bert": (lambda: encoder("Bert"), TYPED),
    "ernie": (lambda: encoder("Ernie"), TYPED),
    "roberta": (lambda: encoder("Roberta"), {"input_ids": IDS}),
    "electra": (lambda: encoder("Electra"), TYPED),
    "question answering": (lambda: encoder("Ernie", "QuestionAnswering"), TYPED),
    "tagger with a CRF": (
        lambda: with_crf(transformers.BertForTokenClassification)(transformers.BertConfig(**SIZES)), TYPED
    ),
    "language model": (
        lambda: mixed(MaskedWords, transformers.BertForMaskedLM)(transformers.BertConfig(**SIZES)),
        TYPED | {"masked_positions": IDS[:, :2] * 0},
    ),
    "language model without token types": (
        lambda: mixed(MaskedWords, transformers.BertForMaskedLM)(transformers.BertConfig(**SIZES)),
        {"input_ids": IDS, "masked_positions": IDS[:, :2] * 0},
    ),
    "two towers": (lambda: two_tower(transformers.BertModel, "mean", 4)(transformers.BertConfig(**SIZES)), TYPED),
    "bilstm": (lambda: own(bilstm, "BiLSTM"), {"input_ids": IDS}),
    "textcnn": (lambda: own(textcnn, "TextCNN"), {"input_ids": IDS}),
    "bag of embeddings": (lambda: own(bag_of_embeddings, "BagOfEmbeddings"), {"input_ids": IDS}),
    "bigru": (lambda: own(bigru, "BiGRU", "TokenClassification"), {"input_ids": IDS}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_the_graph_of_a_network_has_its_layers(tmp_path, name):
    build, batch = NETWORKS[name]
    network = build()
    embedding = next(path for path, layer in network.named_sublayers() if isinstance(layer, paddle.nn.Embedding))
    assert write_graph(network, batch, tmp_path / "visualdl")
    (file,) = (tmp_path / "visualdl").iterdir()
    assert file.name.startswith("vdlgraph.") and file.name.endswith(".log")  # the names that VisualDL looks for
    graph = json.loads(file.read_text())
    layers = {node["name"] for node in graph["nodes"] if not node["children_node"] == []}
    assert any(layer.endswith(f"Embedding[{embedding.split('.')[-1]}]") for layer in layers), layers
    assert {"feed", "fetch"} <= {node["type"] for node in graph["nodes"]}
    assert sum(node["type"] == "feed" for node in graph["nodes"]) == len(batch)


class Stubborn(paddle.nn.Layer):
    """A network whose forward Paddle cannot compile."""

    def forward(self, input_ids):
        if isinstance(input_ids, paddle.static.Variable):
            raise TypeError("not as a static graph")
        return input_ids


def test_a_network_without_a_static_graph_is_told(tmp_path, capsys):
    assert not write_graph(Stubborn(), {"input_ids": IDS}, tmp_path)
    captured = capsys.readouterr()
    assert captured.out == "" and "no graph for VisualDL" in captured.err
    assert list(tmp_path.iterdir()) == []
