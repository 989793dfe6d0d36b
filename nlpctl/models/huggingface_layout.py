"""Hugging Face's layout of a network and PaddleNLP's, a table per family that is read in both directions.

PaddleNLP can convert too (`from_pretrained(convert_from_torch=True)`), but it goes by the `architectures` of
config.json and not by the names in the file, so a disagreement leaves weights silently random or untransposed; it also
writes into the source folder and unpickles without limits. See docs/upstream.md. Here the names in the file decide,
nothing is written, and what no entry covers keeps its name, so that the strict assignment afterwards reports it.

Imports neither Paddle nor NumPy. A new family: a `Layout` in `LAYOUTS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nlpctl.config.saved_model import written_classes
from nlpctl.errors import UserError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Entry:
    """One module that has a weight and perhaps a bias, or one parameter, under both names.

    `*` in a name is the number of a layer. `transposed`: a linear layer, whose weight is [out, in] in PyTorch and
    [in, out] in Paddle. `alone`: the name is that of a parameter, not of a module. `heads`: ends of the names of the
    classes that have it, such as QuestionAnswering; none for a part of the encoder. `more`: modules that are one with
    it at Hugging Face: its outputs come first, then theirs, as many each.
    """

    theirs: str  # Hugging Face's
    ours: str  # PaddleNLP's
    transposed: bool = False
    alone: bool = False
    heads: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """What a family is called in the two layouts.

    `name`: what its classes in Transformers begin with. `model_type`: in Hugging Face's config.json, where several
    may mean the same network (`aliases`). `prefix`: of the encoder's names in a file with a head, without the dot, in
    both layouts. `entries`: names without the prefix. `tied`: PaddleNLP's names of parameters that are others' too;
    Hugging Face ties them when it reads. `keys`: Hugging Face's key of the config -> PaddleNLP's. `defaults`: under
    Hugging Face's keys, what Transformers takes for a key that its config.json lacks, where PaddleNLP takes something
    else. `fixed`: under PaddleNLP's keys, the only values that a network in Hugging Face's layout can have; they are
    not written. `unread`: PaddleNLP's keys that Transformers does not read. `preferred`: PaddleNLP's keys that
    Transformers reads too, before its own. `sines`: Hugging Face's name of a table that Paddle computes.

    `counts_otherwise`: only AS_TRANSFORMERS does its network count positions as Transformers does.

    The last two are of networks of PaddleNLP that are not AS_TRANSFORMERS. `written`: under Hugging Face's keys, what
    they always compute with. `of_heads`: by the end of their class, under PaddleNLP's keys, with which values alone
    their heads compute what those of Transformers do.
    """

    name: str
    model_type: str
    prefix: str
    entries: tuple[Entry, ...]
    keys: Mapping[str, str]
    told_by: str = r"encoder\.layer\.\d+\."  # a name that only Hugging Face's files have
    paddle_prefix: str = ""  # where it is another
    aliases: tuple[str, ...] = ()
    tied: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    sines: str = ""
    counts_otherwise: bool = False
    written: Mapping[str, Any] = field(default_factory=dict)
    of_heads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def entry(self, name: str) -> Entry | None:
        """The entry of a parameter under Hugging Face's name, given without the prefix."""
        return _find(name, {entry.theirs: entry for entry in self.entries})


def _module(theirs: str, ours: str = "", *heads: str) -> Entry:
    return Entry(theirs, ours or theirs, heads=heads)


def _linear(theirs: str, ours: str = "", *heads: str) -> Entry:
    return Entry(theirs, ours or theirs, transposed=True, heads=heads)


def _stacked(theirs: str, ours: str, *more: str) -> Entry:
    return Entry(theirs, ours, transposed=True, more=more)


def _parameter(theirs: str, ours: str = "", *heads: str) -> Entry:
    return Entry(theirs, ours or theirs, alone=True, heads=heads)


# In a config of PaddleNLP's: its network computes as Transformers does, also where no key of PaddleNLP's says so
# (upstream/unread_config.py).
AS_TRANSFORMERS = "as_transformers"
# Values of hidden_act: those that Paddle and Transformers call alike, and what Transformers calls the approximation of
# GELU by tanh.
ACTIVATIONS = ("gelu", "relu", "relu6", "silu", "swish", "mish", "tanh", "sigmoid")
TANH_GELU = ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh")
_GELU_TOO = "gelu_python"
OTHER_MODEL = "take another model: this one would answer otherwise than it was trained"
# Under Hugging Face's keys: what changes the arithmetic of Transformers' encoders, and the only value that is computed.
_ONLY: Mapping[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "rope_scaling": None,
}
# Hugging Face's names of the layer that scores words, which is the word embedding where a language model is tied.
_WORD_TABLES = (
    "cls.predictions.decoder.weight",
    "lm_head.decoder.weight",
    "generator_lm_head.weight",
    "predictions.decoder.weight",
    "lm_predictions.lm_head.decoder.weight",
    "decoder.weight",
)

_LABELLED = ("SequenceClassification", "TokenClassification", "MultipleChoice")
_READER = "QuestionAnswering"
_WORDS = "MaskedLM"

_EMBEDDINGS = (
    _module("embeddings.word_embeddings"),
    _module("embeddings.position_embeddings"),
    _module("embeddings.token_type_embeddings"),
    _module("embeddings.LayerNorm", "embeddings.layer_norm"),
)
_SELF, _ATTENTION = "encoder.layer.*.attention.self", "encoder.layers.*.self_attn"
_OUTPUT = (
    _linear("encoder.layer.*.attention.output.dense", "encoder.layers.*.self_attn.out_proj"),
    _module("encoder.layer.*.attention.output.LayerNorm", "encoder.layers.*.norm1"),
)
_FEED_FORWARD = (
    _linear("encoder.layer.*.intermediate.dense", "encoder.layers.*.linear1"),
    _linear("encoder.layer.*.output.dense", "encoder.layers.*.linear2"),
    _module("encoder.layer.*.output.LayerNorm", "encoder.layers.*.norm2"),
)
_LAYERS = (
    _linear(f"{_SELF}.query", f"{_ATTENTION}.q_proj"),
    _linear(f"{_SELF}.key", f"{_ATTENTION}.k_proj"),
    _linear(f"{_SELF}.value", f"{_ATTENTION}.v_proj"),
    *_OUTPUT,
    *_FEED_FORWARD,
)
_ALBERT = "encoder.albert_layer_groups.*.albert_layers.*"
_POOLER = (_linear("pooler.dense"),)
# PaddleNLP calls the head that reads answers as it calls a classifier's; only Hugging Face's names differ.
_HEADS = (
    _linear("classifier", "", *_LABELLED),
    _linear("qa_outputs", "classifier", _READER),
)
_TWO_LAYERS = (
    _linear("classifier.dense", "", "SequenceClassification"),
    _linear("classifier.out_proj", "", "SequenceClassification"),
)
# The last layer of a language model, tied to the word embedding, is [vocabulary, width] in both.
_BERT_WORDS = (
    _linear("cls.predictions.transform.dense", "cls.predictions.transform", _WORDS),
    _module("cls.predictions.transform.LayerNorm", "cls.predictions.layer_norm", _WORDS),
    _parameter("cls.predictions.bias", "cls.predictions.decoder_bias", _WORDS),
)
_BERT_TIED = frozenset(("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"))
# Encoders of nlpctl (networks/encoders.py) call that head "cls".
_OWN_BERT_WORDS = (
    _linear("cls.predictions.transform.dense", "cls.transform", _WORDS),
    _module("cls.predictions.transform.LayerNorm", "cls.layer_norm", _WORDS),
    _parameter("cls.predictions.bias", "cls.decoder_bias", _WORDS),
)
_ROBERTA_WORDS = (
    _linear("lm_head.dense", "", _WORDS),
    _module("lm_head.layer_norm", "", _WORDS),
    _parameter("lm_head.bias", "", _WORDS),
)
_ELECTRA_WORDS = (
    _linear("generator_predictions.dense", "", _WORDS),
    _module("generator_predictions.LayerNorm", "generator_predictions.layer_norm", _WORDS),
    _parameter("generator_lm_head.bias", "generator_lm_head_bias", _WORDS),
)


# ModernBERT's head stands on the encoder in every class; its language model trains it with the encoder.
_MODERNBERT = (
    _module("embeddings.tok_embeddings", "embeddings.word_embeddings"),
    _module("embeddings.norm", "embeddings.layer_norm"),
    _module("layers.*.attn_norm", "encoder.layers.*.norm1"),
    _stacked("layers.*.attn.Wqkv", *(f"encoder.layers.*.self_attn.{name}_proj" for name in "qkv")),
    _linear("layers.*.attn.Wo", "encoder.layers.*.self_attn.out_proj"),
    _module("layers.*.mlp_norm", "encoder.layers.*.norm2"),
    _stacked("layers.*.mlp.Wi", "encoder.layers.*.linear1", "encoder.layers.*.gate"),
    _linear("layers.*.mlp.Wo", "encoder.layers.*.linear2"),
    _module("final_norm", "encoder.norm"),
    _linear("head.dense", "", *_LABELLED, _READER, _WORDS),
    _module("head.norm", "", *_LABELLED, _READER, _WORDS),
    _linear("classifier", "", *_LABELLED, _READER),
    _parameter("decoder.bias", "", _WORDS),
)


def _same(*keys: str) -> dict[str, str]:
    return {key: key for key in keys}


_SIZES = _same(
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "pad_token_id",
)  # fmt: skip
_EPSILON = _same("layer_norm_eps")
_HEAD_DROPOUT = _same("classifier_dropout")
_BERT_UNREAD = ("pool_act", "fuse", "dropout")

LAYOUTS: Mapping[str, Layout] = {  # by PaddleNLP's model_type
    "bert": Layout(
        "Bert", "bert", "bert", (*_EMBEDDINGS, *_LAYERS, *_POOLER, *_HEADS, *_BERT_WORDS),
        _SIZES | _EPSILON | _HEAD_DROPOUT,
        tied=_BERT_TIED, defaults={"type_vocab_size": 2}, fixed={"pool_act": "tanh"}, unread=_BERT_UNREAD,
    ),
    "ernie": Layout(
        "Ernie", "ernie", "ernie",
        (*_EMBEDDINGS, _module("embeddings.task_type_embeddings"), *_LAYERS, *_POOLER, *_HEADS, *_BERT_WORDS),
        _SIZES | _EPSILON | _HEAD_DROPOUT | _same("task_type_vocab_size", "use_task_id"),
        tied=_BERT_TIED, defaults={"type_vocab_size": 2}, fixed={"task_id": 0}, unread=_BERT_UNREAD,
        written={"layer_norm_eps": 1e-12},
    ),
    "roberta": Layout(
        "Roberta", "roberta", "roberta",
        (*_EMBEDDINGS, *_LAYERS, *_POOLER, *_HEADS, *_TWO_LAYERS, *_ROBERTA_WORDS),
        _SIZES | _EPSILON | _HEAD_DROPOUT,
        aliases=("xlm-roberta", "camembert"),
        tied=frozenset(("lm_head.decoder.weight", "lm_head.decoder.bias")),
        defaults={"vocab_size": 50265, "type_vocab_size": 2, "pad_token_id": 1},
    ),
    "electra": Layout(
        "Electra", "electra", "electra",
        (*_EMBEDDINGS, _linear("embeddings_project"), *_LAYERS, *_HEADS, *_TWO_LAYERS, *_ELECTRA_WORDS),
        _SIZES | _EPSILON | _HEAD_DROPOUT | _same("embedding_size"),
        defaults={
            "vocab_size": 30522, "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        of_heads={
            "SequenceClassification": {"hidden_act": "gelu"},
            "MaskedLM": {"hidden_act": "gelu", "layer_norm_eps": 1e-12},
        },
    ),
    # The thetas stand under the keys of version 4, which version 5 and programs besides Transformers read as well.
    "modernbert": Layout(
        "ModernBert", "modernbert", "model", _MODERNBERT,
        _same(
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "hidden_activation", "max_position_embeddings", "initializer_range", "norm_eps", "norm_bias",
            "pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "global_rope_theta",
            "local_rope_theta", "global_attn_every_n_layers", "local_attention", "layer_types", "attention_bias",
            "attention_dropout", "embedding_dropout", "mlp_bias", "mlp_dropout", "decoder_bias", "classifier_pooling",
            "classifier_dropout", "classifier_bias", "classifier_activation",
        ),
        told_by=r"layers\.\d+\.attn\.", paddle_prefix="modernbert", tied=frozenset(("decoder.weight",)),
        defaults={"bos_token_id": 50281, "eos_token_id": 50282, "cls_token_id": 50281, "sep_token_id": 50282},
        fixed={"attention_norms": None},
    ),
    "distilbert": Layout(
        "DistilBert", "distilbert", "distilbert",
        (
            *_EMBEDDINGS,
            _linear("transformer.layer.*.attention.q_lin", "encoder.layers.*.self_attn.q_proj"),
            _linear("transformer.layer.*.attention.k_lin", "encoder.layers.*.self_attn.k_proj"),
            _linear("transformer.layer.*.attention.v_lin", "encoder.layers.*.self_attn.v_proj"),
            _linear("transformer.layer.*.attention.out_lin", "encoder.layers.*.self_attn.out_proj"),
            _module("transformer.layer.*.sa_layer_norm", "encoder.layers.*.norm1"),
            _linear("transformer.layer.*.ffn.lin1", "encoder.layers.*.linear1"),
            _linear("transformer.layer.*.ffn.lin2", "encoder.layers.*.linear2"),
            _module("transformer.layer.*.output_layer_norm", "encoder.layers.*.norm2"),
            *_HEADS,
            _linear("pre_classifier", "", "SequenceClassification"),
        ),
        {
            "vocab_size": "vocab_size", "dim": "hidden_size", "n_layers": "num_hidden_layers",
            "n_heads": "num_attention_heads", "hidden_dim": "intermediate_size", "activation": "hidden_act",
            "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob",
            "max_position_embeddings": "max_position_embeddings", "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
        },
        told_by=r"transformer\.layer\.\d+\.", defaults={"n_layers": 6},
        unread=("pool_act", "fuse", "layer_norm_eps"),
        preferred=("hidden_size", "num_attention_heads", "num_hidden_layers"),
    ),
    "hf_mpnet": Layout(
        "MPNet", "mpnet", "mpnet",
        (
            *_EMBEDDINGS,
            _linear("encoder.layer.*.attention.attn.q", "encoder.layers.*.self_attn.q_proj"),
            _linear("encoder.layer.*.attention.attn.k", "encoder.layers.*.self_attn.k_proj"),
            _linear("encoder.layer.*.attention.attn.v", "encoder.layers.*.self_attn.v_proj"),
            _linear("encoder.layer.*.attention.attn.o", "encoder.layers.*.self_attn.out_proj"),
            _module("encoder.layer.*.attention.LayerNorm", "encoder.layers.*.norm1"),
            *_FEED_FORWARD,
            _module("encoder.relative_attention_bias", "relative_attention_bias"),
            *_POOLER, *_HEADS, *_TWO_LAYERS,
            _linear("lm_head.dense", "cls.transform", _WORDS),
            _module("lm_head.layer_norm", "cls.layer_norm", _WORDS),
            _parameter("lm_head.bias", "cls.decoder_bias", _WORDS),
        ),
        {key: key for key in _SIZES if key != "type_vocab_size"} | _EPSILON | _same("relative_attention_num_buckets"),
        defaults={"vocab_size": 30527}, unread=("classifier_dropout",), counts_otherwise=True,
    ),
    "hf_albert": Layout(
        "Albert", "albert", "albert",
        (
            *_EMBEDDINGS,
            _linear("encoder.embedding_hidden_mapping_in", "embeddings_project"),
            _linear(f"{_ALBERT}.attention.query", "encoder.groups.*.*.self_attn.q_proj"),
            _linear(f"{_ALBERT}.attention.key", "encoder.groups.*.*.self_attn.k_proj"),
            _linear(f"{_ALBERT}.attention.value", "encoder.groups.*.*.self_attn.v_proj"),
            _linear(f"{_ALBERT}.attention.dense", "encoder.groups.*.*.self_attn.out_proj"),
            _module(f"{_ALBERT}.attention.LayerNorm", "encoder.groups.*.*.norm1"),
            _linear(f"{_ALBERT}.ffn", "encoder.groups.*.*.linear1"),
            _linear(f"{_ALBERT}.ffn_output", "encoder.groups.*.*.linear2"),
            _module(f"{_ALBERT}.full_layer_layer_norm", "encoder.groups.*.*.norm2"),
            _linear("pooler", "pooler.dense"),
            *_HEADS,
            _linear("predictions.dense", "cls.transform", _WORDS),
            _module("predictions.LayerNorm", "cls.layer_norm", _WORDS),
            _parameter("predictions.bias", "cls.decoder_bias", _WORDS),
        ),
        _SIZES | _EPSILON | _same("embedding_size", "num_hidden_groups", "inner_group_num")
        | {"classifier_dropout_prob": "classifier_dropout"},
        told_by=r"encoder\.albert_layer_groups\.",
        defaults={
            "embedding_size": 128, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384,
            "hidden_act": "gelu_new", "vocab_size": 30000, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
            "classifier_dropout_prob": 0.1,
        },
    ),
    "hf_deberta_v2": Layout(
        "DebertaV2", "deberta-v2", "deberta",
        (
            *_EMBEDDINGS,
            _linear("embeddings.embed_proj"),
            _linear(f"{_SELF}.query_proj", f"{_ATTENTION}.q_proj"),
            _linear(f"{_SELF}.key_proj", f"{_ATTENTION}.k_proj"),
            _linear(f"{_SELF}.value_proj", f"{_ATTENTION}.v_proj"),
            _linear(f"{_SELF}.pos_key_proj", f"{_ATTENTION}.pos_key_proj"),
            _linear(f"{_SELF}.pos_query_proj", f"{_ATTENTION}.pos_query_proj"),
            *_OUTPUT, *_FEED_FORWARD,
            _module("encoder.rel_embeddings", "encoder.positions.embeddings"),
            _module("encoder.LayerNorm", "encoder.positions.layer_norm"),
            _module("encoder.conv.conv", "encoder.beside.conv"),
            _module("encoder.conv.LayerNorm", "encoder.beside.layer_norm"),
            _linear("pooler.dense", "", "SequenceClassification"),
            *_HEADS,
            # Microsoft's own files of v3; what is written is the entry below, which Transformers reads by default.
            _linear("lm_predictions.lm_head.dense", "cls.transform", _WORDS),
            _module("lm_predictions.lm_head.LayerNorm", "cls.layer_norm", _WORDS),
            _parameter("lm_predictions.lm_head.bias", "cls.decoder_bias", _WORDS),
            *_OWN_BERT_WORDS,
        ),
        _SIZES | _EPSILON | _same(
            "relative_attention", "max_relative_positions", "position_buckets", "position_biased_input",
            "pos_att_type", "share_att_key", "norm_rel_ebd", "conv_kernel_size", "conv_groups", "conv_act",
            "pooler_dropout", "pooler_hidden_act", "embedding_size",
        ),
        defaults={"vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
                  "intermediate_size": 6144},
    ),
    "hf_nezha": Layout(
        "Nezha", "nezha", "nezha", (*_EMBEDDINGS, *_LAYERS, *_POOLER, *_HEADS, *_OWN_BERT_WORDS),
        _SIZES | _EPSILON | _HEAD_DROPOUT | _same("max_relative_position"), defaults={"classifier_dropout": 0.1},
    ),
    "hf_roformer": Layout(
        "RoFormer", "roformer", "roformer",
        (*_EMBEDDINGS, _linear("embeddings_project"), *_LAYERS, *_HEADS, *_TWO_LAYERS, *_OWN_BERT_WORDS),
        _SIZES | _EPSILON | _same("embedding_size", "rotary_value"),
        unread=("classifier_dropout",), sines="encoder.embed_positions.weight",
    ),
    "hf_convbert": Layout(
        "ConvBert", "convbert", "convbert",
        (
            *_EMBEDDINGS, _linear("embeddings_project"), *_LAYERS,
            _module(f"{_SELF}.key_conv_attn_layer", f"{_ATTENTION}.key_conv_attn_layer"),
            _module(f"{_SELF}.key_conv_attn_layer.depthwise", f"{_ATTENTION}.key_conv_attn_layer.depthwise"),
            _module(f"{_SELF}.key_conv_attn_layer.pointwise", f"{_ATTENTION}.key_conv_attn_layer.pointwise"),
            _linear(f"{_SELF}.conv_kernel_layer", f"{_ATTENTION}.conv_kernel_layer"),
            _linear(f"{_SELF}.conv_out_layer", f"{_ATTENTION}.conv_out_layer"),
            *_HEADS, *_TWO_LAYERS,
            _linear("generator_predictions.dense", "cls.transform", _WORDS),
            _module("generator_predictions.LayerNorm", "cls.layer_norm", _WORDS),
            _parameter("generator_lm_head.bias", "cls.decoder_bias", _WORDS),
        ),
        _SIZES | _EPSILON | _HEAD_DROPOUT | _same("embedding_size", "head_ratio", "conv_kernel_size", "num_groups"),
        defaults={"embedding_size": 768},
    ),
}  # fmt: skip

# Kept in the file by PyTorch, computed by Paddle.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Older files spell LayerNorm's parameters as TensorFlow did.
_OLD_SPELLING = {"gamma": "weight", "beta": "bias"}


# -- weights ----------------------------------------------------------------------------------------------------------


def is_huggingface_layout(names: Iterable[str], model_type: str = "bert") -> bool:
    """Whether the names in a weights file are Hugging Face's (encoder.layer.0.); Paddle's say encoder.layers.0."""
    told_by = LAYOUTS[model_type].told_by if model_type in LAYOUTS else Layout.told_by
    return any(re.search(rf"(^|\.){told_by}", name) for name in names)


def to_paddle(
    arrays: Mapping[str, np.ndarray], model_type: str, where: str, head: str | None = None
) -> dict[str, np.ndarray]:
    """Rename and transpose the arrays of a Hugging Face file; without the encoder's prefix where the file has none.

    `model_type`: PaddleNLP's. `head`: end of the class that the arrays are for; those of another head are left out
    where PaddleNLP calls them as those of this one. Raises UserError for a family whose layout nlpctl does not know.
    """
    layout = _layout(model_type, where)
    table = {entry.theirs: entry for entry in layout.entries}
    arrays = unwrapped(arrays, model_type)
    of_head = {entry.ours for entry in layout.entries if head is not None and head in entry.heads}
    converted = {}
    for name, array in arrays.items():
        bare = name.removeprefix(f"{layout.prefix}.")
        prefix = f"{layout.paddle_prefix or layout.prefix}." if bare != name else ""
        # Left in, they would count as entries without a place and hide real mistakes in that list.
        if bare in _BUFFERS:
            continue
        if bare == layout.sines:
            _refuse_other_sines(name, array, where)
            continue
        entry = _find(bare, table)
        if entry is None or (entry.more and (array.ndim == 0 or len(array) % (1 + len(entry.more)))):
            converted[prefix + bare] = array  # which no parameter is called
        elif not (entry.heads and head not in entry.heads and entry.ours in of_head):
            parts = (entry.ours, *entry.more)
            size = len(array) // len(parts) if entry.more else 0
            for place, ours in enumerate(parts):
                part = array[place * size : (place + 1) * size] if entry.more else array
                converted[prefix + _renamed(bare, ours, entry)] = _turned(part, entry, bare)
    if head == _WORDS:
        _refuse_untied(converted, where)
    return converted


def unwrapped(arrays: Mapping[str, np.ndarray], model_type: str) -> Mapping[str, np.ndarray]:
    """`arrays` without what stands before every name in the state of a wrapper: "module." of PyTorch's DataParallel,
    "_orig_mod." of torch.compile, "model." of a module that holds the network. As they are for a family whose layout
    nlpctl does not know. `model_type`: PaddleNLP's."""
    layout = LAYOUTS.get(model_type)
    if layout is None:
        return arrays
    inside, layer = arrays, re.compile(rf"({re.escape(layout.prefix)}\.)?{layout.told_by}")
    while inside:
        if any(layer.match(name) for name in inside):
            return inside
        if len({name.partition(".")[0] for name in inside}) > 1 or not all("." in name for name in inside):
            break
        inside = {name.partition(".")[2]: array for name, array in inside.items()}
    return arrays


def computed_tables(values: Mapping[str, Any], head: str) -> dict[str, np.ndarray]:
    """What Hugging Face's files have beside `to_huggingface`, since Paddle computes it.

    `values`: of PaddleNLP's config, with model_type. `head`: as in `to_huggingface`.
    """
    layout = LAYOUTS[values["model_type"]]
    if not layout.sines:
        return {}
    prefix = "" if head == "Model" else f"{layout.prefix}."
    size = values["hidden_size"] // values["num_attention_heads"]
    return {prefix + layout.sines: sines_and_cosines(values["max_position_embeddings"], size)}


def sines_and_cosines(rows: int, width: int) -> np.ndarray:
    """float32 [rows, width]: the sines of as many angles as half the width, then their cosines."""
    import numpy as np

    angles = np.arange(rows)[:, None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _refuse_other_sines(name: str, array: np.ndarray, where: str) -> None:
    """UserError if a table has other values than the sines that are computed here; bfloat16 has 3 digits of them."""
    import numpy as np

    from nlpctl.models.weights import to_float32

    is_table = array.ndim == 2 and array.shape[1] % 2 == 0
    if not is_table or not np.allclose(to_float32(array), sines_and_cosines(*array.shape), atol=1e-2):
        message = f"{name} has other values than the sines of positions, which are computed here"
        raise UserError(message, where, OTHER_MODEL)


def _refuse_untied(arrays: Mapping[str, np.ndarray], where: str) -> None:
    """UserError if words are scored by other weights than their embedding: no network here does so."""
    import numpy as np

    table = next((each for name, each in arrays.items() if name.endswith("embeddings.word_embeddings.weight")), None)
    for name in _WORD_TABLES:
        if table is not None and name in arrays and not np.array_equal(arrays[name], table):
            raise untied(name, "the word embedding", where)


def untied(name: str, other: str, where: str) -> UserError:
    message = f"{name} has other values than {other}, and the network has one parameter for both"
    return UserError(message, where, "take a model whose output layer is its embedding (tie_word_embeddings)")


def to_huggingface(
    arrays: Mapping[str, np.ndarray], model_type: str, head: str, where: str
) -> dict[str, np.ndarray]:
    """The arrays of a network under Hugging Face's names: the inverse of `to_paddle`.

    `arrays`: under PaddleNLP's names, with the encoder's prefix. `head`: end of the network's class, such as
    TokenClassification; "Model" for a bare encoder, whose names get no prefix. Transposed ones are views.
    Raises UserError for a family or a parameter that Hugging Face's layout has no name for.
    """
    import numpy as np

    layout = _layout(model_type, where)
    entries = [entry for entry in layout.entries if not entry.heads or head in entry.heads]
    table = {ours: entry for entry in entries for ours in (entry.ours, *entry.more)}
    stacked: dict[str, dict[int, np.ndarray]] = {}
    paddle_prefix = f"{layout.paddle_prefix or layout.prefix}."
    converted = {}
    for name, array in arrays.items():
        if name in layout.tied:
            continue
        bare = name.removeprefix(paddle_prefix)
        entry = _find(bare, table)
        if entry is None:
            hint = f"{architecture(model_type, head)} of Transformers lacks it: keep this model in nlpctl's own layout"
            raise UserError(f"{name} has no name in Hugging Face's layout", where=where, hint=hint)
        prefix = f"{layout.prefix}." if bare != name and head != "Model" else ""
        theirs, turned = prefix + _renamed(bare, entry.theirs, entry), _turned(array, entry, bare)
        if not entry.more:
            converted[theirs] = turned
            continue
        module = _NUMBER.sub("*", bare).rpartition(".")[0]
        stacked.setdefault(theirs, {})[(entry.ours, *entry.more).index(module)] = turned
    for theirs, parts in stacked.items():
        converted[theirs] = np.concatenate([parts[place] for place in sorted(parts)])
    return converted


def architecture(model_type: str, head: str) -> str:
    """The class in Transformers for the head of a family, such as BertForTokenClassification."""
    name = LAYOUTS[model_type].name
    return f"{name}Model" if head == "Model" else f"{name}For{head}"


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def _find(name: str, table: Mapping[str, Entry]) -> Entry | None:
    """The entry of the parameter `name`; `table` is by the names of its layout."""
    pattern = _NUMBER.sub("*", name)
    alone = table.get(pattern)
    if alone is not None and alone.alone:
        return alone
    module = table.get(pattern.rpartition(".")[0])
    return None if module is None or module.alone else module


def _renamed(name: str, pattern: str, entry: Entry) -> str:
    """The name of a parameter in the other layout, where its module, or itself, is called `pattern`."""
    if not entry.alone:
        last = name.rpartition(".")[2]
        pattern = f"{pattern}.{_OLD_SPELLING.get(last, last)}"
    numbers = iter(_NUMBER.findall(name))
    return re.sub(r"\*", lambda _: next(numbers), pattern)


def _turned(array: np.ndarray, entry: Entry, name: str) -> np.ndarray:
    return array.T if entry.transposed and name.endswith(".weight") and array.ndim == 2 else array


def _layout(model_type: str, where: str) -> Layout:
    if model_type not in LAYOUTS:
        families = ", ".join(known_types())
        raise UserError(
            f"weights in the Hugging Face layout of {model_type!r} cannot be converted",
            where=where,
            hint=f"families that can: {families}; or use the same model from PaddleNLP's hub",
        )
    return LAYOUTS[model_type]


# -- config.json ------------------------------------------------------------------------------------------------------


def known_types() -> Iterator[str]:
    """Every model_type of Hugging Face's whose layout is known."""
    for layout in LAYOUTS.values():
        yield from (layout.model_type, *layout.aliases)


def config_to_paddle(values: Mapping[str, Any], where: str = "config.json") -> dict[str, Any]:
    """A config.json of Hugging Face under PaddleNLP's keys; one of an unknown family or of PaddleNLP is left as it is.

    What Transformers takes for a missing key is filled in where PaddleNLP would take something else. UserError: the
    config asks for something that no network here computes.
    """
    if "paddlenlp_version" in values:
        return dict(values)
    theirs = values.get("model_type")
    if not isinstance(theirs, str):
        theirs = _type_of_class(values)
    model_type = next((ours for ours, each in LAYOUTS.items() if theirs in (each.model_type, *each.aliases)), None)
    if model_type is None:
        return dict(values)
    layout = LAYOUTS[model_type]
    quantised = values.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
        by = f" by {method}" if isinstance(method, str) else ""
        message = f"quantization_config: the weights are quantised{by}, and nlpctl reads fp32, fp16 and bf16 only"
        raise UserError(message, where, "take the model from before that; nlpctl compress makes int8 of it")
    for key, only in _ONLY.items():
        if values.get(key) not in (None, only):
            message = f"{key} is {values[key]!r}: the {layout.name} network here computes as with {only!r} only"
            raise UserError(message, where, OTHER_MODEL)
    # A key that only PaddleNLP's config has would change what is computed.
    unread = {*layout.fixed, *layout.unread, *layout.keys.values()} - layout.keys.keys()
    given = {
        key: "gelu" if value == _GELU_TOO else value
        for key, value in values.items()
        if key not in unread and (key != "pad_token_id" or value is not None)
    }
    named = {layout.keys.get(key, key): value for key, value in {**layout.defaults, **given}.items()}
    named |= {key: values[key] for key in layout.preferred if key in values}
    if model_type == "modernbert" and type(half := named.pop("sliding_window", None)) is int:
        named["local_attention"] = 2 * half  # Transformers 5 reads it, too, and first
    computes_otherwise = layout.written or layout.of_heads or layout.counts_otherwise
    return named | ({AS_TRANSFORMERS: True} if computes_otherwise else {}) | {"model_type": model_type}


def _type_of_class(values: Mapping[str, Any]) -> str | None:
    """The model_type of a config without one, by the class that it names; None if it names none of a known family."""
    for name in written_classes(values):
        for model_type in known_types():
            if re.match(rf"{model_type.replace('-', '')}(model|for|lmhead)", name.lower()):
                return model_type
    return None


def config_to_huggingface(values: Mapping[str, Any], head: str, where: str) -> dict[str, Any]:
    """The config.json that Transformers reads for a network: the inverse of `config_to_paddle`.

    `values`: of PaddleNLP's config, with model_type. `head`: as in `to_huggingface`. Labels are taken over.
    Raises UserError where the network computes something that Hugging Face's does not.
    """
    layout = _layout(values["model_type"], where)
    for key, value in layout.fixed.items():
        if values.get(key, value) != value:
            message = f"{key} is {values[key]!r}: {layout.name} networks of Transformers only have {value!r}"
            raise UserError(message, where=where, hint="keep this model in nlpctl's own layout")
    name, as_transformers = architecture(values["model_type"], head), values.get(AS_TRANSFORMERS)
    for key, value in {} if as_transformers else layout.of_heads.get(head, {}).items():
        if values.get(key, value) != value:
            message = f"{key} is {values[key]!r}, with which {name} of Transformers has another head than this network"
            raise UserError(message, where, "keep this model in nlpctl's own layout")
    written = {"architectures": [name], "model_type": layout.model_type}
    written |= {
        theirs: values[ours]
        for theirs, ours in layout.keys.items()
        # Without one of its own, a head has the dropout of the encoder, which some classes of Transformers cannot say.
        if ours in values and not (ours == "classifier_dropout" != theirs and values[ours] is None)
    }
    labels = {key: values[key] for key in ("id2label", "label2id") if values.get(key)}
    return written | ({} if as_transformers else dict(layout.written)) | labels | {"torch_dtype": "float32"}
