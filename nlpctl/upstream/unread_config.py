"""Keys of the config that networks of PaddleNLP do not read.

PaddleNLP 2.8.1. The norms of ERNIE have the epsilon 1e-12 (transformers/ernie/modeling.py:179), and so has that of
ELECTRA's word head (electra/modeling.py:308), whatever layer_norm_eps says; ELECTRA's classifier ignores
classifier_dropout (:686). Both heads of ELECTRA have the activation of its encoder (:132 and :688), and GELU in
Transformers. Test: tests/upstream/test_unread_config.py.
"""

from __future__ import annotations

from typing import Any

from paddle import nn

_CLASSIFIER, _WORDS = "ElectraClassificationHead", "ElectraGeneratorPredictions"


def heed_config(network: Any, config: Any, as_transformers: bool) -> None:
    """Give the layers of a new network what its config says, `as_transformers` also where PaddleNLP's never do."""
    for layer in network.sublayers():
        kind = type(layer).__name__
        if kind == _CLASSIFIER and config.classifier_dropout is not None:
            layer.dropout.p = config.classifier_dropout
        if as_transformers and kind in (_CLASSIFIER, _WORDS):
            layer.act = nn.GELU()
        if as_transformers and isinstance(layer, nn.LayerNorm):
            layer._epsilon = config.layer_norm_eps
