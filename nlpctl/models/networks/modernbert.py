"""ModernBERT (Warner et al., 2024, arXiv 2412.13663), and mmBERT, which is the same network with another vocabulary.

A pre-norm transformer with rotary positions, gated feed-forward parts and mostly no biases. Layers of two kinds
alternate: every third one attends to the whole text, the others to a window around each token, by rotary positions of
another base.

Texts are padded on the right, as for all networks here; published code packs them without padding, which computes the
same. A layer's attention takes 4 * batch * heads * length^2 bytes, in the layers with a window too.

Encoder layers have the parts of paddle.nn.TransformerEncoderLayer under its names (self_attn.q_proj, linear1, ...), so
what prunes, compares and trains layers finds them (models/pruned.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddle.distributed.fleet.utils import recompute
from paddlenlp.transformers import PretrainedConfig

from nlpctl.errors import UserError
from nlpctl.models.networks.common import NetworkModel, activation, mean_over_units

GLOBAL, LOCAL = "full_attention", "sliding_attention"  # kinds of layers, as in `layer_types`
_UNSTRETCHED = "take a model that was trained with as many positions as you need"
_BLOCKED = -1e4  # added to the scores of keys that are not seen; the sum of two of them still fits into float16


class ModernBertConfig(PretrainedConfig):
    """The keys of config.json as Transformers writes them, of version 4 and 5.

    `local_attention`: width of the window: a token sees local_attention // 2 others on either side. `layer_types`:
    the kind of each layer, by default every `global_attn_every_n_layers`th from the first on is global.
    `attention_norms`: whether each layer normalises what its attention reads; by default all but the first, which
    reads the normalised embedding. Only a network that was made of some layers of another has other ones.
    """

    model_type = "modernbert"
    attribute_map: ClassVar[dict[str, str]] = {"num_classes": "num_labels"}

    def __init__(
        self,
        vocab_size: int = 50368,
        hidden_size: int = 768,
        intermediate_size: int = 1152,
        num_hidden_layers: int = 22,
        num_attention_heads: int = 12,
        hidden_activation: str = "gelu",
        max_position_embeddings: int = 8192,
        initializer_range: float = 0.02,
        norm_eps: float = 1e-5,
        norm_bias: bool = False,
        pad_token_id: int = 50283,
        global_rope_theta: float = 160_000.0,
        local_rope_theta: float | None = 10_000.0,
        global_attn_every_n_layers: int = 3,
        local_attention: int = 128,
        layer_types: Sequence[str] | None = None,
        attention_norms: Sequence[bool] | None = None,
        attention_bias: bool = False,
        attention_dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        mlp_bias: bool = False,
        mlp_dropout: float = 0.0,
        decoder_bias: bool = True,
        classifier_pooling: Literal["cls", "mean"] = "cls",
        classifier_dropout: float = 0.0,
        classifier_bias: bool = False,
        classifier_activation: str = "gelu",
        rope_parameters: Mapping[str, Mapping[str, Any]] | None = None,
        rope_scaling: Any = None,
        tie_word_embeddings: bool = True,
        **kwargs: Any,
    ):
        super().__init__(pad_token_id=pad_token_id, tie_word_embeddings=tie_word_embeddings, **kwargs)
        if rope_scaling is not None:
            raise UserError("rope_scaling: stretched positions are not supported", "config.json", _UNSTRETCHED)
        for kind, values in (rope_parameters or {}).items():  # version 5
            if kind not in (GLOBAL, LOCAL) or not isinstance(values, Mapping):
                message = f"rope_parameters must hold {GLOBAL} and {LOCAL}, each with its rope_theta"
                raise UserError(message, "config.json", "or give global_rope_theta and local_rope_theta instead")
            if values.get("rope_type", "default") != "default":
                message = f"rope_type {values['rope_type']!r} is not supported: only 'default' is"
                raise UserError(message, "config.json", _UNSTRETCHED)
            if kind == GLOBAL:
                global_rope_theta = values.get("rope_theta", global_rope_theta)
            else:
                local_rope_theta = values.get("rope_theta", local_rope_theta)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_activation = hidden_activation
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.norm_eps = norm_eps
        self.norm_bias = norm_bias
        self.global_rope_theta = global_rope_theta
        self.local_rope_theta = global_rope_theta if local_rope_theta is None else local_rope_theta
        self.global_attn_every_n_layers = global_attn_every_n_layers
        self.local_attention = local_attention
        self.layer_types = layer_types
        self.attention_norms = attention_norms
        self.attention_bias = attention_bias
        self.attention_dropout = attention_dropout
        self.embedding_dropout = embedding_dropout
        self.mlp_bias = mlp_bias
        self.mlp_dropout = mlp_dropout
        self.decoder_bias = decoder_bias
        self.classifier_pooling = classifier_pooling
        self.classifier_dropout = classifier_dropout
        self.classifier_bias = classifier_bias
        self.classifier_activation = classifier_activation

    def kinds(self) -> list[str]:
        """The kind of each layer. ValueError: `layer_types` are fewer than the layers, or unknown."""
        every, count = self.global_attn_every_n_layers, self.num_hidden_layers
        kinds = self.layer_types or [LOCAL if index % every else GLOBAL for index in range(count)]
        if len(kinds) < count or not set(kinds) <= {GLOBAL, LOCAL}:
            raise ValueError(f"layer_types must be {count} of {GLOBAL} and {LOCAL}")
        return list(kinds[:count])  # model.config may ask for the first layers only

    def norms(self) -> list[bool]:
        """Whether each layer normalises what its attention reads."""
        count = self.num_hidden_layers
        norms = self.attention_norms or [index > 0 for index in range(count)]
        if len(norms) < count:
            raise ValueError(f"attention_norms must be {count} of true and false")
        return list(norms[:count])

    def note_layers(self, layers: Sequence[ModernBertLayer]) -> None:
        """Describe a network that was made of these layers of another."""
        self.num_hidden_layers = len(layers)
        self.layer_types = [layer.kind for layer in layers]
        norms = [isinstance(layer.norm1, Norm) for layer in layers]
        self.attention_norms = norms if norms != [index > 0 for index in range(len(layers))] else None


class View(NamedTuple):
    """What all layers of a kind share. `mask` is added to scores: [batch, 1, 1 or length, length]; `cos` and `sin`
    turn queries and keys: [1, 1, length, half a head]. Heads stand before tokens: oneDNN is slow where an axis in the
    middle is stretched (docs/upstream.md)."""

    mask: paddle.Tensor
    cos: paddle.Tensor
    sin: paddle.Tensor


class Norm(nn.LayerNorm):
    """LayerNorm. Where it has no bias, zeros stand in: what computes LayerNorm in one pass wants one (ONNX Runtime,
    training/fast_cpu.py)."""

    def __init__(self, config: ModernBertConfig):
        super().__init__(config.hidden_size, config.norm_eps, bias_attr=None if config.norm_bias else False)
        if not config.norm_bias:
            self.register_buffer("no_bias", paddle.zeros([config.hidden_size]), persistable=False)

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        bias = self.no_bias if self.bias is None else self.bias
        return F.layer_norm(states, self._normalized_shape, self.weight, bias, self._epsilon)


class ModernBertAttention(nn.Layer):
    """Self-attention by heads, with rotary positions (Su et al., 2021, arXiv 2104.09864)."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        width, self.num_heads = config.hidden_size, config.num_attention_heads
        self.head_dim = width // self.num_heads
        self.dropout = config.attention_dropout
        self.q_proj, self.k_proj, self.v_proj = (
            _linear(width, width, _inner(config), config.attention_bias) for _ in range(3)
        )
        self.out_proj = _linear(width, width, _outer(config), config.attention_bias)

    def forward(self, states: paddle.Tensor, view: View) -> paddle.Tensor:
        """[batch, length, width] to the same."""
        query, key = (_turned(self._by_head(each(states)), view) for each in (self.q_proj, self.k_proj))
        value = self._by_head(self.v_proj(states))
        scores = paddle.matmul(query * self.head_dim**-0.5, key, transpose_y=True)
        shares = F.softmax(scores + _like(view.mask, scores), axis=-1)
        shares = F.dropout(shares, self.dropout, training=self.training)
        mixed = paddle.matmul(_like(shares, value), value).transpose([0, 2, 1, 3])
        mixed = self.out_proj(mixed.reshape([0, 0, self.num_heads * self.head_dim]))
        return F.dropout(mixed, self.dropout, training=self.training)

    def _by_head(self, projected: paddle.Tensor) -> paddle.Tensor:
        return projected.reshape([0, 0, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])


class ModernBertLayer(nn.Layer):
    """Attention, then a gated feed-forward part (GeGLU: Shazeer, 2020, arXiv 2002.05202), each added to its input."""

    normalize_before = True  # as paddle.nn.TransformerEncoderLayer calls pre-norm layers

    def __init__(self, config: ModernBertConfig, kind: str, norm: bool):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.kind = kind
        self.dropout = config.mlp_dropout
        self.activation = activation("hidden_activation", config.hidden_activation)
        self.norm1 = Norm(config) if norm else nn.Identity()
        self.self_attn = ModernBertAttention(config)
        self.norm2 = Norm(config)
        self.linear1 = _linear(width, inner, _inner(config), config.mlp_bias)
        self.gate = _linear(width, inner, _inner(config), config.mlp_bias)
        self.linear2 = _linear(inner, width, _outer(config), config.mlp_bias)

    def forward(self, states: paddle.Tensor, view: View) -> paddle.Tensor:
        """[batch, length, width] to the same."""
        states = states + self.self_attn(self.norm1(states), view)
        normal = self.norm2(states)
        inner = self.activation(self.linear1(normal)) * self.gate(normal)
        return states + self.linear2(F.dropout(inner, self.dropout, training=self.training))


class ModernBertEncoder(nn.Layer):
    """The layers, and a norm after the last."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        kinds, norms = config.kinds(), config.norms()
        self.layers = nn.LayerList(
            [ModernBertLayer(config, kind, norm) for kind, norm in zip(kinds, norms, strict=True)]
        )
        self.norm = Norm(config)
        self.enable_recompute = False  # PaddleNLP's Trainer sets it (training.recompute)

    def forward(self, states: paddle.Tensor, views: Mapping[str, View]) -> tuple[paddle.Tensor, list[paddle.Tensor]]:
        """The last states, and all: of the embedding and of each layer, the last of them normalised."""
        every = [states]
        for layer in self.layers:
            again = self.enable_recompute and self.training and not states.stop_gradient
            view = views[layer.kind]
            states = recompute(layer, states, view) if again else layer(states, view)
            every.append(states)
        every[-1] = self.norm(states)
        return every[-1], every


class ModernBertEmbeddings(nn.Layer):
    """Word embeddings, normalised; positions enter the attention alone."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        weight = paddle.ParamAttr(initializer=nn.initializer.TruncatedNormal(std=config.initializer_range))
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, weight_attr=weight)
        self.layer_norm = Norm(config)
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(self, input_ids: paddle.Tensor) -> paddle.Tensor:
        return self.dropout(self.layer_norm(self.word_embeddings(input_ids)))


class ModernBertPretrainedModel(NetworkModel):
    """The base of all classes here."""

    config_class = ModernBertConfig
    base_model_prefix = "modernbert"
    # Trained with the encoder, as a part of its language model, and a part of every task's network.
    trained_with_encoder = ("head.",)


class ModernBertModel(ModernBertPretrainedModel):
    """Called with int64 input_ids [batch, length]; returns the states [batch, length, width]."""

    def __init__(self, config: ModernBertConfig):
        super().__init__(config)
        if config.hidden_size % (2 * config.num_attention_heads):
            raise ValueError("hidden_size must be an even multiple of num_attention_heads")
        self.embeddings = ModernBertEmbeddings(config)
        self.encoder = ModernBertEncoder(config)
        self.window = config.local_attention // 2
        size = config.hidden_size // config.num_attention_heads
        thetas = {GLOBAL: config.global_rope_theta, LOCAL: config.local_rope_theta}
        self.rates = {kind: _rates(theta, size) for kind, theta in thetas.items()}

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids: paddle.Tensor,
        attention_mask: paddle.Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> Any:
        """`attention_mask` [batch, length]: 1 for tokens, 0 for padding; by default what is not pad_token_id.

        With `output_hidden_states`: the states, and a list of those before the layers and after each.
        """
        real = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask
        states, every = self.encoder(self.embeddings(input_ids), self._views(real.astype("float32")))
        return (states, every) if output_hidden_states else states

    def _views(self, real: paddle.Tensor) -> dict[str, View]:
        """By the kind of a layer, for any length; `real` float32 [batch, length]."""
        padding = ((1.0 - real) * _BLOCKED).unsqueeze([1, 2])
        places = paddle.arange(real.shape[1])  # whole numbers, which no conversion of a graph rounds
        apart = places.unsqueeze(0) - places.unsqueeze(1)
        # Not abs: Paddle Inference fuses it with the subtraction before it, and fails on whole numbers.
        far = (apart * apart > self.window**2).astype("float32").unsqueeze([0, 1]) * _BLOCKED
        # Repeated for each text first: oneDNN is slow where both sides of a sum are stretched (docs/upstream.md).
        masks = {GLOBAL: padding, LOCAL: paddle.expand(far, [real.shape[0], -1, -1, -1]) + padding}
        views = {}
        with paddle.amp.auto_cast(enable=False):  # bfloat16 has no number between 256 and 258
            for kind in (GLOBAL, LOCAL):
                angles = places.astype("float32").reshape([1, 1, -1, 1]) * paddle.to_tensor(self.rates[kind])
                views[kind] = View(masks[kind], paddle.cos(angles), paddle.sin(angles))
        return views


class PredictionHead(nn.Layer):
    """A dense layer, an activation and a norm, between the encoder and what scores words or labels."""

    def __init__(self, config: ModernBertConfig):
        super().__init__()
        self.dense = _linear(config.hidden_size, config.hidden_size, _outer(config), config.classifier_bias)
        self.activation = activation("classifier_activation", config.classifier_activation)
        self.norm = Norm(config)

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        return self.norm(self.activation(self.dense(states)))


class WordScores(nn.Layer):
    """The scores of all words: the product with their embeddings, the same parameter."""

    def __init__(self, config: ModernBertConfig, embeddings: nn.Embedding):
        super().__init__()
        if not config.tie_word_embeddings:
            raise ValueError("tie_word_embeddings must be true: no published model has other weights to score words")
        self.weight = embeddings.weight
        self.bias = self.create_parameter([config.vocab_size], is_bias=True) if config.decoder_bias else None

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        scores = paddle.matmul(states, self.weight, transpose_y=True)
        return scores if self.bias is None else scores + self.bias


class ModernBertForMaskedLM(ModernBertPretrainedModel):
    """Scores of words [batch, length, vocabulary]."""

    def __init__(self, config: ModernBertConfig):
        super().__init__(config)
        self.modernbert = ModernBertModel(config)
        self.head = PredictionHead(config)
        self.decoder = WordScores(config, self.modernbert.get_input_embeddings())

    def forward(self, input_ids: paddle.Tensor, attention_mask: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.score_words(self.modernbert(input_ids, attention_mask))

    def score_words(self, states: paddle.Tensor) -> paddle.Tensor:
        """[..., vocabulary] of states [..., width]."""
        return self.decoder(self.head(states))


class _Labelled(ModernBertPretrainedModel):
    """The parts of the heads below: a prediction head, dropout and a linear layer, of num_labels unless `outputs`."""

    outputs: int | None = None

    def __init__(self, config: ModernBertConfig):
        super().__init__(config)
        if config.classifier_pooling not in ("cls", "mean"):
            raise ValueError(f"classifier_pooling must be cls or mean, not {config.classifier_pooling!r}")
        self.modernbert = ModernBertModel(config)
        self.head = PredictionHead(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = _linear(
            config.hidden_size, self.outputs or config.num_labels, config.hidden_size**-0.5, bias=True
        )
        self.pools_mean = config.classifier_pooling == "mean"

    def scores(self, states: paddle.Tensor) -> paddle.Tensor:
        return self.classifier(self.dropout(self.head(states)))


class ModernBertForSequenceClassification(_Labelled):
    """Logits [batch, labels], of the first token or of the mean over all tokens (classifier_pooling)."""

    def forward(self, input_ids: paddle.Tensor, attention_mask: paddle.Tensor | None = None) -> paddle.Tensor:
        states = self.modernbert(input_ids, attention_mask)
        if not self.pools_mean:
            return self.scores(states[:, 0])
        real = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask
        return self.scores(mean_over_units(states, real.astype(states.dtype).unsqueeze(-1)))


class ModernBertForTokenClassification(_Labelled):
    """Logits [batch, length, labels]; those of padding mean nothing."""

    def forward(self, input_ids: paddle.Tensor, attention_mask: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.scores(self.modernbert(input_ids, attention_mask))


class ModernBertForQuestionAnswering(_Labelled):
    """Logits of the first and of the last token of an answer, [batch, length] each."""

    outputs = 2

    def forward(
        self, input_ids: paddle.Tensor, attention_mask: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        start, end = paddle.unstack(self.scores(self.modernbert(input_ids, attention_mask)), axis=-1)
        return start, end


def _rates(theta: float, size: int) -> np.ndarray:
    """By what angle each pair of a head's numbers turns from place to place, [size / 2]: theta^(-2 i / size).

    In 32 bits as published: at place 8192, the last digit is an angle of 5e-4.
    """
    return 1 / np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))


def _turned(heads: paddle.Tensor, view: View) -> paddle.Tensor:
    """[batch, heads, length, head] with its two halves turned by the angle of their place, in 32 bits."""
    first, second = paddle.split(_like(heads, view.cos), 2, axis=-1)
    turned = [first * view.cos - second * view.sin, second * view.cos + first * view.sin]
    return _like(paddle.concat(turned, axis=-1), heads)


def _like(tensor: paddle.Tensor, other: paddle.Tensor) -> paddle.Tensor:
    """`tensor` in the number type of `other`; the same one where it has that type, so that a graph gets no cast."""
    return tensor if tensor.dtype == other.dtype else tensor.astype(other.dtype)


def _inner(config: ModernBertConfig) -> float:
    """The deviation of new weights inside a layer."""
    return config.initializer_range


def _outer(config: ModernBertConfig) -> float:
    """That of weights whose products are added up over the layers."""
    return config.initializer_range / math.sqrt(2.0 * config.num_hidden_layers)


def _linear(inputs: int, outputs: int, deviation: float, bias: bool) -> nn.Linear:
    weight = paddle.ParamAttr(initializer=nn.initializer.TruncatedNormal(std=deviation))
    return nn.Linear(inputs, outputs, weight_attr=weight, bias_attr=None if bias else False)
