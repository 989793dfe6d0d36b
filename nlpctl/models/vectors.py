"""Initialises the embedding of a network trained from scratch with pre-trained word vectors from a text file.

The file holds one entry per line, `word v1 v2 ...`, as word2vec, GloVe and fastText write it; a first line
with two numbers (entries and width) is passed over. A word may contain spaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.data.lines import decode, numbered_lines
from nlpctl.errors import Problem, UserError

SHOWN = 10  # bad lines that are listed


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
    found: dict[int, np.ndarray] = {}
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
                    problems.append(Problem(str(error), f"{path}:{number}", _hint(width, str(error))))
                    if len(problems) == SHOWN:
                        break
                    continue
                if vector is not None:
                    # The first one wins, as in gensim.
                    found.setdefault(ids[word], vector)
    except OSError as error:
        hint = "check model.embeddings and the file's rights"
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(path), hint=hint) from None
    if problems:
        raise UserError(problems=problems)
    return Vectors(found, width, entries)


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


def _hint(width: int, reason: str) -> str:
    if "numbers" in reason:
        return (
            f"every line is a word and {width} numbers; the width is model.from_scratch.embedding_size, of a "
            "transformer hidden_size"
        )
    return "fix or delete the line"
