"""Tokenisation with character offsets, for answers that must be located exactly in the text.

PaddleNLP's tokenizers return no offsets. They lower case, strip accents and drop characters, so their pieces cannot be
searched for in the text. But their output for a single character is known (CharacterTable). So the pieces of a word
are aligned with the normalised characters of the word. If that fails ([UNK] in the word, another kind of tokenizer),
every piece gets the span of the whole word. Offsets are therefore exact or coarse, never wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.library_tokenizer import LibraryEncoder
from nlpctl.data.text.units import UnitEncoder
from nlpctl.data.text.word_spans import is_ideograph, word_spans
from nlpctl.data.text.wordpiece import HARD

_DIGITS_OR_NOT = re.compile(r"\d[\d\W]*|\D+")  # marks (\W) stay with the digit that they follow
_CONTINUES = "##"  # what WordPiece writes before a piece inside a word


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
        return Pieces(*(np.array(each, np.int32) for each in encoder.located(text)))
    parts = [[part] for word in word_spans(text) for part in _parts(text, *word)]
    words = [unit for word in encoder.added.keep_whole(text, parts) for unit in word]
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    for (start, end), pieces in zip(words, encoder.pieces([text[start:end] for start, end in words]), strict=True):
        ids += pieces
        # Most words are one piece, which needs no alignment.
        if len(pieces) == 1:
            spans.append((start, end))
        else:
            spans += [(start + first, start + last) for first, last in _inside(text[start:end], pieces, encoder)]
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


def _parts(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A word of Chinese text cut where digits meet letters: 581b after an ideograph may be "581" and "b".

    A vocabulary may have 581b as one piece, and no answer could end inside it. Words that stand alone
    (the 20th century) are left to the tokenizer.
    """
    if end - start == 1:
        return [(start, end)]
    touches = (start > 0 and is_ideograph(text[start - 1])) or (end < len(text) and is_ideograph(text[end]))
    if not touches:
        return [(start, end)]
    return [(start + part.start(), start + part.end()) for part in _DIGITS_OR_NOT.finditer(text[start:end])]


def _inside(word: str, ids: Sequence[int], encoder: TextEncoder) -> list[tuple[int, int]]:
    """Offsets in `word` of its pieces: they follow each other, or are all the whole word."""
    whole = [(0, len(word))] * len(ids)
    normal = _normal_form(word, encoder)
    if normal is None:
        return whole
    text, owners = normal
    forms = [form.removeprefix(_CONTINUES) or form for form in encoder.forms(ids)]
    # [UNK], or pieces of a tokenizer that normalises in another way.
    if "".join(forms) != text:
        return whole
    spans, read, start = [], 0, 0
    for form in forms:
        read += len(form)
        # Up to where the next piece begins, so that what the tokenizer drops stays with what it follows; a
        # character that two pieces share belongs to both.
        end = len(word) if read == len(text) else max(owners[read], owners[read - 1] + 1)
        spans.append((start, end))
        start = len(word) if read == len(text) else owners[read]
    return spans


def _normal_form(word: str, encoder: TextEncoder) -> tuple[str, list[int]] | None:
    """The normalised form of `word`, and for each of its characters the index in `word`; None if unknown."""
    if encoder.characters is None:
        return None
    text, owners = "", []
    for i, character in enumerate(word):
        made = encoder.characters[ord(character)]
        if made == HARD:
            return None
        # The blanks mark a character that stands alone; inside a word of one piece they have no counterpart.
        made = made.strip()
        text += made
        owners += [i] * len(made)
    return text, owners
