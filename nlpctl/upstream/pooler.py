"""An encoder without its pooler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import paddle
from paddle import nn


def drop_pooler(encoder: Any) -> None:
    """Take the pooler's parameters out of `encoder`, for networks that go by the states of the tokens.

    PaddleNLP 2.8.1, transformers/ernie/modeling.py:333 and bert/modeling.py:427: the attention mask is made
    in the dtype of `self.pooler.dense.weight`, so an encoder without a pooler (ErnieModel and BertModel always
    make one) fails with an AttributeError. What stands in for the pooler therefore tells a dtype.
    Test: tests/upstream/test_pooler.py.
    """
    if "pooler" in encoder._sub_layers:
        encoder.pooler = FirstToken(encoder.get_input_embeddings().weight)


class FirstToken(nn.Layer):
    """The state of the first token, unchanged. Has no parameters of its own."""

    def __init__(self, weight: paddle.Tensor):
        super().__init__()
        self.dense = SimpleNamespace(weight=weight)

    def forward(self, hidden: paddle.Tensor) -> paddle.Tensor:
        return hidden[:, 0]
