"""Computes the last layer of a transformer for the first token only, if the head reads no other token.

A classifier reads the state of the first token ([CLS]). The last layer's states of other tokens are unused, so only
its keys and values are needed for them: two of the layer's twelve hidden x hidden products per token. Outputs are the
same up to the rounding of other matrix shapes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import paddle
from paddle import nn

from nlpctl.errors import UserError
from nlpctl.models.own_network import is_own
from nlpctl.models.pruned import encoder_layers

# Families whose ...ForSequenceClassification, on a pooler or not, reads `hidden[:, 0]`.
_FAMILIES = ("bert", "ernie", "roberta", "electra")


@contextlib.contextmanager
def first_token_only(network: Any) -> Iterator[bool]:
    """Inside, `network` computes its last layer for the first token alone; for evaluation and for graphs.

    Yields whether it does: networks that read other tokens too, or are not known to, stay as they are.
    """
    if not reads_first_token(network):
        yield False
        return
    encoder = next(layer for layer in network.sublayers() if isinstance(layer, nn.TransformerEncoder))
    last = len(encoder.layers) - 1
    whole = encoder.layers[last]
    encoder.layers[last] = FirstTokenLayer(whole)
    try:
        yield True
    finally:
        encoder.layers[last] = whole


def reads_first_token(network: Any) -> bool:
    """Whether the outputs of `network` depend on its last layer by the state of the first token alone."""
    try:
        last = encoder_layers(network)[-1]
    except UserError:
        return False
    # FirstTokenLayer computes post-norm layers only, which all families above are.
    if is_own(network) or last.normalize_before or network.base_model_prefix not in _FAMILIES:
        return False
    if type(network).__name__.endswith("TwoTower"):
        return network.pooling == "cls"
    return type(network).__name__.endswith("ForSequenceClassification")


class FirstTokenLayer(nn.Layer):
    """A TransformerEncoderLayer, in evaluation mode, that gives the state of the first token, [batch, 1, width]."""

    def __init__(self, layer: nn.TransformerEncoderLayer):
        super().__init__()
        self.whole = layer

    def forward(self, src, src_mask=None, cache=None, output_attentions=False):
        layer = self.whole
        # Not src[:, 0:1]: oneDNN's int8 pass would round a slice, and what is added to it here is not rounded.
        first = paddle.index_select(src, paddle.zeros([1], "int64"), axis=1)
        state = layer.norm1(first + layer.self_attn(first, src, src, src_mask))
        return layer.norm2(state + layer.linear2(layer.activation(layer.linear1(state))))
