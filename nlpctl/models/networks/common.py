"""The common base of nlpctl's own networks: config, embedding, and heads that ignore padding.

An encoder is called with int64 input_ids [batch, length] and returns (sequence [batch, length, sequence_size],
pooled [batch, pooled_size]). Padding is what equals pad_token_id, on the right; it never reaches a row's
result, so an answer does not depend on the batch it was computed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddlenlp.transformers import PretrainedConfig, PretrainedModel

from nlpctl.errors import UserError
from nlpctl.models.huggingface_layout import ACTIVATIONS, OTHER_MODEL, TANH_GELU

INITIAL_RANGE = 0.1  # of embeddings: uniform in +-0.1, as Paddle's lexical analyser was initialised


def activation(key: str, name: str) -> Callable[[paddle.Tensor], paddle.Tensor]:
    """The function that Transformers calls `name`. UserError, blaming `key` of config.json: there is none."""
    if name in TANH_GELU:
        return _tanh_gelu
    if name not in ACTIVATIONS:
        known = ", ".join((*ACTIVATIONS, *TANH_GELU))
        raise UserError(f"{key} is {name!r}: networks here compute {known} only", "config.json", OTHER_MODEL)
    return vars(F)[name]  # F.gelu is the exact one, as Transformers' "gelu"


def _tanh_gelu(x: paddle.Tensor) -> paddle.Tensor:
    if paddle.in_dynamic_mode():
        return F.gelu(x, approximate=True)
    # Spelled out in graphs: paddle2onnx takes F.gelu for the exact one, which differs by up to 5e-4.
    return 0.5 * x * (1.0 + paddle.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class NetworkConfig(PretrainedConfig):
    """Sizes of a network. `dropout` acts on embeddings, between layers and before the head."""

    attribute_map: ClassVar[dict[str, str]] = {"num_classes": "num_labels"}

    def __init__(
        self,
        vocab_size: int = 8000,
        embedding_size: int = 128,
        hidden_size: int = 128,
        dropout: float = 0.1,
        pad_token_id: int = 0,
        **kwargs: Any,
    ):
        super().__init__(pad_token_id=pad_token_id, **kwargs)
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.hidden_size = hidden_size
        self.dropout = dropout


class NetworkModel(PretrainedModel):
    """Base of all classes here. Layers initialise themselves; there is nothing to download."""

    model_config_file = "config.json"
    resource_files_names: ClassVar[dict[str, str]] = {"model_state": "model_state.pdparams"}
    pretrained_init_configuration: ClassVar[dict[str, Any]] = {}
    pretrained_resource_files_map: ClassVar[dict[str, Any]] = {}


class Encoder(NetworkModel):
    """Embedding with dropout; a subclass adds what reads it, and sets `sequence_size` and `pooled_size`."""

    sequence_size: int
    pooled_size: int

    def __init__(self, config: NetworkConfig):
        super().__init__(config)
        initial = nn.initializer.Uniform(-INITIAL_RANGE, INITIAL_RANGE)
        # padding_idx keeps the padding's row at zero, in training too.
        self.embeddings = nn.Embedding(
            config.vocab_size,
            config.embedding_size,
            padding_idx=config.pad_token_id,
            weight_attr=paddle.ParamAttr(initializer=initial),
        )
        self.dropout = nn.Dropout(config.dropout)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings = value

    def embed(self, input_ids: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Embeddings [batch, length, size], and the mask [batch, length, 1]: 1 for units, 0 for padding."""
        mask = (input_ids != self.config.pad_token_id).unsqueeze(-1).astype("float32")
        # padding_idx alone is not enough: weights loaded from a file may have another row for padding.
        return self.dropout(self.embeddings(input_ids)) * mask, mask


def lengths(mask: paddle.Tensor) -> paddle.Tensor:
    """Units per row, int64 [batch]; 1 for a row without any, since recurrent layers want a step."""
    return paddle.clip(mask.squeeze(-1).sum(axis=1), min=1.0).astype("int64")


def mean_over_units(sequence: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
    """[batch, length, size] to [batch, size]."""
    return (sequence * mask).sum(axis=1) / paddle.clip(mask.sum(axis=1), min=1.0)


def max_over_units(sequence: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
    """[batch, length, size] to [batch, size]; a row without units gives a large negative number, not -inf."""
    # 1e4 fits into float16, unlike the usual 1e9.
    return (sequence + (mask - 1.0) * 1e4).max(axis=1)


class SequenceHead(NetworkModel):
    """Logits [batch, labels] from the pooled output. A subclass names its `encoder_class`."""

    encoder_class: ClassVar[type[Encoder]]

    def __init__(self, config: NetworkConfig):
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.encoder_class(config))
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(self.base_model.pooled_size, config.num_labels)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        _, pooled = self.base_model(input_ids)
        return self.classifier(self.dropout(pooled))


class TokenHead(NetworkModel):
    """Logits [batch, length, labels] from the sequence output; those of padding mean nothing."""

    encoder_class: ClassVar[type[Encoder]]

    def __init__(self, config: NetworkConfig):
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.encoder_class(config))
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(self.base_model.sequence_size, config.num_labels)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        sequence, _ = self.base_model(input_ids)
        return self.classifier(self.dropout(sequence))
