"""A linear-chain conditional random field on a tagger: network class, loss and Viterbi decoding."""

from __future__ import annotations

from functools import cache
from typing import Any

import paddle
from paddlenlp.layers import LinearChainCrf

from nlpctl.data.batches.tagged_features import IGNORED
from nlpctl.upstream.linear_chain_crf import crf_losses

CRF_SUFFIX = "WithCrf"  # suffix of class names of networks with a CRF


@cache
def with_crf(network_class: Any) -> type:
    """A subclass of a ...ForTokenClassification that returns (emissions [b, l, n], transitions [n + 2, n + 2]).

    Transitions are a parameter of `network.crf`; upstream/linear_chain_crf.py says how they are read.
    """

    if getattr(network_class, "of_members", False):  # an ensemble, whose members have one each
        return network_class

    class WithCrf(network_class):
        # A separate method, not super().forward, which Paddle loses in the translation to a static graph.
        emissions = network_class.forward

        def __init__(self, config: Any):
            super().__init__(config)
            # crf_lr scales the learning rate of the transitions; nlpctl does that by optimizer groups instead.
            self.crf = LinearChainCrf(config.num_labels, crf_lr=1.0)

        def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> Any:
            types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            # Not the parameter itself: data parallel training treats an output without an operation as unused.
            return self.emissions(input_ids, **types), paddle.assign(self.crf.transitions)

    WithCrf.__name__ = WithCrf.__qualname__ = f"{network_class.__name__}{CRF_SUFFIX}"
    return WithCrf


def crf_loss(emissions: paddle.Tensor, transitions: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """[rows] mean negative log-likelihood per labelled token; labels int64 [rows, length], IGNORED elsewhere.

    The chain runs over the labelled tokens only, from each to the next, whatever stands between them.
    """
    counted = labels != IGNORED
    lengths = counted.astype("int64").sum(1)
    width = int(lengths.max())
    place = paddle.arange(labels.shape[1]).unsqueeze(0)
    # Labelled tokens first, in their order.
    # Unlabelled positions get keys beyond the length, so the labelled ones come first, in their order.
    order = paddle.argsort(paddle.where(counted, place, place + labels.shape[1]), axis=1)[:, :width]
    # float32 even under autocast: sums over a sentence of log-sum-exp terms overflow or lose digits in half precision.
    chain = paddle.take_along_axis(emissions.astype("float32"), order.unsqueeze(2), axis=1)
    losses = crf_losses(chain, transitions.astype("float32"), paddle.take_along_axis(labels, order, axis=1), lengths)
    # Per token, so that long sentences do not dominate and the loss is comparable with cross-entropy.
    return losses / lengths.astype("float32")
