"""The network of semantic indexing: one encoder that maps queries and documents to unit vectors."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from nlpctl.config.sentence_folder import read_sentence_folder
from nlpctl.errors import UserError
from nlpctl.models.networks.common import Encoder, mean_over_units
from nlpctl.models.networks.encoders import EncoderModel
from nlpctl.models.weights import read_weights_file
from nlpctl.upstream.pooler import drop_pooler

Pooling = Literal["cls", "mean", "max", "weightedmean"]
_NEVER_LARGEST = 1e9  # below all states that there are


@functools.cache
def two_tower(
    encoder_class: Any,
    pooling: Pooling,
    embedding_size: int | None,
    activation: Literal["none", "tanh", "relu", "gelu"] = "none",
    normalize: bool = True,
) -> type:
    """The network that makes vectors with `encoder_class`, a bare encoder such as BertModel.

    `pooling` takes the first token's state, or over all tokens but padding the mean, the largest values, or the mean
    with weights 1, 2, 3, ... A linear layer then projects it to `embedding_size`, unless that is None, and `activation`
    follows. These are the modules Pooling, Dense and Normalize of sentence-transformers. The encoder's own pooler is
    left out: nothing would train it.
    """
    # BertPretrainedModel of BertModel
    parent: Any = next(each for each in encoder_class.__mro__[1:] if not issubclass(each, Encoder | EncoderModel))

    class TwoTower(parent):
        config_class = encoder_class.config_class
        base_model_prefix = encoder_class.base_model_prefix

        def __init__(self, config: Any):
            super().__init__(config)
            self.pooling = pooling  # a static graph does not see what lies around a class
            self.activation = activation
            self.normalize = normalize
            self.layers = 1
            encoder = encoder_class(config)
            drop_pooler(encoder)
            setattr(self, self.base_model_prefix, encoder)
            self.width = encoder.sequence_size if isinstance(encoder, Encoder) else config.hidden_size
            self.projection = None if embedding_size is None else nn.Linear(self.width, embedding_size)

        def forward(
            self,
            input_ids: paddle.Tensor,
            token_type_ids: paddle.Tensor | None = None,
            pair_ids: paddle.Tensor | None = None,
            pair_type_ids: paddle.Tensor | None = None,
            negative_ids: paddle.Tensor | None = None,
            negative_type_ids: paddle.Tensor | None = None,
        ) -> tuple[paddle.Tensor, ...]:
            """Vectors float32 [rows, dim] of the texts, and of second texts and hard negatives where given."""
            given = ((input_ids, token_type_ids), (pair_ids, pair_type_ids), (negative_ids, negative_type_ids))
            return tuple(self.vectors(ids, types) for ids, types in given if ids is not None)

        def vectors(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None) -> paddle.Tensor:
            types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            hidden = self.states(input_ids, types)
            pooled = hidden[:, 0] if self.pooling == "cls" else self.over_tokens(hidden.astype("float32"), input_ids)
            if self.projection is not None:
                pooled = self.projection(pooled)
                pooled = pooled if self.activation == "none" else getattr(F, self.activation)(pooled)
            # float32 before the norm: under autocast a norm of 1 would be off by 1e-3, and scores are compared across
            # runs.
            pooled = pooled.astype("float32")
            return F.normalize(pooled, axis=-1) if self.normalize else pooled

        def states(self, input_ids: paddle.Tensor, types: dict[str, paddle.Tensor]) -> paddle.Tensor:
            """The state of every token, the mean of its last `layers` layers: [rows, length, width]."""
            if self.layers > 1:
                outputs = self.base_model(input_ids, output_hidden_states=True, **types)
                layers = outputs[1] if isinstance(outputs[1], tuple | list) else outputs[2]  # [1] may be the pooler's
                return sum(layers[-self.layers :]) / self.layers
            outputs = self.base_model(input_ids, **types)
            return outputs[0] if isinstance(outputs, tuple | list) else outputs

        def over_tokens(self, hidden: paddle.Tensor, input_ids: paddle.Tensor) -> paddle.Tensor:
            mask = (input_ids != self.config.pad_token_id).astype("float32").unsqueeze(-1)
            if self.pooling == "max":
                return (hidden * mask + (mask - 1) * _NEVER_LARGEST).max(1)
            if self.pooling == "weightedmean":
                mask = mask * mask.cumsum(1)  # padding is on the right, so this counts positions from 1
            return mean_over_units(hidden, mask)

    TwoTower.__name__ = TwoTower.__qualname__ = encoder_class.__name__.removesuffix("Model") + "TwoTower"
    return TwoTower


def makes_vectors(network: Any) -> bool:
    """Whether it is a `two_tower`, or made of one."""
    return hasattr(network, "projection")


def vector_layers(folder: Path, network: Any) -> dict[str, np.ndarray]:
    """What a folder of sentence-transformers holds for a `two_tower` beside the encoder: the arrays of `projection`.

    Empty for another folder, or where the recipe asks for another width. UserError: the weights are not those of the
    folder's config.
    """
    made = read_sentence_folder(folder)
    if made is None:
        return {}
    if made.dense is None or network.projection is None:
        return {}
    dense = made.dense
    if list(network.projection.weight.shape) != [dense.inputs, dense.outputs]:
        return {}
    arrays = read_weights_file(dense.weights).arrays
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (dense.outputs, dense.inputs)}
    shapes |= {"linear.bias": (dense.outputs,)} if dense.bias else {}
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            found = f"is {list(arrays[name].shape)}" if name in arrays else "is missing"
            hint = "the config.json beside it does not belong to these weights: copy the whole folder again"
            raise UserError(f"{name} {found}, and must be {list(shape)}", str(dense.weights), hint)
    bias = arrays["linear.bias"] if dense.bias else np.zeros(dense.outputs, np.float32)
    return {"projection.weight": arrays["linear.weight"].T, "projection.bias": bias}


# -- a sentence encoder with a linear layer over its vectors: a classifier like any other once it is trained ----------


@functools.cache
def sentence_classifier(encoder_class: type, pooling: Pooling, layers: int) -> type:
    """The network that classifies with `encoder_class`, a bare encoder such as BertModel.

    The vector of a text is that of `two_tower`, of unit length, but over the mean of the last `layers` layers;
    `classifier` is a linear layer over it. UserError, also when it is built: there are not so many layers.
    """
    if layers > 1 and issubclass(encoder_class, Encoder):
        raise _too_many(layers, "this network has no layers of tokens")
    parent: Any = two_tower(encoder_class, pooling, None)

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
