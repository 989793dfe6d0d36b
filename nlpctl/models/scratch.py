"""A small network trained from scratch: vocabulary from the training text or a dictionary, random weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.model_section import ScratchSection
from nlpctl.data.dictionaries import read_dictionaries
from nlpctl.data.entries_file import read_entries
from nlpctl.data.units import (
    UnitSettings,
    UnitTokenizer,
    build_unit_vocabulary,
    known_share,
    tokenizer_of_dictionaries,
    tokenizer_of_entries,
)
from nlpctl.data.vocabulary import SPECIAL_TOKENS, build_vocabulary, write_tokenizer
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Family, family_by_type
from nlpctl.upstream.tokenizer_files import keep_resources

MAX_POSITIONS = 512
TEXTS_LOOKED_UP, MOSTLY = 1000, 0.5  # how many texts tell whether a vocabulary file fits, and the least share it has


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
    if texts is None and scratch.vocabulary is None:
        raise UserError(
            "needs training text to build its vocabulary from",
            where="model.from_scratch",
            hint="set data.train, or load a model with model.name_or_path",
        )
    if scratch.architecture in OWN.values():
        tokenizer = _unit_tokenizer(scratch, texts)
        return family, _network_config(scratch, tokenizer), tokenizer
    if scratch.hidden_size % scratch.num_attention_heads:
        raise UserError(
            f"num_attention_heads {scratch.num_attention_heads} does not divide hidden_size {scratch.hidden_size}",
            where="model.from_scratch.num_attention_heads",
            hint="64 units per head are usual: hidden_size 128 with 2 heads",
        )
    if scratch.vocabulary is not None:
        vocabulary = read_entries(Path(scratch.vocabulary)).completed(SPECIAL_TOKENS.values())
    else:
        vocabulary = build_vocabulary(texts(), scratch.vocab_size, scratch.min_frequency, scratch.lowercase)
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as folder:
        tokenizer = write_tokenizer(Path(folder), vocabulary, scratch.architecture, scratch.lowercase)
        # The temporary folder is gone after this block, and saving would copy vocab.txt from it.
        keep_resources(tokenizer)
    return family, _config(scratch, tokenizer), tokenizer


def _unit_tokenizer(scratch: ScratchSection, texts: Callable[[], Iterable[str]] | None) -> UnitTokenizer:
    """The tokenizer of nlpctl's own networks, over the vocabulary in a file or of `texts`."""
    if scratch.vocabulary is None:
        sizes = (scratch.vocab_size, scratch.min_frequency)
        vocabulary = build_unit_vocabulary(texts(), scratch.unit, *sizes, scratch.lowercase)
        return UnitTokenizer(vocabulary, UnitSettings(scratch.unit, scratch.lowercase))
    try:
        tokenizer = tokenizer_of_entries(read_entries(Path(scratch.vocabulary)), scratch.unit, scratch.lowercase)
    except ValueError as error:
        raise UserError(str(error), where=scratch.vocabulary, hint="each special entry is there once") from None
    if texts is not None:
        share = known_share(tokenizer, islice(texts(), TEXTS_LOOKED_UP))
        found = f"{share:.1%} of the {scratch.unit} of the training text are in it"
        console.note(f"vocabulary: {len(tokenizer):,} entries from {scratch.vocabulary}; {found}")
        if share < MOSTLY:
            other = "words" if scratch.unit == "characters" else "characters"
            console.warn(f"most {scratch.unit} are unknown: does the file hold {other} (model.from_scratch.unit)?")
    return tokenizer


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
