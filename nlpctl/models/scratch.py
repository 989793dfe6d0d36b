"""A small network trained from scratch: vocabulary from the training text or a dictionary, random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.config.checks import READ_BY_ARCHITECTURE
from nlpctl.config.saved_model import first_position
from nlpctl.config.schema import ScratchSection
from nlpctl.data.readers.dictionaries import read_dictionaries
from nlpctl.data.readers.lines import decode, numbered_lines
from nlpctl.data.text.units import (
    UnitSettings,
    UnitTokenizer,
    build_unit_vocabulary,
    known_share,
    read_entries,
    tokenizer_of_dictionaries,
    tokenizer_of_entries,
)
from nlpctl.data.text.vocabulary import SPECIAL_TOKENS, build_vocabulary, make_tokenizer
from nlpctl.errors import Problem, UserError
from nlpctl.models.families import OWN, Family, family_by_type

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
        assert texts is not None
        vocabulary = build_vocabulary(texts(), scratch.vocab_size, scratch.min_frequency, scratch.lowercase)
    reader = make_tokenizer(vocabulary, scratch.architecture, scratch.lowercase)
    return family, _config(scratch, reader), reader


def _unit_tokenizer(scratch: ScratchSection, texts: Callable[[], Iterable[str]] | None) -> UnitTokenizer:
    """The tokenizer of nlpctl's own networks, over the vocabulary in a file or of `texts`."""
    if scratch.vocabulary is None:
        assert texts is not None  # make_vocabulary needs one of the two
        sizes = (scratch.vocab_size, scratch.min_frequency)
        vocabulary = build_unit_vocabulary(texts(), scratch.unit, *sizes, scratch.lowercase)
        return UnitTokenizer(vocabulary, UnitSettings(scratch.unit, scratch.lowercase))
    try:
        tokenizer = tokenizer_of_entries(read_entries(Path(scratch.vocabulary)), scratch.unit, scratch.lowercase)
    except ValueError as error:
        raise UserError(str(error), where=scratch.vocabulary, hint="each special entry is there once") from None
    if texts is not None:
        share = known_share(tokenizer, islice(texts(), TEXTS_LOOKED_UP))
        coverage = f"{share:.1%} of the {scratch.unit} of the training text are in it"
        console.note(f"vocabulary: {len(tokenizer):,} entries from {scratch.vocabulary}; {coverage}")
        if share < MOSTLY:
            other = "words" if scratch.unit == "characters" else "characters"
            console.warn(f"most {scratch.unit} are unknown: does the file hold {other} (model.from_scratch.unit)?")
    return tokenizer


def _config(scratch: ScratchSection, tokenizer: Any) -> Mapping[str, Any]:
    """BERT's usual settings at the recipe's sizes, in the keys that all four families share."""
    pad = tokenizer.pad_token_id
    values = {
        "vocab_size": len(tokenizer),
        "hidden_size": scratch.hidden_size,
        "num_hidden_layers": scratch.num_hidden_layers,
        "num_attention_heads": scratch.num_attention_heads,
        "intermediate_size": scratch.intermediate_size,
        "hidden_act": "gelu",
        "hidden_dropout_prob": scratch.dropout,
        "attention_probs_dropout_prob": scratch.dropout,
        # So that all can use as many.
        "max_position_embeddings": MAX_POSITIONS + first_position({"model_type": scratch.architecture}, pad),
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
        "hidden_size": scratch.hidden_size,
        "dropout": scratch.dropout,
        "pad_token_id": tokenizer.pad_token_id,
    }
    sizes = {
        "embedding_size": scratch.embedding_size,
        "num_hidden_layers": scratch.num_hidden_layers,
        "kernel_sizes": list(scratch.kernel_sizes),
    }
    read = READ_BY_ARCHITECTURE[scratch.architecture]
    return values | {name: value for name, value in sizes.items() if name in read}


# -- pre-trained word vectors from a text file ------------------------------------------------------------------------
#
# The file holds one entry per line, `word v1 v2 ...`, as word2vec, GloVe and fastText write it; a first line with two
# numbers (entries and width) is passed over. A word may contain spaces.

MOST_PROBLEMS = 10  # bad lines that are listed


@dataclass(frozen=True)
class Vectors:
    """Vectors of those words of a vocabulary that the file has: id to float32 [width]."""

    by_id: Mapping[int, np.ndarray]
    width: int
    entries: int  # lines of the file that hold a vector


def fill_embedding(embedding: Any, vocabulary: Sequence[str], path: Path) -> int:
    """Set the rows of `embedding` (paddle.nn.Embedding, rows in the order of `vocabulary`) that `path` has.

    Prints the coverage and returns how many rows were set; the others keep what they have.
    UserError for a file that cannot be read, bad lines, another width, or no word in common.
    """
    rows, width = embedding.weight.shape
    vectors = read_vectors(path, vocabulary, width)
    if not vectors.by_id:
        raise UserError(
            f"none of its {vectors.entries:,} words is among the {len(vocabulary):,} of the vocabulary",
            where=str(path),
            hint="vectors of words need model.from_scratch.unit: words, those of characters need characters; a "
            "transformer has characters and pieces of words",
        )
    weights = embedding.weight.numpy()
    for index, vector in vectors.by_id.items():
        weights[index] = vector
    embedding.weight.set_value(weights)
    share = len(vectors.by_id) / len(vocabulary)
    console.note(f"vectors: {len(vectors.by_id):,} of {len(vocabulary):,} entries ({share:.1%}) from {path}")
    return len(vectors.by_id)


def read_vectors(path: Path, vocabulary: Sequence[str], width: int) -> Vectors:
    """The vectors of the words of `vocabulary`, `width` numbers each; of a repeated word the first.

    Only these are kept in memory. UserError lists up to ten bad lines as file:line.
    """
    ids = {word: index for index, word in enumerate(vocabulary)}
    by_id: dict[int, np.ndarray] = {}
    problems: list[Problem] = []
    entries = 0
    try:
        with path.open("rb") as stream:
            for number, raw in numbered_lines(stream, str(path)):
                if _is_heading(number, raw) or not raw.strip():
                    continue
                entries += 1
                try:
                    word, vector = _entry(raw, width, wanted=ids)
                except ValueError as error:
                    hint = "fix or delete the line"
                    if "numbers" in str(error):
                        hint = (
                            f"every line is a word and {width} numbers; the width is "
                            "model.from_scratch.embedding_size, of a transformer hidden_size"
                        )
                    problems.append(Problem(str(error), f"{path}:{number}", hint))
                    if len(problems) == MOST_PROBLEMS:
                        break
                    continue
                if vector is not None:
                    # The first one wins, as in gensim.
                    by_id.setdefault(ids[word], vector)
    except OSError as error:
        hint = "check model.embeddings and the file's rights"
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(path), hint=hint) from None
    if problems:
        raise UserError(problems=problems)
    return Vectors(by_id, width, entries)


def _entry(raw: bytes, width: int, wanted: Mapping[str, int]) -> tuple[str, np.ndarray | None]:
    """Word and vector of a line, the vector None if the word is not wanted. ValueError says what is wrong."""
    _, reason = decode(raw)
    if reason is not None:
        raise ValueError(reason)
    # Bytes are split at ASCII's white space only: U+3000 and the no-break space are words, or stand in words.
    fields = [part.decode() for part in raw.rsplit(maxsplit=width)]
    if len(fields) != width + 1:
        raise ValueError(f"{len(raw.split()) - 1} numbers where {width} are expected")
    word = fields[0]
    # A line with too many numbers otherwise looks like a word that ends with a number.
    if " " in word and _is_number(word.rsplit(maxsplit=1)[1]):
        raise ValueError(f"more than {width} numbers")
    if word not in wanted:
        return word, None
    try:
        vector = np.array(fields[1:], np.float32)
    except ValueError:
        wrong = next(value for value in fields[1:] if not _is_number(value))
        raise ValueError(f"not a number: {wrong[:40]!r}") from None
    if not np.isfinite(vector).all():
        raise ValueError("a value is infinite or not a number")
    return word, vector


def _is_heading(number: int, raw: bytes) -> bool:
    """Whether it is word2vec's header line: the number of entries and the dimension."""
    fields = raw.split()
    return number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

