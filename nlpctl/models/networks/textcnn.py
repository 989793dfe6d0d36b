"""TextCNN (Kim, 2014): convolutions over windows of a few units with max pooling over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nlpctl.models.networks.common import Encoder, NetworkConfig, SequenceHead, max_over_units


class TextCNNConfig(NetworkConfig):
    """`hidden_size`: filters of each kernel size. `kernel_sizes`: widths of the windows, in units."""

    model_type = "textcnn"

    def __init__(self, kernel_sizes: Sequence[int] = (2, 3, 4), **kwargs: Any):
        super().__init__(**kwargs)
        self.kernel_sizes = list(kernel_sizes)


class TextCNNModel(Encoder):
    """Sequence: the responses of all filters around each unit. Pooled: their maximum over the text.

    The text is surrounded by zeros, so a text shorter than a window has a response as well.
    """

    config_class = TextCNNConfig
    base_model_prefix = "textcnn"

    def __init__(self, config: TextCNNConfig):
        super().__init__(config)
        self.convolutions = nn.LayerList(
            [nn.Conv1D(config.embedding_size, config.hidden_size, size, padding=size // 2)
             for size in config.kernel_sizes]
        )  # fmt: skip
        self.sequence_size = self.pooled_size = config.hidden_size * len(config.kernel_sizes)

    def forward(
        self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        embedded, mask = self.embed(input_ids)
        channels = embedded.transpose([0, 2, 1])
        # Not input_ids.shape[1], which is -1 while a static graph is built.
        length = paddle.shape(input_ids)[1]
        # An even window gives one response more than there are units: the last is dropped.
        responses = [F.relu(convolution(channels)[:, :, :length]) for convolution in self.convolutions]
        sequence = paddle.concat(responses, axis=1).transpose([0, 2, 1])
        return sequence, max_over_units(sequence, mask)


class TextCNNForSequenceClassification(SequenceHead):
    config_class = TextCNNConfig
    base_model_prefix = "textcnn"
    encoder_class = TextCNNModel
