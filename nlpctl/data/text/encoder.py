"""Converts text to token ids, for data sets, collators and predictors.

Nothing here starts threads, so an encoder may be used before and after a fork (DataLoader workers) and
TOKENIZERS_PARALLELISM does not matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from nlpctl.errors import UserError

Span = tuple[int, int]

# Words kept; about 20 MB. A stream of ever new words must not grow the process.
MAX_WORDS = 65_536
_LONG_WORD = 50  # characters


@dataclass(slots=True)
class Encoding:
    """One text (or pair) as ids, special tokens included, not padded.

    token_type_ids has the same length, or is empty for a tokenizer that makes none. `truncated`: the text had more
    tokens than these, and the network does not read the others.
    """

    input_ids: list[int]
    token_type_ids: list[int]
    truncated: bool = False


class TextEncoder(ABC):
    """Texts to `Encoding`s. Can be pickled; holds no locks and no threads."""

    kind: Literal["paddlenlp", "units", "library"]

    def __init__(self, tokenizer: Any):
        self.pad_id: int = tokenizer.pad_token_id
        self.pad_token_type_id: int = tokenizer.pad_token_type_id
        self.uses_token_types: bool = "token_type_ids" in tokenizer.model_input_names
        self._overhead = {pair: tokenizer.num_special_tokens_to_add(pair=pair) for pair in (False, True)}
        self.tokenizer = tokenizer
        self._unknown: int = tokenizer.unk_token_id
        self._pieces = PiecesOfWords(self._word, self._unknown)
        self._built = tokenizer.build_inputs_with_special_tokens
        self._types = tokenizer.create_token_type_ids_from_sequences

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool = True
    ) -> list[Encoding]:
        """Encode a batch, cutting each row to `max_length` tokens; of a pair the longer side is cut first.

        `tell_cut` False: nobody asks which rows are `truncated`, and what would take time is False.
        Raises UserError when `max_length` leaves no room for text, ValueError when `texts` and `pairs`
        differ in length.
        """
        least = self._overhead[pairs is not None] + 1
        if max_length < least:
            raise UserError(
                f"{max_length} tokens leave no room for text besides the special tokens",
                where="data.max_seq_length",
                hint=f"set it to {least} or more",
            )
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"{len(texts)} texts but {len(pairs)} second texts")
        return self._encode(texts, pairs, max_length, tell_cut) if len(texts) else []

    def overhead(self, pair: bool) -> int:
        """The number of special tokens around a text, or a pair of texts."""
        return self._overhead[pair]

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word, tokenised alone; a word of which nothing is left is one unknown token.

        The lists are shared between equal words: they must not be changed.
        """
        return list(map(self._pieces.__getitem__, words))

    def pieces_in(self, text: str, spans: Sequence[Span]) -> list[list[int]]:
        """The ids of the words text[start:end], each in the form that it has in the text; otherwise as `pieces`."""
        return self.pieces([text[start:end] for start, end in spans])

    def forms(self, ids: Sequence[int]) -> list[str]:
        """The pieces as the vocabulary writes them."""
        return self.tokenizer.convert_ids_to_tokens(list(ids))

    def strips_before(self, token: str | None) -> bool:
        """Whether blanks before a special token belong to it."""
        return False

    def assemble(self, first: list[int], second: list[int] | None = None) -> Encoding:
        """Special tokens and token types around ids, of one text or of a pair."""
        types = self._types(first, second) if self.uses_token_types else []
        return Encoding(self._built(first, second), types)

    def starts(self, first: int, pair: bool) -> tuple[int, int | None]:
        """The positions at which the two texts of an assembled row begin; the first text has `first` ids."""
        if not pair:
            # Marker ids reveal the layout of any tokenizer, without a table of special tokens per class.
            return self._built([-1]).index(-1), None
        row = self._built([-1], [-2])
        return row.index(-1), row.index(-2) + first - 1

    @abstractmethod
    def _word(self, word: str) -> list[int]: ...

    @abstractmethod
    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool
    ) -> list[Encoding]: ...


class PiecesOfWords(dict[str, list[int]]):
    """Word -> its pieces, filled on demand by `read`, emptied when full; `unknown` where nothing is left of a word.

    Long words are not kept: they may be megabytes.
    """

    def __init__(self, read: Callable[[str], list[int]], unknown: int):
        super().__init__()
        self._read, self._unknown = read, unknown

    def __missing__(self, word: str) -> list[int]:
        pieces = self._read(word) or [self._unknown]
        if len(word) <= _LONG_WORD:
            # Emptied, not evicted one by one: a least-recently-used order costs more on every hit than refilling.
            if len(self) >= MAX_WORDS:
                self.clear()
            self[word] = pieces
        return pieces

    def __reduce__(self) -> tuple:
        return type(self), (self._read, self._unknown)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The numbers of tokens to keep of both sides of a pair, at most `room` together, as the tokenizers library counts:
    of an odd `room`, where both are cut, the longer side has one more."""
    half = room // 2
    if first + second <= room:
        return first, second
    if min(first, second) <= half:
        return (first, room - first) if first <= second else (room - second, second)
    return (room - half, half) if first > second else (half, room - half)
