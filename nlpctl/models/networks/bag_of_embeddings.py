"""Bag of embeddings: the mean of a text's embeddings and one hidden layer. Ignores word order; very fast."""

from __future__ import annotations

import paddle
import paddle.nn as nn

from nlpctl.models.networks.common import Encoder, NetworkConfig, SequenceHead, mean_over_units


class BagOfEmbeddingsConfig(NetworkConfig):
    """`hidden_size`: width of the layer over the mean."""

    model_type = "bag_of_embeddings"


class BagOfEmbeddingsModel(Encoder):
    """Sequence: the embeddings. Pooled: the hidden layer over their mean."""

    config_class = BagOfEmbeddingsConfig
    base_model_prefix = "bag_of_embeddings"

    def __init__(self, config: BagOfEmbeddingsConfig):
        super().__init__(config)
        self.hidden = nn.Linear(config.embedding_size, config.hidden_size)
        self.sequence_size = config.embedding_size
        self.pooled_size = config.hidden_size

    def forward(
        self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        embedded, mask = self.embed(input_ids)
        return embedded, paddle.tanh(self.hidden(mean_over_units(embedded, mask)))


class BagOfEmbeddingsForSequenceClassification(SequenceHead):
    config_class = BagOfEmbeddingsConfig
    base_model_prefix = "bag_of_embeddings"
    encoder_class = BagOfEmbeddingsModel
