"""A network around a plain layer of the user's own, as a static graph."""

from __future__ import annotations

import sys

import numpy as np
import paddle
import pytest

from nlpctl.errors import RunFailed
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.families import Head, family_by_type
from nlpctl.models.network import build_network, make_config

CODE = """
from paddle import nn

class Bag(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.out = nn.Linear(config.width, config.num_labels)

    def forward(self, input_ids):
        return self.out(self.words(input_ids).mean(axis=1))

class Unused(Bag):
    def forward(self, input_ids, token_type_ids=None):
        return self.out(self.words(input_ids).mean(axis=1))
"""
SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.fixture
def built(tmp_path, monkeypatch):
    (tmp_path / "layer_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "layer_code", raising=False)

    def build(name: str):
        family, head = family_by_type("ernie", "test"), Head("SequenceClassification", user_class=f"layer_code:{name}")
        config = make_config(family, SIZES, ("x", "y"), {"width": 4}, user_class=True)
        return build_network(family, head, config, "test")

    return build


def test_a_graph_computes_the_same(built, tmp_path):
    network, ids = built("Bag"), np.array([[3, 4, 5], [6, 7, 8]])
    assert type(network).__name__ == "Bag" and network.config.num_labels == 2
    write_paddle_graph(network, {"input_ids": ids}, ["logits"], tmp_path / "graph")
    graph = paddle.jit.load(str(tmp_path / "graph"))
    expected = network(paddle.to_tensor(ids)).numpy()
    np.testing.assert_allclose(graph(paddle.to_tensor(ids)).numpy(), expected, rtol=1e-6)


def test_an_unused_input_is_told(built, tmp_path):
    ids = np.array([[3, 4, 5]])
    with pytest.raises(RunFailed, match="cannot translate Unused") as caught:
        write_paddle_graph(built("Unused"), {"input_ids": ids, "token_type_ids": ids}, ["logits"], tmp_path / "graph")
    assert "takes an input that it does not use" in caught.value.problems[0].hint
