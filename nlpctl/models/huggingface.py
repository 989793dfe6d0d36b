"""Converts encoder weights from the Hugging Face layout to PaddleNLP's, name by name.

PaddleNLP can convert too (`from_pretrained(convert_from_torch=True)`), but it goes by the
`architectures` of config.json and not by the names in the file, so a disagreement leaves weights
silently random or untransposed; it also writes into the source folder and unpickles without limits.
See nlpctl/upstream/from_pretrained.py. Here the names in the file decide, nothing is written, and what
no rule covers keeps its name, so that the strict assignment afterwards reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from nlpctl.errors import UserError

CONVERTIBLE = ("bert", "ernie", "roberta", "electra")

_LAYER = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "linear1",
    "output.dense": "linear2",
    "output.LayerNorm": "norm2",
}
# Linear layers store their weight as [out, in] in PyTorch and as [in, out] in Paddle.
_LINEAR = re.compile(
    r"(encoder\.layers\.\d+\.(self_attn\.(q|k|v|out)_proj|linear[12])"
    r"|pooler\.dense|embeddings_project|classifier(\.(dense|out_proj))?"
    r"|cls\.predictions\.transform|lm_head\.dense|generator_predictions\.dense)\.weight"
)
_LAYER_NAME = re.compile(r"encoder\.layer\.(\d+)\.(.+)\.(\w+)")
# Older files spell LayerNorm's parameters as TensorFlow did.
_OLD_SPELLING = {"gamma": "weight", "beta": "bias"}
# Language models' heads. The last layer, tied to the word embedding, is [vocabulary, width] in both.
_WORD_HEADS = {
    "cls.predictions.transform.dense.weight": "cls.predictions.transform.weight",
    "cls.predictions.transform.dense.bias": "cls.predictions.transform.bias",
    "cls.predictions.transform.LayerNorm.weight": "cls.predictions.layer_norm.weight",
    "cls.predictions.transform.LayerNorm.bias": "cls.predictions.layer_norm.bias",
    "cls.predictions.bias": "cls.predictions.decoder_bias",
    "generator_predictions.LayerNorm.weight": "generator_predictions.layer_norm.weight",
    "generator_predictions.LayerNorm.bias": "generator_predictions.layer_norm.bias",
    "generator_lm_head.bias": "generator_lm_head_bias",
}
# The head that reads answers; PaddleNLP calls it as it calls a classifier's, so it is told by Hugging Face's name.
_READER, _CLASSIFIER = "qa_outputs.", "classifier."
_READER_CLASS = "QuestionAnswering"
# Kept in the file by PyTorch, computed by Paddle.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def is_huggingface_layout(names: Iterable[str]) -> bool:
    """Whether the names in a weights file are Hugging Face's (encoder.layer.0.); Paddle's say encoder.layers.0."""
    return any(re.search(r"(^|\.)encoder\.layer\.\d+\.", name) for name in names)


def of_head(arrays: Mapping[str, np.ndarray], head: str) -> dict[str, np.ndarray]:
    """The arrays under Hugging Face's names, without a head that PaddleNLP would call as that of the class `head`."""
    other = _CLASSIFIER if head == _READER_CLASS else _READER
    return {name: array for name, array in arrays.items() if not name.startswith(other)}


def to_paddle_layout(arrays: Mapping[str, np.ndarray], model_type: str, where: str) -> dict[str, np.ndarray]:
    """Rename and transpose the arrays of a Hugging Face file; the encoder's prefix is kept as it is in the file.

    Raises UserError for a family whose layout nlpctl does not know.
    """
    if model_type not in CONVERTIBLE:
        raise UserError(
            f"weights in the Hugging Face layout of {model_type!r} cannot be converted",
            where=where,
            hint=f"families that can: {', '.join(CONVERTIBLE)}; or use the same model from PaddleNLP's hub",
        )
    converted = {}
    for name, array in arrays.items():
        # Files of a bare encoder have no prefix; with_prefix adds it later.
        prefix = f"{model_type}." if name.startswith(f"{model_type}.") else ""
        target = paddle_name(name.removeprefix(prefix))
        # Left in, they would count as entries without a place and hide real mistakes in that list.
        if target in _BUFFERS:
            continue
        converted[prefix + target] = array.T if _LINEAR.fullmatch(target) and array.ndim == 2 else array
    return converted


def paddle_name(name: str) -> str:
    """PaddleNLP's name of a parameter, given without the encoder's prefix."""
    stem, _, last = name.rpartition(".")
    if stem.endswith("LayerNorm"):
        name = f"{stem}.{_OLD_SPELLING.get(last, last)}"
    if name.startswith(_READER):
        return name.replace(_READER, _CLASSIFIER)
    if name in _WORD_HEADS:
        return _WORD_HEADS[name]
    layer = _LAYER_NAME.fullmatch(name)
    if layer and layer[2] in _LAYER:
        return f"encoder.layers.{layer[1]}.{_LAYER[layer[2]]}.{layer[3]}"
    return name.replace("embeddings.LayerNorm.", "embeddings.layer_norm.")
