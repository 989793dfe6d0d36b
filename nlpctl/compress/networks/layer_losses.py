"""Layer losses of distillation: hidden states and attention (TinyBERT), relations (MiniLM).

Networks return no attention in training mode, so hooks collect everything: inputs and outputs of layers, and the
projected queries, keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nlpctl.config.schema import DistillationSection
from nlpctl.errors import UserError
from nlpctl.models.pruned import encoder_layers

PROJECTION = "distillation_projection"  # the sublayer that a student has only during training
QUERIES, KEYS, VALUES = PROJECTIONS = ("q_proj", "k_proj", "v_proj")  # of attention
_HIDDEN_BY_MASK = -1e4


def spread_layers(teacher: int, student: int) -> tuple[int, ...]:
    """The teacher's layers that a student's layers learn from: the last of each of `student` equal groups of
    `teacher`."""
    # The last layer of both always match, since the head reads it.
    return tuple((i + 1) * teacher // student - 1 for i in range(student))


class Taps:
    """Activations of chosen layers of a network, from its last forward pass.

    `hidden`: [batch, length, width], before the first layer and after each chosen one.
    """

    def __init__(self, network: nn.Layer, chosen: Sequence[int]):
        layers = encoder_layers(network)
        self.heads = layers[0].self_attn.num_heads
        self.hidden: dict[int, paddle.Tensor] = {}
        self._chosen = [layers[index] for index in chosen]
        self._inputs: dict[int, paddle.Tensor] = {}
        self._projected: dict[tuple[str, int], paddle.Tensor] = {}
        layers[0].register_forward_pre_hook(lambda _, inputs: self.hidden.__setitem__(0, inputs[0]))
        for place, layer in enumerate(self._chosen):
            _tap(layer, self.hidden, place + 1)
            layer.register_forward_pre_hook(lambda _, inputs, place=place: self._inputs.__setitem__(place, inputs[0]))
            for name in PROJECTIONS:
                _tap(getattr(layer.self_attn, name), self._projected, (name, place))

    def projected(self, name: str, place: int) -> paddle.Tensor:
        """What one of PROJECTIONS gave in a chosen layer: [batch, length, width], heads side by side."""
        projected, states = self._projected[name, place], self._inputs[place]
        if not projected.stop_gradient or states.stop_gradient:
            return projected
        # The layer is recomputed in the backward pass (training.recompute), so what is inside it has no gradient yet.
        layer = self._chosen[place]
        return getattr(layer.self_attn, name)(layer.norm1(states) if layer.normalize_before else states)


def _tap(layer: nn.Layer, into: dict[Any, paddle.Tensor], place: Any) -> None:
    def take(_: nn.Layer, inputs: Any, output: Any) -> None:
        into[place] = output[0] if isinstance(output, tuple) else output

    layer.register_forward_post_hook(take)


class LayerLosses:
    """The losses between the layers of two networks. The teacher runs here, on the student's input.

    The hidden states of a student of another width are projected by a trained matrix, a sublayer of its network called
    PROJECTION; training.drop_parameters removes it from the weights afterwards.
    """

    def __init__(self, teacher: nn.Layer, student: nn.Layer, section: DistillationSection, chosen: Sequence[int]):
        """`chosen`: the teacher's layer for each of the student's. UserError if relation_heads does not fit."""
        self._section = section
        self._teacher = teacher
        self._pad_id = teacher.config.pad_token_id
        self._layers = len(chosen)
        self._of_teacher = Taps(teacher, chosen)
        self._of_student = Taps(student, range(len(chosen)))
        first = [encoder_layers(network)[0] for network in (teacher, student)]
        self._relation_heads = section.relation_heads or self._of_teacher.heads
        widths = [layer.self_attn.q_proj.weight.shape[1] for layer in first]
        if section.relations and any(width % self._relation_heads for width in widths):
            message = f"{self._relation_heads} relation heads do not divide the widths {widths[0]} and {widths[1]}"
            raise UserError(message, "distillation.relation_heads", "give a number that divides both")
        self._projection: nn.Layer | None = None
        widths = [layer.linear1.weight.shape[0] for layer in first]
        if section.hidden and widths[0] != widths[1]:
            # A fixed name, because optimizer states of a resumed training are keyed by it.
            self._projection = nn.Linear(widths[1], widths[0], paddle.ParamAttr(name=PROJECTION), bias_attr=False)
            student.add_sublayer(PROJECTION, self._projection)

    def loss(self, inputs: Mapping[str, paddle.Tensor]) -> paddle.Tensor:
        """The weighted sum of the losses, a scalar, for the student's last forward pass."""
        with paddle.no_grad():
            self._teacher(**inputs)
        mask = (inputs["input_ids"] != self._pad_id).astype("float32")
        section, total = self._section, paddle.zeros([])
        if section.hidden:
            total = total + section.hidden * self._hidden_loss(mask)
        if section.attention:
            total = total + section.attention * self._attention_loss(mask)
        if section.relations:
            total = total + section.relations * self._relation_loss(mask)
        return total

    def _hidden_loss(self, mask: paddle.Tensor) -> paddle.Tensor:
        """Mean squared error over units and real tokens, summed over embeddings and layers (TinyBERT, eq. 8 and 9)."""
        losses = []
        for place, ours in self._of_student.hidden.items():
            ours = ours if self._projection is None else self._projection(ours)
            theirs = self._of_teacher.hidden[place]
            losses.append(mean_square(ours, theirs, mask))
        return paddle.add_n(losses)

    def _attention_loss(self, mask: paddle.Tensor) -> paddle.Tensor:
        """Mean squared error of the attention scores before the softmax (TinyBERT, eq. 7), summed over the layers.

        Compared per head; if the numbers of heads differ, as means over the heads.
        """
        ours, theirs = self._of_student, self._of_teacher
        pairs = (mask.unsqueeze(1) * mask.unsqueeze(2)).unsqueeze(1)
        losses = []
        for place in range(self._layers):
            mine, other = (
                _products(each.projected(QUERIES, place), each.projected(KEYS, place), each.heads)
                for each in (ours, theirs)
            )
            if ours.heads != theirs.heads:
                mine, other = mine.mean(1, keepdim=True), other.mean(1, keepdim=True)
            losses.append((((mine - other) ** 2) * pairs).sum() / (pairs.sum() * mine.shape[1]))
        return paddle.add_n(losses)

    def _relation_loss(self, mask: paddle.Tensor) -> paddle.Tensor:
        """KL divergence of softmax(A A^T / sqrt(d)) for A the queries, keys and values of the last layer, mean over
        the three, relation heads and real tokens (Wang et al., 2021, MiniLMv2, eq. 4 and 5)."""
        last = self._layers - 1
        hidden = ((1 - mask) * _HIDDEN_BY_MASK).unsqueeze(1).unsqueeze(1)
        losses = []
        for name in PROJECTIONS:
            ours, theirs = (each.projected(name, last) for each in (self._of_student, self._of_teacher))
            mine = F.log_softmax(_products(ours, ours, self._relation_heads) + hidden, axis=-1)
            other = F.softmax(_products(theirs, theirs, self._relation_heads) + hidden, axis=-1)
            # Clipped: the teacher's probability of a masked position is 0, and 0 * log 0 would be NaN.
            divergence = (other * (paddle.log(other.clip(min=1e-12)) - mine)).sum(-1)
            losses.append((divergence * mask.unsqueeze(1)).sum() / (mask.sum() * self._relation_heads))
        return paddle.add_n(losses) / 3


def mean_square(ours: paddle.Tensor, theirs: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
    """The mean squared difference of hidden states [rows, length, width] at the tokens of `mask`, [rows, length]."""
    return (((ours - theirs) ** 2).mean(-1) * mask).sum() / mask.sum()


def _products(left: paddle.Tensor, right: paddle.Tensor, heads: int) -> paddle.Tensor:
    """Scaled dot products [batch, heads, length, length] of two [batch, length, width], split into heads."""
    left, right = (_heads(each, heads) for each in (left, right))
    return paddle.matmul(left, right, transpose_y=True) / math.sqrt(left.shape[-1])


def _heads(each: paddle.Tensor, heads: int) -> paddle.Tensor:
    rows, length, width = each.shape
    return each.reshape([rows, length, heads, width // heads]).transpose([0, 2, 1, 3])
