"""A small network trained from scratch: vocabulary from the training text or a dictionary, random weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.model_section import ScratchSection
from nlpctl.data.dictionaries import read_dictionaries
from nlpctl.data.units import UnitSettings, UnitTokenizer, build_unit_vocabulary, tokenizer_of_dictionaries
from nlpctl.data.vocabulary import build_vocabulary, write_tokenizer
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Family, family_by_type
from nlpctl.upstream.tokenizer_files import keep_resources

MAX_POSITIONS = 512


def make_vocabulary(
    scratch: ScratchSection, texts: Callable[[], Iterable[str]] | None
) -> tuple[Family, Mapping[str, Any], Any]:
    """Family, config values and tokenizer of a new encoder. `texts` gives the training text.

    Raises UserError when there is no text, or the sizes do not fit together.
    """
    family = family_by_type(scratch.architecture, "model.from_scratch.architecture")
    if scratch.dictionaries is not None:
        tokenizer = tokenizer_of_dictionaries(read_dictionaries(Path(scratch.dictionaries)), scratch.lowercase)
        return family, _network_config(scratch, tokenizer), tokenizer
    if texts is None:
        raise UserError(
            "needs training text to build its vocabulary from",
            where="model.from_scratch",
            hint="set data.train, or load a model with model.name_or_path",
        )
    if scratch.architecture in OWN.values():
        sizes = (scratch.vocab_size, scratch.min_frequency)
        vocabulary = build_unit_vocabulary(texts(), scratch.unit, *sizes, scratch.lowercase)
        tokenizer = UnitTokenizer(vocabulary, UnitSettings(scratch.unit, scratch.lowercase))
        return family, _network_config(scratch, tokenizer), tokenizer
    if scratch.hidden_size % scratch.num_attention_heads:
        raise UserError(
            f"num_attention_heads {scratch.num_attention_heads} does not divide hidden_size {scratch.hidden_size}",
            where="model.from_scratch.num_attention_heads",
            hint="64 units per head are usual: hidden_size 128 with 2 heads",
        )
    vocabulary = build_vocabulary(texts(), scratch.vocab_size, scratch.min_frequency, scratch.lowercase)
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as folder:
        tokenizer = write_tokenizer(Path(folder), vocabulary, scratch.architecture, scratch.lowercase)
        # The temporary folder is gone after this block, and saving would copy vocab.txt from it.
        keep_resources(tokenizer)
    return family, _config(scratch, tokenizer), tokenizer


def _config(scratch: ScratchSection, tokenizer: Any) -> Mapping[str, Any]:
    """BERT's usual settings at the recipe's sizes, in the keys that all four families share."""
    pad = tokenizer.pad_token_id
    # RoBERTa's positions start behind the padding id; give it as many usable ones as the others.
    positions = MAX_POSITIONS + pad + 1 if scratch.architecture == "roberta" else MAX_POSITIONS
    values = {
        "vocab_size": len(tokenizer),
        "hidden_size": scratch.hidden_size,
        "num_hidden_layers": scratch.num_hidden_layers,
        "num_attention_heads": scratch.num_attention_heads,
        "intermediate_size": scratch.intermediate_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "pad_token_id": pad,
    }
    # ELECTRA's embeddings may be narrower and then need a projection; equal sizes need none.
    return values | ({"embedding_size": scratch.hidden_size} if scratch.architecture == "electra" else {})


def _network_config(scratch: ScratchSection, tokenizer: UnitTokenizer) -> Mapping[str, Any]:
    """The recipe's sizes in the keys of nlpctl's own networks."""
    values = {
        "vocab_size": len(tokenizer),
        "embedding_size": scratch.embedding_size,
        "hidden_size": scratch.hidden_size,
        "dropout": scratch.dropout,
        "pad_token_id": tokenizer.pad_token_id,
    }
    own = {
        "bilstm": {"num_hidden_layers": scratch.num_hidden_layers},
        "bigru": {"num_hidden_layers": scratch.num_hidden_layers},
        "textcnn": {"kernel_sizes": list(scratch.kernel_sizes)},
        "bag_of_embeddings": {},
    }
    return values | own[scratch.architecture]
