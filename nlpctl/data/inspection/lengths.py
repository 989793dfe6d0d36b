"""Lengths in tokens: counted by the model's tokenizer, or estimated from characters and words."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.truncated import count_truncated
from nlpctl.data.text.word_spans import IDEOGRAPHS, word_spans
from nlpctl.report.language import later

PERCENTILES = (50, 90, 95, 99)
_NO_LIMIT = 1 << 30
# A Chinese character, a mark or symbol, or a word: what a WordPiece vocabulary of BERT's kind makes of a text.
_PARTS = re.compile(f"[{IDEOGRAPHS}]|[^\\w\\s]|_|[^\\W_{IDEOGRAPHS}]+")
_LETTERS_PER_PIECE = 8  # of a word; of 6 to 10 the nearest to BERT on English film reviews (2 % below)


class TokenCounter(ABC):
    """Counts the tokens of a text. `description`: the method; `exact`: whether it is exact or an estimate; `words`:
    whether tokens are words as jieba splits them."""

    description: str
    exact: bool
    words: bool = False

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens of `text`, without special ones."""

    @abstractmethod
    def overhead(self, pair: bool) -> int:
        """Special tokens around a text, or a pair of texts."""

    def unknown(self, text: str) -> int:
        """The unknown tokens of `text` ([UNK])."""
        return 0

    def unknown_words(self, text: str) -> list[str]:
        """What of `text` the tokenizer does not know: characters of Chinese, words of other texts."""
        return []


class CountedTokens(TokenCounter):
    """By the model's tokenizer. `overhead`: where a task puts more around its texts than the tokenizer does."""

    exact = True

    def __init__(self, encoder: TextEncoder, description: str, overhead: Callable[[bool], int] | None = None):
        self.encoder, self.description, self._overhead = encoder, description, overhead or encoder.overhead
        self.words = encoder.kind == "units" and encoder.tokenizer.settings.unit == "words"
        self._alone = encoder.overhead(pair=False)
        self._ids = lru_cache(maxsize=8)(self._encoded)  # of the texts of a row, which are asked about twice

    def _encoded(self, text: str) -> list[int]:
        (encoding,) = self.encoder.encode([text], None, _NO_LIMIT)
        return encoding.input_ids

    def count(self, text: str) -> int:
        return len(self._ids(text)) - self._alone

    def unknown(self, text: str) -> int:
        return self._ids(text).count(self.encoder.tokenizer.unk_token_id)

    def unknown_words(self, text: str) -> list[str]:
        unknown = self.encoder.tokenizer.unk_token_id
        if self.encoder.kind == "units":
            words = self.encoder.tokenizer.units(text)
        else:
            words = [text[start:end] for start, end in word_spans(text)]
        return [word for word, ids in zip(words, self.encoder.pieces(words), strict=True) if unknown in ids]

    def overhead(self, pair: bool) -> int:
        return self._overhead(pair)


class EstimatedTokens(TokenCounter):
    """From characters and words: within a few percent of BERT's and ERNIE's vocabularies."""

    exact = False
    description = later("estimated from characters and words")

    def count(self, text: str) -> int:
        return sum(1 + (len(part) - 1) // _LETTERS_PER_PIECE for part in _PARTS.findall(text))

    def overhead(self, pair: bool) -> int:
        return 3 if pair else 2


def row_tokens(texts: Sequence[str], counter: TokenCounter, together: bool) -> int:
    """Tokens of a row, special ones included; texts that are read apart from each other count by the longest."""
    counts = [counter.count(text) for text in texts]
    return sum(counts) + counter.overhead(len(counts) > 1) if together else max(counts) + counter.overhead(False)


@dataclass(frozen=True)
class Lengths:
    """Tokens per row: `percentiles` maps 50 to the median; `longer`: rows of more than `limit` tokens."""

    mean: float
    longest: int
    percentiles: dict[int, int]
    limit: int
    longer: int


def measure(tokens: Sequence[int], limit: int) -> Lengths:
    """The figures of a split of at least one row."""
    ranked = sorted(tokens)
    # Nearest rank: always the length of a real row, unlike an interpolated percentile.
    percentiles = {share: ranked[math.ceil(share / 100 * len(ranked)) - 1] for share in PERCENTILES}
    longer = count_truncated(ranked, limit).truncated
    return Lengths(sum(ranked) / len(ranked), ranked[-1], percentiles, limit, longer)
