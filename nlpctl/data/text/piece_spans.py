"""Tokenisation with character offsets, for answers that must be located in the text.

The tokenizers library says where its pieces stand. PaddleNLP's tokenizers do not, and lower-case, strip accents and
drop characters, so their pieces cannot be searched for: each has the span of the word that it is of. Offsets are
exact or coarse, never wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.library_tokenizer import LibraryEncoder
from nlpctl.data.text.tokenizers import PaddleTextEncoder
from nlpctl.data.text.units import UnitEncoder
from nlpctl.data.text.word_spans import word_spans


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """`ids` int32 [n]; `spans` int32 [n, 2], start and end of each piece in the text, in characters."""

    ids: np.ndarray
    spans: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def read_pieces(text: str, encoder: TextEncoder) -> Pieces:
    """All pieces of `text`, without special tokens. Text of nothing but white space has none."""
    if isinstance(encoder, LibraryEncoder):
        ids, spans = encoder.located(text)
        return Pieces(np.array(ids, np.int32), np.array(spans, np.int32).reshape(-1, 2))
    words = word_spans(text)
    if isinstance(encoder, PaddleTextEncoder):
        words = [unit for word in encoder.added.keep_whole(text, [[word] for word in words]) for unit in word]
    ids, spans = [], []
    for word, pieces in zip(words, encoder.pieces([text[start:end] for start, end in words]), strict=True):
        ids += pieces
        spans += [word] * len(pieces)
    return Pieces(np.array(ids, np.int32), np.array(spans, np.int32).reshape(-1, 2))


def unknown_texts(ids: Sequence[int], texts: Iterable[str], encoder: TextEncoder) -> dict[int, str]:
    """Place -> what the text says where `ids`, those of a row, have the unknown token.

    `texts`: of the row, in order; they may have been cut, and template words may stand between them. A place is left
    out where the tokenizer's output does not tell what it stands for.
    """
    unknown = encoder.tokenizer.unk_token_id
    if unknown not in ids:
        return {}
    written: list[tuple[int, str]] = []
    for text in texts:
        if isinstance(encoder, UnitEncoder):  # its units may be words of several ideographs, which no piece is
            written += zip(encoder.tokenizer.ids(text), encoder.tokenizer.units(text), strict=True)
            continue
        pieces = read_pieces(text, encoder)
        written += [(int(id), text[start:end]) for id, (start, end) in zip(pieces.ids, pieces.spans, strict=True)]
    matcher = difflib.SequenceMatcher(None, list(ids), [id for id, _ in written], autojunk=False)
    return {
        block.a + i: written[block.b + i][1]
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
        if ids[block.a + i] == unknown
    }
