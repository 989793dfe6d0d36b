"""BiGRU tagger of lexical analysis, optionally with a CRF (models/crf.py)."""

from __future__ import annotations

from typing import Any, Literal

import paddle
import paddle.nn as nn

from nlpctl.models.networks.common import Encoder, NetworkConfig, TokenHead, lengths, mean_over_units
from nlpctl.models.networks.reset_before_gru import ResetBeforeGRU


class BiGRUConfig(NetworkConfig):
    """`hidden_size`: width of each direction.

    `reset_gate`: where the reset gate acts on the previous state. "after" the matrix product is what
    paddle.nn.GRU and cuDNN compute, and several times faster; "before" it is the GRU as first published, and
    what Paddle 1.x's dynamic_gru computed, so the weights of old lexical analysers need it.
    """

    model_type = "bigru"

    def __init__(
        self, num_hidden_layers: int = 2, reset_gate: Literal["after", "before"] = "after", **kwargs: Any
    ):
        super().__init__(**kwargs)
        if reset_gate not in ("after", "before"):
            raise ValueError(f"reset_gate must be after or before, not {reset_gate!r}")
        self.num_hidden_layers = num_hidden_layers
        self.reset_gate = reset_gate


class BiGRUModel(Encoder):
    """Sequence: both directions side by side. Pooled: their mean over the text."""

    config_class = BiGRUConfig
    base_model_prefix = "bigru"

    def __init__(self, config: BiGRUConfig):
        super().__init__(config)
        kind = nn.GRU if config.reset_gate == "after" else ResetBeforeGRU
        self.gru = kind(
            config.embedding_size,
            config.hidden_size,
            num_layers=config.num_hidden_layers,
            direction="bidirect",
            dropout=config.dropout if config.num_hidden_layers > 1 else 0.0,
        )
        self.sequence_size = self.pooled_size = 2 * config.hidden_size

    def forward(
        self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        embedded, mask = self.embed(input_ids)
        sequence, _ = self.gru(embedded, sequence_length=lengths(mask))
        return sequence, mean_over_units(sequence, mask)


class BiGRUForTokenClassification(TokenHead):
    config_class = BiGRUConfig
    base_model_prefix = "bigru"
    encoder_class = BiGRUModel
