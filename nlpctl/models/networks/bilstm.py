"""BiLSTM classifier: a bidirectional LSTM with max pooling over time."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn as nn

from nlpctl.models.networks.common import Encoder, NetworkConfig, SequenceHead, lengths, max_over_units


class BiLSTMConfig(NetworkConfig):
    """`hidden_size`: width of each direction."""

    model_type = "bilstm"

    def __init__(self, num_hidden_layers: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_hidden_layers = num_hidden_layers


class BiLSTMModel(Encoder):
    """Sequence: both directions side by side. Pooled: their maximum over the text."""

    config_class = BiLSTMConfig
    base_model_prefix = "bilstm"

    def __init__(self, config: BiLSTMConfig):
        super().__init__(config)
        self.lstm = nn.LSTM(
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
        sequence, _ = self.lstm(embedded, sequence_length=lengths(mask))
        return sequence, max_over_units(sequence, mask)


class BiLSTMForSequenceClassification(SequenceHead):
    config_class = BiLSTMConfig
    base_model_prefix = "bilstm"
    encoder_class = BiLSTMModel
