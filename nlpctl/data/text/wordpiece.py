"""A fast WordPiece tokenizer with the same results as PaddleNLP's, at several times its speed.

PaddleNLP's BERT-type tokenizers process every text in Python: lower-case, clean, split, match pieces. But the result
for a character does not depend on its neighbours (exceptions below), and that for a word depends on the word alone. So
each character is passed to PaddleNLP once and cached in a table for `str.translate`, and each word is split once and
cached in a dictionary. Most of a text then takes two look-ups in C. This module contains no normalisation rules of its
own, so they cannot drift from PaddleNLP's.

PaddleNLP tokenises the whole text if the shortcut does not apply:
- those with an added token in them (model.add_tokens), which is not lower-cased and not split;
- those with a spacing combining mark, which Unicode normalisation may reorder among its neighbours.
"""

from __future__ import annotations

import unicodedata
from itertools import chain
from typing import Any

from tokenizers.models import WordPiece as WordPieceModel

from nlpctl.data.text.spelled_tokens import SpelledTokens
from nlpctl.data.text.stored_tokenizer import StoredCharacters, StoredTokenizer

# The classes whose algorithm is BasicTokenizer + WordpieceTokenizer with nothing added.
CLASSES = frozenset(
    {
        "BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "ErnieTokenizer",
        "RobertaChineseTokenizer",
    }
)  # fmt: skip

# Words kept; about 20 MB. A stream of ever new words must not grow the process.
MAX_WORDS = 65_536

# Stands in the table for "ask PaddleNLP". Its cleaning removes code point 0, so no answer contains it.
HARD = "\0"


def unsupported_reason(tokenizer: Any) -> str | None:
    """Why `tokenizer` (a PaddleNLP PretrainedTokenizer) cannot be sped up; None when it can, or was when stored."""
    if isinstance(tokenizer, StoredTokenizer):
        return None
    kind = type(tokenizer)
    if kind.__name__ not in CLASSES or not kind.__module__.startswith("paddlenlp.transformers."):
        return f"{kind.__name__} is not a plain WordPiece tokenizer"
    if not hasattr(tokenizer, "basic_tokenizer"):
        return "do_basic_tokenize is off"
    if tokenizer.basic_tokenizer.never_split:
        return "never_split is set"
    if tokenizer.basic_tokenizer.do_lower_case != tokenizer.do_lower_case:
        return "do_lower_case differs from that of the basic tokenizer"
    if tokenizer.truncation_side != "right":
        return "it truncates on the left"
    return None


class CharacterTable(dict[int, str]):
    """Code point -> its normalised form by PaddleNLP, for `str.translate`; filled on demand.

    The value is "" for a removed character, " " for white space, " c " for a character that is a word by itself.
    """

    def __init__(self, basic_tokenizer: Any):
        super().__init__()
        self._basic = basic_tokenizer
        self._strips_accents = basic_tokenizer.tokenize("xe\u0301x") == ["xex"]

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        if self._basic.do_lower_case:
            character = character.lower()  # as PretrainedTokenizer.tokenize does, one character at a time
        # Between two letters the answer shows on which sides the character splits.
        answer = " ".join(self._basic.tokenize(f"x{character}x"))[1:-1]
        # Marks that survive the stripping may be reordered among neighbours by NFD, which a table cannot know.
        if self._strips_accents and any(map(unicodedata.combining, answer)):
            answer = HARD
        self[code_point] = answer
        return answer


def character_table(tokenizer: Any) -> CharacterTable | StoredCharacters:
    """The table of a tokenizer whose `unsupported_reason` is None."""
    return tokenizer.characters if isinstance(tokenizer, StoredTokenizer) else CharacterTable(tokenizer.basic_tokenizer)


class WordTable(dict[str, list[int]]):
    """Word -> ids of its pieces; filled on demand by the `tokenizers` library, emptied when full."""

    def __init__(self, wordpiece_tokenizer: Any):
        super().__init__()
        self._longest = wordpiece_tokenizer.max_input_chars_per_word
        self._model = WordPieceModel(
            dict(wordpiece_tokenizer.vocab.token_to_idx),
            unk_token=wordpiece_tokenizer.unk_token,
            max_input_chars_per_word=self._longest,
        )

    def __missing__(self, word: str) -> list[int]:
        ids = [token.id for token in self._model.tokenize(word)]
        if len(word) <= self._longest:  # longer ones are unknown anyway and may be megabytes
            # Emptied, not evicted one by one: a least-recently-used order costs more on every hit than refilling.
            if len(self) >= MAX_WORDS:
                self.clear()
            self[word] = ids
        return ids


class WordPiece:
    """Text to ids, equal to `tokenizer.convert_tokens_to_ids(tokenizer.tokenize(spelled.as_text(text)))`."""

    def __init__(self, tokenizer: Any, spelled: SpelledTokens):
        self._tokenizer = tokenizer
        self._characters = character_table(tokenizer)
        self._words = WordTable(tokenizer.wordpiece_tokenizer)
        self._spelled = spelled
        # A text that contains a token that is kept whole, in whatever guise, contains its squeezed form once
        # translated; the reverse need not hold ("[e1]"), it only costs time.
        whole = {*map(str, (*tokenizer.unique_no_split_tokens, *tokenizer.all_special_tokens))} - spelled.tokens
        self._whole = tuple(sorted(map(self._squeeze, whole)))
        self._first = tuple(sorted({token[:1] for token in self._whole}))

    def ids(self, text: str, limit: int) -> list[int]:
        """Ids of `text` without [CLS] and [SEP]: all of them, or at least the first `limit`."""
        words = self.words(text, limit)
        if words is None:
            return self._tokenizer.convert_tokens_to_ids(self._tokenizer.tokenize(self._spelled.as_text(text)))
        return list(chain.from_iterable(map(self._words.__getitem__, words)))

    def words(self, text: str, limit: int) -> list[str] | None:
        """The first `limit` words of `text`, each worth one id or more; None when PaddleNLP must be asked."""
        plain = text.translate(self._characters)
        return None if self._is_hard(plain) else plain.split(None, limit)[:limit]

    def _squeeze(self, text: str) -> str:
        return "".join(text.translate(self._characters).split())

    def _is_hard(self, plain: str) -> bool:
        if HARD in plain:
            return True
        for first in self._first:
            if first in plain:
                break
        else:
            return False
        # Without blanks, because the basic tokenizer splits [ and ] off the letters between.
        squeezed = "".join(plain.split())
        return any(token in squeezed for token in self._whole)
