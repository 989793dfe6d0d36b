"""Encoders of Hugging Face's layout whose arithmetic no network of PaddleNLP has: ALBERT, ConvBERT, DeBERTa-v2 and v3,
MPNet, NEZHA, RoFormer.

PaddleNLP has classes of these names, with other heads, without a mask for padding, or that cannot be built from their
config (docs/upstream.md). These here compute what Transformers computes (tests/models/test_encoders.py). Layers are
those of `paddle.nn.TransformerEncoder`, with an attention of their own where it is another, so that what nlpctl does to
layers it does to these.

Every encoder is called with int64 input_ids [batch, length], and token_type_ids where the family has them, and gives
the last states [batch, length, hidden_size]; with output_hidden_states also all of them, embeddings first. Padding is
what equals pad_token_id; it never reaches the states of other tokens.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed.fleet.utils import recompute
from paddlenlp.transformers import PretrainedConfig

from nlpctl.errors import UserError
from nlpctl.models.huggingface_layout import AS_TRANSFORMERS, sines_and_cosines
from nlpctl.models.networks.common import NetworkModel, activation

MASKED = -1e4  # added to the score of a token that is not looked at, as in PaddleNLP's encoders


class EncoderConfig(PretrainedConfig):
    """Sizes of an encoder under the keys of Transformers' BERT, with its defaults; a family adds its own."""

    attribute_map: ClassVar[dict[str, str]] = {"num_classes": "num_labels"}
    factorised: ClassVar[bool] = True  # whether embeddings may have a width of their own

    def __init__(
        self,
        vocab_size: int = 30522,
        embedding_size: int | None = None,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        initializer_range: float = 0.02,
        layer_norm_eps: float = 1e-12,
        pad_token_id: int = 0,
        **kwargs: Any,
    ):
        super().__init__(pad_token_id=pad_token_id, **kwargs)
        self.vocab_size = vocab_size
        self.embedding_size = (embedding_size if self.factorised else None) or hidden_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self.layer_norm_eps = layer_norm_eps


class EncoderNetwork(NetworkModel):
    """Base of all classes here."""

    def _init_weights(self, layer: nn.Layer) -> None:
        if isinstance(layer, nn.Linear | nn.Embedding):
            drawn = paddle.normal(mean=0.0, std=self.config.initializer_range, shape=layer.weight.shape)
            layer.weight.set_value(drawn)


# -- embeddings and layers --------------------------------------------------------------------------------------------


class Embeddings(nn.Layer):
    """Of words, positions (`first`: the number of the first; None: there are none) and kinds of token, if any."""

    def __init__(self, config: EncoderConfig, first: int | None, kinds: int):
        super().__init__()
        width = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        if first is not None:
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        if kinds:
            self.token_type_embeddings = nn.Embedding(kinds, width)
        self.first, self.kinds, self.pad_id = first, kinds, config.pad_token_id
        self.layer_norm = nn.LayerNorm(width, epsilon=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.dropout(self.layer_norm(self.sum(input_ids, token_type_ids)))

    def sum(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None) -> paddle.Tensor:
        total = self.word_embeddings(input_ids)
        if self.first is not None:
            total = total + self.position_embeddings(self.places(input_ids, self.first))
        if self.kinds:
            kinds = paddle.zeros_like(input_ids) if token_type_ids is None else token_type_ids
            total = total + self.token_type_embeddings(kinds)
        return total

    def places(self, input_ids: paddle.Tensor, first: int) -> paddle.Tensor:
        """They count from `first`; padding, on the right, has one that nobody looks at."""
        return paddle.cumsum(paddle.ones_like(input_ids), axis=-1) + (first - 1)


class Attention(nn.MultiHeadAttention):
    """Attention that knows of positions: a subclass changes the scores, or what is made of them."""

    def scores(self, q: paddle.Tensor, k: paddle.Tensor) -> paddle.Tensor:
        """[batch, heads, length, length] of queries and keys [batch, heads, length, head_dim]."""
        return paddle.matmul(q * (self.head_dim**-0.5), k, transpose_y=True)

    def mix(self, shares: paddle.Tensor, v: paddle.Tensor) -> paddle.Tensor:
        """[batch, heads, length, head_dim]: values by the shares of tokens."""
        return paddle.matmul(shares, v)

    def forward(
        self, query: paddle.Tensor, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None
    ) -> Any:
        """Of `query`, [batch, length, width], with itself; other keys are for decoders."""
        q, k, v = (self._by_head(each(query)) for each in (self.q_proj, self.k_proj, self.v_proj))
        shares = F.softmax(self.scores(q, k) + attn_mask)
        if self.dropout:
            shares = F.dropout(shares, self.dropout, training=self.training, mode="upscale_in_train")
        mixed = self.mix(shares, v).transpose([0, 2, 1, 3])
        out = self.out_proj(mixed.reshape([0, 0, self.num_heads * self.head_dim]))
        return (out, shares) if self.need_weights else out

    def _by_head(self, states: paddle.Tensor) -> paddle.Tensor:
        return states.reshape([0, 0, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])


def make_layer(config: EncoderConfig) -> nn.TransformerEncoderLayer:
    """One layer of BERT: norms after attention and after the feed-forward part."""
    layer = nn.TransformerEncoderLayer(
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        activation="gelu",
        attn_dropout=config.attention_probs_dropout_prob,
        act_dropout=0,
    )
    finish_layer(layer, config)
    return layer


def finish_layer(layer: nn.TransformerEncoderLayer, config: EncoderConfig) -> None:
    """What Paddle's layer cannot be told: the activations that Transformers has beside Paddle's, and the epsilon."""
    layer.activation = activation("hidden_act", config.hidden_act)
    layer.norm1._epsilon = layer.norm2._epsilon = config.layer_norm_eps


def padding_mask(input_ids: paddle.Tensor, pad_id: int) -> paddle.Tensor:
    """[batch, 1, 1, length], added to scores: what is padding is not looked at."""
    return ((input_ids == pad_id).astype(paddle.get_default_dtype()) * MASKED).unsqueeze([1, 2])


def run_layer(layer: nn.Layer, states: paddle.Tensor, mask: paddle.Tensor, again: bool) -> paddle.Tensor:
    """One layer; `again`: computed again in the backward pass, instead of kept (training.recompute)."""
    return recompute(layer, states, mask) if again and not states.stop_gradient else layer(states, src_mask=mask)


class Pooler(nn.Layer):
    """The state of the first token through a linear layer: [batch, hidden_size]."""

    def __init__(self, config: EncoderConfig, act: str, key: str = "hidden_act", dropout: float = 0.0):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = activation(key, act)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        return self.activation(self.dense(self.dropout(states[:, 0])))


class EncoderModel(EncoderNetwork):
    """A bare encoder. Without a pooler unless `pooled`: what reads every token has no use for it."""

    config: EncoderConfig
    first_position: ClassVar[int | None] = 0

    def __init__(self, config: EncoderConfig, pooled: bool = False):
        super().__init__(config)
        self.embeddings = self.make_embeddings(config)
        if self.has_projection(config):
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = self.make_layers(config)
        if pooled:
            self.pooler = Pooler(config, "tanh")

    def has_projection(self, config: EncoderConfig) -> bool:
        """Whether a linear layer leads from the embeddings to the layers."""
        return config.embedding_size != config.hidden_size

    def make_embeddings(self, config: EncoderConfig) -> nn.Layer:
        return Embeddings(config, self.first_position, config.type_vocab_size)

    def make_layers(self, config: EncoderConfig) -> nn.Layer:
        layers = nn.TransformerEncoder(make_layer(config), config.num_hidden_layers)
        for layer in layers.layers:
            finish_layer(layer, config)
            self.change_attention(layer, config)
        return layers

    def change_attention(self, layer: nn.TransformerEncoderLayer, config: EncoderConfig) -> None:
        """Replace `layer.self_attn` where it is another than Paddle's."""

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> Any:
        states = self.embeddings(input_ids, token_type_ids)
        if "embeddings_project" in self._sub_layers:
            states = self.embeddings_project(states)
        return self.encode(states, input_ids, output_hidden_states)

    def encode(self, states: paddle.Tensor, input_ids: paddle.Tensor, output_hidden_states: bool) -> Any:
        return self.encoder(states, self.mask(input_ids), output_hidden_states=output_hidden_states)

    def mask(self, input_ids: paddle.Tensor) -> paddle.Tensor:
        return padding_mask(input_ids, self.config.pad_token_id)


# -- heads ------------------------------------------------------------------------------------------------------------


class _Head(EncoderNetwork):
    encoder_class: ClassVar[type[EncoderModel]]
    pooled: ClassVar[bool] = False

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.encoder_class(config, pooled=self.pooled))
        own = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if own is None else own)

    def states(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None) -> paddle.Tensor:
        kinds = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self._sub_layers[self.base_model_prefix](input_ids, **kinds)


class TwoLayerClassifier(_Head):
    """Logits [batch, labels] from the state of the first token, by two linear layers."""

    between: ClassVar[str | None] = None  # the activation; None: that of the encoder

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.classifier = nn.Layer()
        self.classifier.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier.out_proj = nn.Linear(config.hidden_size, config.num_labels)
        self.activation = activation("hidden_act", self.between or config.hidden_act)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        first = self.dropout(self.states(input_ids, token_type_ids)[:, 0])
        return self.classifier.out_proj(self.dropout(self.activation(self.classifier.dense(first))))


class PooledClassifier(_Head):
    """Logits [batch, labels] from what the encoder's pooler makes of the first token."""

    pooled = True

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        states = self.states(input_ids, token_type_ids)
        return self.classifier(self.dropout(self.pool(states)))

    def pool(self, states: paddle.Tensor) -> paddle.Tensor:
        return self._sub_layers[self.base_model_prefix].pooler(states)


class TokenClassifier(_Head):
    """Logits [batch, length, labels]."""

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.classifier(self.dropout(self.states(input_ids, token_type_ids)))


class Reader(_Head):
    """Logits of the beginnings and ends of answers, both [batch, length]."""

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(
        self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        logits = self.classifier(self.states(input_ids, token_type_ids))
        begin, end = paddle.unstack(logits.transpose([2, 0, 1]), axis=0)
        return begin, end


class WordHead(nn.Layer):
    """Logits [..., vocabulary] of states [..., hidden_size], by the table of the word embeddings."""

    def __init__(self, config: EncoderConfig, encoder: EncoderModel, act: str):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = activation("hidden_act", act)
        self.layer_norm = nn.LayerNorm(config.embedding_size, epsilon=config.layer_norm_eps)
        self.decoder_bias = self.create_parameter([config.vocab_size], is_bias=True)
        self._encoder = (encoder,)  # in a tuple, or it would become a layer of this one

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        states = self.layer_norm(self.activation(self.transform(states)))
        table = self._encoder[0].get_input_embeddings().weight
        return paddle.matmul(states, table, transpose_y=True) + self.decoder_bias


class LanguageModel(_Head):
    """Logits [batch, length, vocabulary]; models/masked_lm.py asks at masked positions only."""

    word_activation: ClassVar[str | None] = None  # None: that of the encoder

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        encoder = self._sub_layers[self.base_model_prefix]
        self.cls = WordHead(config, encoder, self.word_activation or config.hidden_act)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.score_words(self.states(input_ids, token_type_ids))

    def score_words(self, states: paddle.Tensor) -> paddle.Tensor:
        """[..., vocabulary] of states [..., hidden_size]."""
        return self.cls(states)


# -- tables of distances ----------------------------------------------------------------------------------------------


class Distances(nn.Layer):
    """A number for each distance between two tokens: `table` holds those of -(n - 1) to n - 1."""

    def __init__(self, numbers: np.ndarray):
        super().__init__()
        self.longest = len(numbers) // 2
        self.register_buffer("table", paddle.to_tensor(numbers.astype(np.int64)), persistable=False)

    def forward(self, length: Any) -> paddle.Tensor:
        """int64 [length, length]: that of column minus row."""
        places = paddle.arange(length, dtype="int64")
        apart = places.unsqueeze(0) - places.unsqueeze(1) + self.longest
        return paddle.gather(self.table, apart.reshape([-1])).reshape([length, length])


def _apart(config: EncoderConfig) -> np.ndarray:
    longest = config.max_position_embeddings
    return np.arange(1 - longest, longest)


def _length(by_head: paddle.Tensor) -> Any:
    """The third axis, which is variable in a static graph."""
    return by_head.shape[2] if paddle.in_dynamic_mode() else paddle.shape(by_head)[2]


def _picked(values: paddle.Tensor, which: paddle.Tensor) -> paddle.Tensor:
    """values[b, h, i, which[i, j]]: [batch, heads, length, length] of [batch, heads, length, numbers]."""
    if paddle.in_dynamic_mode():
        shape = [values.shape[0], values.shape[1], *which.shape]
    else:
        size = paddle.shape(values)
        shape = [size[0], values.shape[1], size[2], size[2]]
    return paddle.take_along_axis(values, paddle.expand(which.unsqueeze([0, 1]), shape), axis=3, broadcast=False)


# -- ALBERT: layers that share their weights --------------------------------------------------------------------------


class HFAlbertConfig(EncoderConfig):
    """`num_hidden_groups`: that many sets of `inner_group_num` layers, each used several times."""

    model_type = "hf_albert"

    def __init__(self, num_hidden_groups: int = 1, inner_group_num: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_hidden_groups = num_hidden_groups
        self.inner_group_num = inner_group_num


class SharedLayers(nn.Layer):
    """`num_hidden_layers` layers, of which only num_hidden_groups * inner_group_num have weights."""

    def __init__(self, config: HFAlbertConfig):
        super().__init__()
        self.layers, self.enable_recompute = config.num_hidden_layers, False
        self.groups = nn.LayerList()
        for _ in range(config.num_hidden_groups):
            group = nn.LayerList([make_layer(config) for _ in range(config.inner_group_num)])
            for layer in group:
                layer.dropout2 = nn.Dropout(0.0)  # ALBERT drops out behind attention only
            self.groups.append(group)

    def forward(self, states: paddle.Tensor, mask: paddle.Tensor, output_hidden_states: bool = False) -> Any:
        every = [states]
        for index in range(self.layers):
            for layer in self.groups[index * len(self.groups) // self.layers]:
                states = run_layer(layer, states, mask, self.enable_recompute)
            every.append(states)
        return (states, tuple(every)) if output_hidden_states else states


class HFAlbertPretrainedModel(EncoderNetwork):
    config_class = HFAlbertConfig
    base_model_prefix = "albert"


class HFAlbertModel(EncoderModel, HFAlbertPretrainedModel):
    def has_projection(self, config: Any) -> bool:
        return True

    def make_layers(self, config: Any) -> nn.Layer:
        return SharedLayers(config)


class HFAlbertForSequenceClassification(PooledClassifier, HFAlbertPretrainedModel):
    encoder_class = HFAlbertModel


class HFAlbertForTokenClassification(TokenClassifier, HFAlbertPretrainedModel):
    encoder_class = HFAlbertModel


class HFAlbertForQuestionAnswering(Reader, HFAlbertPretrainedModel):
    encoder_class = HFAlbertModel


class HFAlbertForMaskedLM(LanguageModel, HFAlbertPretrainedModel):
    encoder_class = HFAlbertModel


# -- MPNet: a number per head and distance, added to the scores -------------------------------------------------------


class HFMPNetConfig(EncoderConfig):
    model_type = "hf_mpnet"
    factorised = False

    def __init__(
        self, relative_attention_num_buckets: int = 32, pad_token_id: int = 1, type_vocab_size: int = 0, **kwargs: Any
    ):
        super().__init__(pad_token_id=pad_token_id, type_vocab_size=0, **kwargs)
        self.relative_attention_num_buckets = relative_attention_num_buckets


class MPNetEmbeddings(Embeddings):
    """Transformers does not count tokens with the id 1, whatever pad_token_id is."""

    def places(self, input_ids: paddle.Tensor, first: int) -> paddle.Tensor:
        counted = (input_ids != 1).astype("int64")
        return paddle.cumsum(counted, axis=-1) * counted + (first - 1)


class BiasedAttention(nn.MultiHeadAttention):
    """Paddle's; its heads are not alike, since each has its own numbers for distances."""

    heads_differ = True


class HFMPNetPretrainedModel(EncoderNetwork):
    config_class = HFMPNetConfig
    base_model_prefix = "mpnet"


class HFMPNetModel(EncoderModel, HFMPNetPretrainedModel):
    first_position = 2

    def __init__(self, config: HFMPNetConfig, pooled: bool = False):
        super().__init__(config, pooled)
        self.relative_attention_bias = nn.Embedding(config.relative_attention_num_buckets, config.num_attention_heads)
        self.distances = Distances(_mpnet_buckets(_apart(config)))

    def make_embeddings(self, config: EncoderConfig) -> nn.Layer:
        # A network that nlpctl trained before has learned to count all.
        kind = MPNetEmbeddings if AS_TRANSFORMERS in vars(config) else Embeddings
        return kind(config, self.first_position, config.type_vocab_size)

    def change_attention(self, layer: nn.TransformerEncoderLayer, config: EncoderConfig) -> None:
        layer.self_attn = BiasedAttention(
            config.hidden_size, config.num_attention_heads, config.attention_probs_dropout_prob
        )

    def forward(self, input_ids: paddle.Tensor, output_hidden_states: bool = False) -> Any:  # type: ignore[override]
        """Without kinds of token: models/tokenizer.py looks at the names here."""
        return self.encode(self.embeddings(input_ids), input_ids, output_hidden_states)

    def mask(self, input_ids: paddle.Tensor) -> paddle.Tensor:
        """[batch, heads, length, length]."""
        length = input_ids.shape[1] if paddle.in_dynamic_mode() else paddle.shape(input_ids)[1]
        bias = self.relative_attention_bias(self.distances(length)).transpose([2, 0, 1]).unsqueeze(0)
        # Repeated for each text first: oneDNN is slow where both sides of a sum are stretched (docs/upstream.md).
        batch = input_ids.shape[0] if paddle.in_dynamic_mode() else paddle.shape(input_ids)[0]
        return paddle.expand(bias, [batch, -1, -1, -1]) + padding_mask(input_ids, self.config.pad_token_id)


def _mpnet_buckets(apart: np.ndarray, numbers: int = 32, farthest: int = 128) -> np.ndarray:
    """The bucket of each distance: one each for near ones, logarithmic for others, 16 in each direction (T5's)."""
    half = numbers // 2
    exact = half // 2
    distance = np.abs(apart)
    with np.errstate(divide="ignore"):
        far = np.log(distance.astype(np.float32) / exact) / math.log(farthest / exact) * (half - exact)
    far = np.minimum(exact + np.where(distance < exact, 0, far).astype(np.int64), half - 1)
    return (apart > 0) * half + np.where(distance < exact, distance, far)


class HFMPNetForSequenceClassification(TwoLayerClassifier, HFMPNetPretrainedModel):
    encoder_class = HFMPNetModel
    between = "tanh"


class HFMPNetForTokenClassification(TokenClassifier, HFMPNetPretrainedModel):
    encoder_class = HFMPNetModel


class HFMPNetForQuestionAnswering(Reader, HFMPNetPretrainedModel):
    encoder_class = HFMPNetModel


class HFMPNetForMaskedLM(LanguageModel, HFMPNetPretrainedModel):
    encoder_class = HFMPNetModel
    word_activation = "gelu"


# -- DeBERTa-v2 and v3: content and position apart (He et al., 2021, arXiv 2006.03654) --------------------------------


class HFDebertaV2Config(EncoderConfig):
    model_type = "hf_deberta_v2"

    def __init__(
        self,
        relative_attention: bool = False,
        max_relative_positions: int = -1,
        position_buckets: int = -1,
        position_biased_input: bool = True,
        pos_att_type: Any = None,
        share_att_key: bool = False,
        norm_rel_ebd: str = "none",
        conv_kernel_size: int = 0,
        conv_groups: int = 1,
        conv_act: str = "tanh",
        pooler_dropout: float = 0.0,
        pooler_hidden_act: str = "gelu",
        type_vocab_size: int = 0,
        layer_norm_eps: float = 1e-7,
        **kwargs: Any,
    ):
        super().__init__(type_vocab_size=type_vocab_size, layer_norm_eps=layer_norm_eps, **kwargs)
        self.relative_attention = relative_attention
        self.max_relative_positions = max_relative_positions
        self.position_buckets = position_buckets
        self.position_biased_input = position_biased_input
        # Older files write "c2p|p2c".
        kinds = pos_att_type.lower().split("|") if isinstance(pos_att_type, str) else pos_att_type or ()
        self.pos_att_type = [kind.strip() for kind in kinds]
        self.share_att_key = share_att_key
        self.norm_rel_ebd = norm_rel_ebd
        self.conv_kernel_size = conv_kernel_size
        self.conv_groups = conv_groups
        self.conv_act = conv_act
        self.pooler_dropout = pooler_dropout
        self.pooler_hidden_act = pooler_hidden_act


class DebertaEmbeddings(Embeddings):
    """Projected before the norm, not behind it; padding is 0."""

    def __init__(self, config: HFDebertaV2Config):
        super().__init__(config, 0 if config.position_biased_input else None, config.type_vocab_size)
        if config.embedding_size != config.hidden_size:
            self.embed_proj = nn.Linear(config.embedding_size, config.hidden_size, bias_attr=False)
        self.layer_norm = nn.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        total = self.sum(input_ids, token_type_ids)
        if "embed_proj" in self._sub_layers:
            total = self.embed_proj(total)
        states = self.layer_norm(total)
        real = (input_ids != self.pad_id).astype(states.dtype).unsqueeze(-1)
        return self.dropout(states * real)


class RelativePositions(nn.Layer):
    """The embeddings of distances, which all layers share, and which distance has which."""

    def __init__(self, config: HFDebertaV2Config):
        super().__init__()
        longest = config.max_relative_positions if config.max_relative_positions > 0 else config.max_position_embeddings
        self.span = config.position_buckets if config.position_buckets > 0 else longest
        self.embeddings = nn.Embedding(2 * self.span, config.hidden_size)
        if "layer_norm" in [each.strip() for each in config.norm_rel_ebd.lower().split("|")]:
            self.layer_norm = nn.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        apart = -_apart(config)  # row minus column
        numbers = _deberta_buckets(apart, config.position_buckets, longest) if config.position_buckets > 0 else apart
        self.of_keys = Distances(np.clip(numbers + self.span, 0, 2 * self.span - 1))
        self.of_queries = Distances(np.clip(self.span - numbers, 0, 2 * self.span - 1))

    def forward(self) -> paddle.Tensor:
        """[2 * span, width]"""
        # Looked up, not taken as it is: Paddle Inference 2.6 crashes where a linear layer reads a parameter.
        table = self.embeddings(paddle.arange(2 * self.span, dtype="int64"))
        return self.dropout(self.layer_norm(table) if "layer_norm" in self._sub_layers else table)


def _deberta_buckets(apart: np.ndarray, buckets: int, longest: int) -> np.ndarray:
    """Signed: near distances as they are, far ones logarithmic."""
    middle = buckets // 2
    near = np.where(np.abs(apart) < middle, middle - 1, np.abs(apart)).astype(np.float32)
    scale = np.log(np.float32((longest - 1) / middle))
    far = np.ceil(np.log(near / np.float32(middle)) / scale * np.float32(middle - 1)) + middle
    return np.where(near <= middle, apart, far * np.sign(apart)).astype(np.int64)


class DisentangledAttention(Attention):
    """Scores of content with content, of content with positions, and of positions with content."""

    by_head: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj", "pos_key_proj", "pos_query_proj")

    def __init__(self, config: HFDebertaV2Config, positions: RelativePositions | None):
        super().__init__(config.hidden_size, config.num_attention_heads, config.attention_probs_dropout_prob)
        kinds = config.pos_att_type
        self.to_positions, self.from_positions = "c2p" in kinds, "p2c" in kinds
        self.parts = 1 + self.to_positions + self.from_positions
        self._positions = positions if positions is None else (positions,)  # in a tuple: it is a layer of the encoder
        self.shared = config.share_att_key
        if positions is not None and not self.shared:
            if self.to_positions:
                self.pos_key_proj = nn.Linear(config.hidden_size, config.hidden_size)
            if self.from_positions:
                self.pos_query_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def scores(self, q: paddle.Tensor, k: paddle.Tensor) -> paddle.Tensor:
        scale = (self.head_dim * self.parts) ** -0.5
        total = paddle.matmul(q * scale, k, transpose_y=True)
        if self._positions is None:
            return total
        positions, length = self._positions[0], _length(q)
        table = positions()
        if self.to_positions:
            keys = self._of_table(self.k_proj if self.shared else self.pos_key_proj, table)
            by_number = paddle.matmul(q * scale, keys, transpose_y=True)
            # Distances are those of column minus row, and the first axis of what is picked is the row's.
            total = total + _picked(by_number, positions.of_keys(length))
        if self.from_positions:
            queries = self._of_table(self.q_proj if self.shared else self.pos_query_proj, table)
            by_number = paddle.matmul(k * scale, queries, transpose_y=True)
            total = total + _picked(by_number, positions.of_queries(length)).transpose([0, 1, 3, 2])
        return total

    def _of_table(self, projection: nn.Linear, table: paddle.Tensor) -> paddle.Tensor:
        """[1, heads, numbers, head_dim]"""
        return self._by_head(projection(table).unsqueeze(0))


class ConvolutionBeside(nn.Layer):
    """A convolution of the embeddings, added to the output of the first layer (the xlarge models)."""

    def __init__(self, config: HFDebertaV2Config):
        super().__init__()
        size = config.conv_kernel_size
        width, groups = config.hidden_size, config.conv_groups
        self.conv = nn.Conv1D(width, width, size, padding=(size - 1) // 2, groups=groups)
        self.layer_norm = nn.LayerNorm(width, epsilon=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.activation = activation("conv_act", config.conv_act)

    def forward(self, embedded: paddle.Tensor, states: paddle.Tensor, real: paddle.Tensor) -> paddle.Tensor:
        """`real` [batch, length, 1]: 0 for padding, which stays 0."""
        beside = self.conv(embedded.transpose([0, 2, 1])).transpose([0, 2, 1]) * real
        return self.layer_norm(states + self.activation(self.dropout(beside))) * real


class DebertaLayers(nn.TransformerEncoder):
    """Layers, with a convolution beside the first."""

    def __init__(self, layer: nn.TransformerEncoderLayer, config: HFDebertaV2Config):
        super().__init__(layer, config.num_hidden_layers)
        if config.conv_kernel_size > 0:
            self.beside = ConvolutionBeside(config)

    def forward(self, src: paddle.Tensor, src_mask: paddle.Tensor, output_hidden_states: bool = False) -> Any:
        every = [src]
        for layer in self.layers:
            states = run_layer(layer, every[-1], src_mask, self.enable_recompute)
            if len(every) == 1 and "beside" in self._sub_layers:
                real = (src_mask == 0).astype(states.dtype).squeeze(1).transpose([0, 2, 1])
                states = self.beside(src, states, real)
            every.append(states)
        return (every[-1], tuple(every)) if output_hidden_states else every[-1]


class HFDebertaV2PretrainedModel(EncoderNetwork):
    config_class = HFDebertaV2Config
    base_model_prefix = "deberta"


class HFDebertaV2Model(EncoderModel, HFDebertaV2PretrainedModel):
    def has_projection(self, config: Any) -> bool:
        return False  # the embeddings have one, before their norm

    def make_embeddings(self, config: Any) -> nn.Layer:
        return DebertaEmbeddings(config)

    def make_layers(self, config: Any) -> nn.Layer:
        positions = RelativePositions(config) if config.relative_attention else None
        layers = DebertaLayers(make_layer(config), config)
        for layer in layers.layers:
            finish_layer(layer, config)
            layer.self_attn = DisentangledAttention(config, positions)
        if positions is not None:
            layers.positions = positions
        return layers


class HFDebertaV2ForSequenceClassification(PooledClassifier, HFDebertaV2PretrainedModel):
    encoder_class = HFDebertaV2Model
    pooled = False  # its pooler belongs to the head

    def __init__(self, config: HFDebertaV2Config):
        super().__init__(config)
        self.pooler = Pooler(config, config.pooler_hidden_act, "pooler_hidden_act", config.pooler_dropout)

    def pool(self, states: paddle.Tensor) -> paddle.Tensor:
        return self.pooler(states)


class HFDebertaV2ForTokenClassification(TokenClassifier, HFDebertaV2PretrainedModel):
    encoder_class = HFDebertaV2Model


class HFDebertaV2ForQuestionAnswering(Reader, HFDebertaV2PretrainedModel):
    encoder_class = HFDebertaV2Model


class HFDebertaV2ForMaskedLM(LanguageModel, HFDebertaV2PretrainedModel):
    encoder_class = HFDebertaV2Model


# -- NEZHA: fixed embeddings of distances in keys and values (Wei et al., 2019, arXiv 1909.00204) ---------------------


class HFNezhaConfig(EncoderConfig):
    model_type = "hf_nezha"
    factorised = False

    def __init__(self, max_relative_position: int = 64, vocab_size: int = 21128, **kwargs: Any):
        super().__init__(vocab_size=vocab_size, **kwargs)
        self.max_relative_position = max_relative_position


class DistanceAttention(Attention):
    """A key and a value have that of their distance added."""

    def __init__(self, config: HFNezhaConfig):
        super().__init__(config.hidden_size, config.num_attention_heads, config.attention_probs_dropout_prob)
        farthest = config.max_relative_position
        self.distances = Distances(np.clip(_apart(config), -farthest, farthest) + farthest)
        table = paddle.to_tensor(_sines(2 * farthest + 1, self.head_dim))
        self.register_buffer("of_distance", table, persistable=False)  # [numbers, head_dim]

    def scores(self, q: paddle.Tensor, k: paddle.Tensor) -> paddle.Tensor:
        q = q * (self.head_dim**-0.5)
        by_number = paddle.matmul(q, self.of_distance, transpose_y=True)
        return paddle.matmul(q, k, transpose_y=True) + _picked(by_number, self.distances(_length(q)))

    def mix(self, shares: paddle.Tensor, v: paddle.Tensor) -> paddle.Tensor:
        # Row i has its own table of distances, so rows go first, and the product is one of [batch * heads, length] with
        # [length, head_dim] for each.
        length = _length(shares)
        tables = F.embedding(self.distances(length), self.of_distance)  # [length, length, head_dim]
        rows = shares.transpose([2, 0, 1, 3])
        flat = paddle.matmul(rows.reshape([0, -1, length]), tables)
        batch = shares.shape[0] if paddle.in_dynamic_mode() else paddle.shape(shares)[0]
        by_row = flat.reshape([length, batch, self.num_heads, self.head_dim])
        return paddle.matmul(shares, v) + by_row.transpose([1, 2, 0, 3])


def _sines(rows: int, width: int) -> np.ndarray:
    """sin and cos in turns, float32 [rows, width], computed in float32 as Transformers does."""
    places = np.arange(rows, dtype=np.float32)[:, None]
    rates = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / width))
    table = np.zeros((rows, width), np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(places * rates), np.cos(places * rates)
    return table


class HFNezhaPretrainedModel(EncoderNetwork):
    config_class = HFNezhaConfig
    base_model_prefix = "nezha"


class HFNezhaModel(EncoderModel, HFNezhaPretrainedModel):
    first_position = None

    def change_attention(self, layer: nn.TransformerEncoderLayer, config: Any) -> None:
        layer.self_attn = DistanceAttention(config)


class HFNezhaForSequenceClassification(PooledClassifier, HFNezhaPretrainedModel):
    encoder_class = HFNezhaModel


class HFNezhaForTokenClassification(TokenClassifier, HFNezhaPretrainedModel):
    encoder_class = HFNezhaModel


class HFNezhaForQuestionAnswering(Reader, HFNezhaPretrainedModel):
    encoder_class = HFNezhaModel


class HFNezhaForMaskedLM(LanguageModel, HFNezhaPretrainedModel):
    encoder_class = HFNezhaModel


# -- RoFormer: queries and keys rotated by their position (Su et al., 2021, arXiv 2104.09864) -------------------------


class HFRoFormerConfig(EncoderConfig):
    model_type = "hf_roformer"

    def __init__(
        self, rotary_value: bool = False, vocab_size: int = 50000, max_position_embeddings: int = 1536, **kwargs: Any
    ):
        super().__init__(vocab_size=vocab_size, max_position_embeddings=max_position_embeddings, **kwargs)
        self.rotary_value = rotary_value


class RotaryAttention(Attention):
    def __init__(self, config: HFRoFormerConfig):
        super().__init__(config.hidden_size, config.num_attention_heads, config.attention_probs_dropout_prob)
        self.turns_values = config.rotary_value
        table = sines_and_cosines(config.max_position_embeddings, self.head_dim)
        for name, half in zip(("sin", "cos"), np.split(table, 2, axis=1), strict=True):  # [positions, head_dim / 2]
            self.register_buffer(name, paddle.to_tensor(half), persistable=False)

    def scores(self, q: paddle.Tensor, k: paddle.Tensor) -> paddle.Tensor:
        return super().scores(self.turned(q), self.turned(k))

    def mix(self, shares: paddle.Tensor, v: paddle.Tensor) -> paddle.Tensor:
        return super().mix(shares, self.turned(v) if self.turns_values else v)

    def turned(self, states: paddle.Tensor) -> paddle.Tensor:
        """Pairs of neighbours as points of a plane, turned by an angle per position."""
        length = _length(states)
        sin, cos = self.sin[:length], self.cos[:length]
        pairs = states.reshape([0, 0, 0, self.head_dim // 2, 2])
        x, y = pairs[..., 0], pairs[..., 1]
        return paddle.stack([x * cos - y * sin, y * cos + x * sin], axis=-1).flatten(-2, -1)


class HFRoFormerPretrainedModel(EncoderNetwork):
    config_class = HFRoFormerConfig
    base_model_prefix = "roformer"


class HFRoFormerModel(EncoderModel, HFRoFormerPretrainedModel):
    first_position = None

    def change_attention(self, layer: nn.TransformerEncoderLayer, config: Any) -> None:
        layer.self_attn = RotaryAttention(config)


class HFRoFormerForSequenceClassification(TwoLayerClassifier, HFRoFormerPretrainedModel):
    encoder_class = HFRoFormerModel


class HFRoFormerForTokenClassification(TokenClassifier, HFRoFormerPretrainedModel):
    encoder_class = HFRoFormerModel


class HFRoFormerForQuestionAnswering(Reader, HFRoFormerPretrainedModel):
    encoder_class = HFRoFormerModel


class HFRoFormerForMaskedLM(LanguageModel, HFRoFormerPretrainedModel):
    encoder_class = HFRoFormerModel


# -- ConvBERT: half of the heads are convolutions (Jiang et al., 2020, arXiv 2008.02496) ------------------------------


class HFConvBertConfig(EncoderConfig):
    model_type = "hf_convbert"

    def __init__(
        self, head_ratio: int = 2, conv_kernel_size: int = 9, num_groups: int = 1, pad_token_id: int = 1, **kwargs: Any
    ):
        super().__init__(pad_token_id=pad_token_id, **kwargs)
        self.head_ratio = head_ratio
        self.conv_kernel_size = conv_kernel_size
        self.num_groups = num_groups


class SeparableConvolution(nn.Layer):
    def __init__(self, inputs: int, outputs: int, size: int):
        super().__init__()
        self.depthwise = nn.Conv1D(inputs, inputs, size, padding=size // 2, groups=inputs, bias_attr=False)
        self.pointwise = nn.Conv1D(inputs, outputs, 1, bias_attr=False)
        self.bias = self.create_parameter([outputs, 1], is_bias=True)

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        """[batch, length, inputs] -> [batch, length, outputs]"""
        return (self.pointwise(self.depthwise(states.transpose([0, 2, 1]))) + self.bias).transpose([0, 2, 1])


class MixedAttention(nn.Layer):
    """Heads of attention beside as many of a convolution whose kernel each token makes for itself."""

    heads_differ = True

    def __init__(self, config: HFConvBertConfig):
        super().__init__()
        ratio = config.head_ratio if config.num_attention_heads >= config.head_ratio else config.num_attention_heads
        self.num_heads = config.num_attention_heads // ratio
        self.head_dim = config.hidden_size // self.num_heads // 2
        self.size = config.conv_kernel_size
        self.dropout, self.need_weights = config.attention_probs_dropout_prob, False
        width, inner = config.hidden_size, self.num_heads * self.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, inner) for _ in range(3))
        self.out_proj = nn.Linear(width, width)
        self.key_conv_attn_layer = SeparableConvolution(width, inner, self.size)
        self.conv_kernel_layer = nn.Linear(inner, self.num_heads * self.size)
        self.conv_out_layer = nn.Linear(width, inner)

    def forward(
        self, query: paddle.Tensor, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None
    ) -> paddle.Tensor:
        by_head = [0, 0, self.num_heads, self.head_dim]
        queries = self.q_proj(query)
        q, k, v = (
            each.reshape(by_head).transpose([0, 2, 1, 3]) for each in (queries, self.k_proj(query), self.v_proj(query))
        )
        scores = paddle.matmul(q * (self.head_dim**-0.5), k, transpose_y=True)
        shares = F.dropout(F.softmax(scores + attn_mask), self.dropout, training=self.training)
        attended = paddle.matmul(shares, v).transpose([0, 2, 1, 3])
        # A convolution looks at neighbours whatever they are. Padding is 0 here, as if the text ended: an answer
        # does not depend on the batch. Transformers lets padding in.
        real = (attn_mask == 0).astype(query.dtype).squeeze(1).transpose([0, 2, 1])  # [batch, length, 1]
        kernels = self.conv_kernel_layer(self.key_conv_attn_layer(query * real) * queries)
        # Tokens and heads are one axis: with a fourth, oneDNN multiplies one element after the other, for most of the
        # time of the network (docs/upstream.md).
        kernels = F.softmax(kernels.reshape([0, -1, self.size]))
        edge = (self.size - 1) // 2
        # Not padded as NLC: paddle2onnx takes that for NCL.
        values = F.pad((self.conv_out_layer(query) * real).transpose([0, 2, 1]), [edge, edge], data_format="NCL")
        values = values.transpose([0, 2, 1])
        beside = []
        for place in range(self.size):
            shifted = values[:, place : place - self.size + 1] if place < self.size - 1 else values[:, place:]
            beside.append(shifted.reshape([0, -1, self.head_dim]) * kernels[..., place : place + 1])
        beside = paddle.add_n(beside).reshape([0, -1, self.num_heads, self.head_dim])
        mixed = paddle.concat([attended, beside], axis=2)
        out = self.out_proj(mixed.reshape([0, 0, 2 * self.num_heads * self.head_dim]))
        return (out, shares) if self.need_weights else out


class HFConvBertPretrainedModel(EncoderNetwork):
    config_class = HFConvBertConfig
    base_model_prefix = "convbert"


class HFConvBertModel(EncoderModel, HFConvBertPretrainedModel):
    def __init__(self, config: HFConvBertConfig, pooled: bool = False):
        if config.num_groups != 1:
            message = f"num_groups is {config.num_groups}: nlpctl knows ConvBERT with plain feed-forward layers only"
            raise UserError(message, "config.json", "take one with num_groups 1, such as conv-bert-base or -small")
        super().__init__(config, pooled)

    def change_attention(self, layer: nn.TransformerEncoderLayer, config: Any) -> None:
        layer.self_attn = MixedAttention(config)


class HFConvBertForSequenceClassification(TwoLayerClassifier, HFConvBertPretrainedModel):
    encoder_class = HFConvBertModel


class HFConvBertForTokenClassification(TokenClassifier, HFConvBertPretrainedModel):
    encoder_class = HFConvBertModel


class HFConvBertForQuestionAnswering(Reader, HFConvBertPretrainedModel):
    encoder_class = HFConvBertModel


class HFConvBertForMaskedLM(LanguageModel, HFConvBertPretrainedModel):
    encoder_class = HFConvBertModel
    word_activation = "gelu"
