"""Paddle's slow functions of a training on a CPU, and what takes their places for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.nn import ClipGradByGlobalNorm, MultiHeadAttention
from paddle.nn.layer import norm

# Where Paddle and PaddleNLP look each of them up. LayerNorm imports its function by name.
_PLACES: tuple[tuple[Any, str], ...] = (
    (F, "linear"),
    (F, "dropout"),
    (F, "layer_norm"),
    (norm, "layer_norm"),
    (F, "gelu"),
    (F, "softmax"),
    (MultiHeadAttention, "forward"),
    (ClipGradByGlobalNorm, "_dygraph_clip"),
)
_GELU = F.gelu
_PADDLES = [(owner, name, getattr(owner, name)) for owner, name in _PLACES]


@contextlib.contextmanager
def replaced_functions(faster: Mapping[str, Callable[..., Any]], network: paddle.nn.Layer) -> Iterator[None]:
    """In the body Paddle's functions are those of `faster`: linear, dropout, layer_norm, gelu, softmax, forward (of
    MultiHeadAttention) and _dygraph_clip (of ClipGradByGlobalNorm). So are the activations that layers of `network`
    hold. What somebody else has put in a place stays there.

    paddlepaddle 2.6.2 and 3.1.1 compute these on one thread, several times slower than need be (docs/upstream.md has
    the figures), and networks call them by their names, so nothing but a replacement reaches every network.
    Test: tests/upstream/test_slow_functions.py.
    """
    places = [(owner, name, paddles, faster[name]) for owner, name, paddles in _PADDLES]
    for layer in network.sublayers(include_self=True):
        places += [(layer, name, _GELU, faster["gelu"]) for name, value in vars(layer).items() if value is _GELU]
    replaced = [place for place in places if getattr(place[0], place[1]) is place[2]]
    try:
        for owner, name, _, fast in replaced:
            setattr(owner, name, fast)
        yield
    finally:
        for owner, name, paddles, _ in replaced:
            setattr(owner, name, paddles)
