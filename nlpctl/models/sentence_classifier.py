"""A sentence encoder with a linear layer over its vectors: a classifier like any other once it is trained."""

from __future__ import annotations

import functools
from typing import Any, Literal

import paddle
from paddle import nn

from nlpctl.errors import UserError
from nlpctl.models.networks.common import Encoder
from nlpctl.models.two_tower import two_tower


@functools.cache
def sentence_classifier(encoder_class: type, pooling: Literal["cls", "mean"], layers: int) -> type:
    """The network that classifies with `encoder_class`, a bare encoder such as BertModel.

    The vector of a text is that of `two_tower`, of unit length, but over the mean of the last `layers` layers;
    `classifier` is a linear layer over it. UserError, also when it is built: there are not so many layers.
    """
    if layers > 1 and issubclass(encoder_class, Encoder):
        raise _too_many(layers, "this network has no layers of tokens")
    parent = two_tower(encoder_class, pooling, None)

    class SentenceClassifier(parent):
        def __init__(self, config: Any):
            super().__init__(config)
            if layers > 1 and layers > config.num_hidden_layers:
                raise _too_many(layers, f"the encoder has {config.num_hidden_layers} layers")
            self.layers = layers
            self.classifier = nn.Linear(self.width, config.num_labels)

        def forward(
            self,
            input_ids: paddle.Tensor,
            token_type_ids: paddle.Tensor | None = None,
            pair_ids: paddle.Tensor | None = None,
            pair_type_ids: paddle.Tensor | None = None,
        ) -> Any:
            """Logits [rows, labels] of the texts. Given second texts, instead the unit vectors of both, float32."""
            if pair_ids is not None:
                return super().forward(input_ids, token_type_ids, pair_ids, pair_type_ids)
            vectors = self.vectors(input_ids, token_type_ids)
            dtype = self.classifier.weight.dtype
            return self.classifier(vectors if vectors.dtype == dtype else vectors.astype(dtype))

    name = encoder_class.__name__.removesuffix("Model") + "SentenceClassifier"
    SentenceClassifier.__name__ = SentenceClassifier.__qualname__ = name
    return SentenceClassifier


def _too_many(layers: int, why: str) -> UserError:
    message = f"cannot take the mean of the last {layers} layers: {why}"
    return UserError(message, where="few_shot.layers", hint="set a smaller number")
