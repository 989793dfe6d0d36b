"""BiGRU tagger of lexical analysis, optionally with a CRF (models/crf.py)."""

from __future__ import annotations

from typing import Any, Literal

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nlpctl.models.networks.common import Encoder, NetworkConfig, TokenHead, lengths, mean_over_units

# A bidirectional GRU whose reset gate acts before the matrix product, called as paddle.nn.GRU is.
#
# paddle.nn.GRU (and cuDNN) compute the candidate state as tanh(W x + r * (U h + b)). Published first, and computed
# by Paddle 1.x's dynamic_gru, was tanh(W x + b + U (r * h)); no choice of weights makes one the other.

class ResetBeforeGRU(nn.Layer):
    """Layers of `_BidirectionalLayer`, with dropout between them."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, direction: str, dropout: float):
        super().__init__()
        if direction != "bidirect":
            raise ValueError(f"direction must be bidirect, not {direction!r}")
        sizes = [input_size] + [2 * hidden_size] * (num_layers - 1)
        self.layers = nn.LayerList([_BidirectionalLayer(size, hidden_size) for size in sizes])
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, inputs: paddle.Tensor, sequence_length: paddle.Tensor
    ) -> tuple[paddle.Tensor, list[paddle.Tensor]]:
        """inputs [batch, length, input_size], sequence_length int64 [batch].

        Returns the outputs [batch, length, 2 * hidden_size], forward before reverse and 0 behind a row's end,
        and the last states of each layer [2, batch, hidden_size].
        """
        steps = paddle.arange(inputs.shape[1], dtype="int64").unsqueeze(1)
        mask = (steps < sequence_length.unsqueeze(0)).astype(inputs.dtype)  # [length, batch]
        outputs, states = inputs, []
        for index, layer in enumerate(self.layers):
            outputs, state = layer(self.dropout(outputs) if index else outputs, mask)
            states.append(state)
        return outputs, states


class _BidirectionalLayer(nn.Layer):
    """One layer. Parameters by direction (0 forward, 1 reverse), h = hidden_size:

    input_weight [2, input, 3h] and bias [2, 1, 3h], columns update, reset, candidate;
    gate_weight [2, h, 2h], columns update, reset; candidate_weight [2, h, h].
    The new state is (1 - update) * old + update * candidate.
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.hidden_size = hidden_size
        uniform = paddle.ParamAttr(initializer=nn.initializer.Uniform(-(hidden_size**-0.5), hidden_size**-0.5))
        self.input_weight = self.create_parameter([2, input_size, 3 * hidden_size], attr=uniform)
        self.bias = self.create_parameter([2, 1, 3 * hidden_size], is_bias=True)
        self.gate_weight = self.create_parameter([2, hidden_size, 2 * hidden_size], attr=uniform)
        self.candidate_weight = self.create_parameter([2, hidden_size, hidden_size], attr=uniform)

    def forward(self, inputs: paddle.Tensor, mask: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """inputs [batch, length, input], mask [length, batch]: outputs [batch, length, 2h], state [2, batch, h]."""
        size = self.hidden_size
        batch, length = inputs.shape[0], inputs.shape[1]
        # Both directions run in one loop. The reverse one begins in the padding, where the mask holds it at 0.
        both_ways = paddle.stack([inputs.transpose([1, 0, 2]), inputs.transpose([1, 0, 2]).flip(0)])
        flat = both_ways.reshape([2, length * batch, inputs.shape[2]])
        projected = (paddle.bmm(flat, self.input_weight) + self.bias).reshape([2, length, batch, 3 * size])
        projected = projected.transpose([1, 0, 2, 3])
        masks = paddle.stack([mask, mask.flip(0)], axis=1).unsqueeze(-1)  # [length, 2, batch, 1]
        for_gates, for_candidates = _steps(projected[..., : 2 * size]), _steps(projected[..., 2 * size :])
        inside = _steps(masks)
        state = paddle.zeros([2, batch, size], dtype=inputs.dtype)
        states = []
        for step in range(length):
            gates = F.sigmoid(for_gates[step] + paddle.bmm(state, self.gate_weight))
            update, reset = gates.split(2, axis=-1)
            candidate = paddle.tanh(for_candidates[step] + paddle.bmm(reset * state, self.candidate_weight))
            # Equal to (1 - update) * old + update * candidate inside a row; behind its end the state stays.
            state = state + inside[step] * update * (candidate - state)
            states.append(state)
        outputs = (paddle.stack(states) * masks).transpose([1, 2, 0, 3])  # [2, batch, length, h]
        return paddle.concat([outputs[0], outputs[1].flip(1)], axis=-1), state


def _steps(tensor: paddle.Tensor) -> paddle.Tensor | list[paddle.Tensor]:
    """`tensor` [length, ...] to be read step by step.

    Cut at once while training: the gradient of tensor[step] is as large as the tensor, so that a row of n steps would
    cost n times n. In an exported graph the number of steps is not known, and there is no gradient.
    """
    return tensor.unbind(0) if paddle.in_dynamic_mode() else tensor




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
