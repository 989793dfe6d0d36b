"""Adds tokens to a tokenizer, and a row to every parameter of the network that has one row per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.data.readers.lines import read_lines
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.errors import UserError
from nlpctl.models.parameters import named
from nlpctl.names import and_more, counted

KEY = "model.add_tokens"


@dataclass(frozen=True)
class AddedTokens:
    """The result of `add_tokens`.

    `tokenizer`: the extended tokenizer. `pieces`: the id of each new token -> the ids that encoded it before.
    `new`: the new tokens in the order of their ids, in the form that is matched (lower-cased by some tokenizers).
    `known`: words that were in the vocabulary already.
    """

    tokenizer: Any
    pieces: Mapping[int, Sequence[int]]
    new: tuple[str, ...]
    known: tuple[str, ...]

    def describe(self) -> list[str]:
        """For the console, line by line."""
        lines = []
        if self.new:
            first, last = min(self.pieces), max(self.pieces)
            ids = f"id {first:,}" if first == last else f"ids {first:,} to {last:,}"
            lines.append(f"added {counted(len(self.new), 'tokens')}, {ids}: {and_more(self.new, 8)}")
        if self.known:
            lines.append(f"in the vocabulary already: {and_more(self.known, 8)}")
        return lines


def read_tokens(tokens: Sequence[str] | str) -> list[str]:
    """The words of a recipe: a list, or a file with one per line. Blank lines are skipped.

    UserError for blank words in a list, and a file that cannot be read or holds none.
    """
    if isinstance(tokens, str):
        words = [text.strip() for _, text in read_lines(Path(tokens), "file of words")]
        words = [word for word in words if word]
        if not words:
            raise UserError("holds no words", where=tokens, hint="write one word per line")
        return words
    if any(not word.strip() for word in tokens):
        raise UserError("a word of the list is blank", where=KEY, hint="delete it")
    broken = next((word for word in tokens if len(word.strip().splitlines()) > 1), None)
    if broken is not None:
        raise UserError(f"a word of the list has a line break: {broken!r}", where=KEY, hint="name its parts one by one")
    return [word.strip() for word in tokens]


def add_tokens(tokenizer: Any, words: Sequence[str]) -> AddedTokens:
    """Add `words` to the tokenizer as whole tokens.

    UserError if the vocabulary cannot grow, or a word could never be found.
    """
    vocabulary = tokenizer.get_vocab()
    forms = list(dict.fromkeys(_form(tokenizer, word) for word in words))
    new = [form for form in forms if form not in vocabulary]
    pieces = build_encoder(tokenizer).pieces(new)  # before the addition, which changes PaddleNLP's in place
    # Repeated lines in vocab.txt make fewer entries than ids, and PaddleNLP numbers new tokens from len() on.
    if max(vocabulary.values()) + 1 != len(tokenizer):
        raise UserError(
            f"the vocabulary has {len(tokenizer)} entries, but ids up to {max(vocabulary.values())}",
            where=KEY,
            hint="entries stand in vocab.txt twice: the ids of new ones would not be their own",
        )
    size = len(tokenizer)
    grown: Any
    if isinstance(tokenizer, OwnTokenizer):
        grown = tokenizer.with_tokens(new) if new else tokenizer
    else:
        tokenizer.add_tokens(new)
        grown = tokenizer
    ids = range(size, size + len(new))
    # PaddleNLP's add_tokens passes over words that it takes for known or special, without a warning.
    if len(grown) != size + len(new):
        raise UserError("the tokenizer did not take every word", where=KEY, hint="write them without special tokens")
    known = tuple(form for form in forms if form in vocabulary)
    return AddedTokens(grown, dict(zip(ids, pieces, strict=True)), tuple(new), known)


def vocabulary_parameters(network: Any, has_word_head: bool) -> dict[str, int]:
    """Parameters with one row per token -> the axis of the rows: the embedding, and an output layer of words."""
    size = network.config.vocab_size
    embedding = network.base_model.get_input_embeddings().weight
    prefix = f"{network.base_model_prefix}."
    return {
        name: parameter.shape.index(size)
        for name, parameter in named(network).items()
        if parameter is embedding or (has_word_head and not name.startswith(prefix) and size in parameter.shape)
    }


def make_room(
    arrays: Mapping[str, np.ndarray], network: Any, axes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """`arrays` of a weights file, with zero rows for the tokens that only `network` has."""
    rows = network.config.vocab_size
    grown = dict(arrays)
    for name, axis in axes.items():
        if name in arrays and arrays[name].ndim > axis and arrays[name].shape[axis] < rows:
            widths = [(0, rows - arrays[name].shape[axis] if i == axis else 0) for i in range(arrays[name].ndim)]
            grown[name] = np.pad(arrays[name], widths)
    return grown


def start_as_mean(network: Any, axes: Mapping[str, int], added: AddedTokens) -> None:
    """Initialises every new row with the mean of the rows of the token's former pieces, which were trained."""
    parameters = named(network)
    done: set[int] = set()
    for name, axis in axes.items():
        if id(parameters[name]) in done:  # an output layer that is the embedding
            continue
        done.add(id(parameters[name]))
        rows = np.moveaxis(parameters[name].numpy(), axis, 0).copy()
        for index, pieces in added.pieces.items():
            # In float32, like the parameter; the former pieces' rows come first, so they are never new ones themselves.
            rows[index] = rows[list(pieces)].mean(0)
        parameters[name].set_value(np.ascontiguousarray(np.moveaxis(rows, 0, axis)))


def _form(tokenizer: Any, word: str) -> str:
    """The form of `word` that the tokenizer matches."""
    return word.lower() if getattr(tokenizer, "do_lower_case", False) else word
