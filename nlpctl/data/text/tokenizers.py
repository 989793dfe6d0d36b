"""The encoder of PaddleNLP's tokenizers, and the choice of the encoder of a tokenizer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from nlpctl.data.text.encoder import Encoding, Span, TextEncoder
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.spelled_tokens import SpelledTokens
from nlpctl.upstream.tokenizer_call import call_of
from nlpctl.upstream.tokenizer_pickle import PickledTokenizer


class AddedWords:
    """Matches the added tokens of a tokenizer in a text. Matches nothing if the tokenizer has none."""

    def __init__(self, tokenizer: Any, without: Collection[str] = ()):
        """`without`: tokens that texts do not have, whatever they spell."""
        # The longest first: PaddleNLP takes the longest of those that begin at a place.
        words = sorted(tokenizer.get_added_vocab().keys() - set(without), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, words))) if words else None
        self._lowercase = "do_lower_case" in vars(tokenizer) and tokenizer.do_lower_case

    def keep_whole(self, text: str, words: Sequence[Sequence[Span]]) -> list[list[Span]]:
        """Returns `words` (per word the spans of its units) with one unit for every added token.

        A unit that an added token overlaps is split at its ends. Words that one added token spans are merged.
        """
        whole = self._spans(text)
        kept = next(whole, None)
        taken: Span | None = None  # the last that became a unit
        result: list[list[Span]] = []
        for word in words:
            units: list[Span] = []
            reached = False  # by an added word that began in an earlier one
            for start, end in word:
                while start < end:
                    while kept is not None and (kept[1] <= start or (kept[0] < start and kept != taken)):
                        kept = next(whole, None)
                    if kept is None or kept[0] >= end:
                        units.append((start, end))
                        break
                    if kept[0] > start:
                        units.append((start, kept[0]))
                        start = kept[0]
                        continue
                    if kept[0] == start:
                        units.append(kept)
                        taken = kept
                    elif not units:
                        reached = True
                    # Whatever the token covers of this unit is done; the rest of the unit is examined again.
                    start = kept[1]
            if reached:
                result[-1] += units
            else:
                result.append(units)
        return result

    def _spans(self, text: str) -> Iterator[Span]:
        if self._pattern is None:
            return iter(())
        if self._lowercase:  # a character that becomes two would move all that follow
            text = "".join(low if len(low := character.lower()) == 1 else character for character in text)
        return (match.span() for match in self._pattern.finditer(text))


class PaddleTextEncoder(TextEncoder):
    """PaddleNLP's own tokenizer, any class; what a text spells of special tokens is text."""

    kind = "paddlenlp"

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer)
        self.spelled = SpelledTokens(tokenizer)
        self.added = AddedWords(tokenizer, without=self.spelled.tokens)
        self._call = call_of(tokenizer)
        # PaddleNLP says this whenever a pair is cut, though nobody asked for the overflow.
        warnings.filterwarnings("ignore", message="Be aware, overflowing tokens are not returned")

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool
    ) -> list[Encoding]:
        texts = list(map(self.spelled.as_text, texts))
        pairs = None if pairs is None else list(map(self.spelled.as_text, pairs))
        batch = self._call(
            texts,
            pairs,
            max_length=max_length,
            truncation=True,
            return_token_type_ids=self.uses_token_types,
            return_attention_mask=False,
            return_overflowing_tokens=pairs is None,  # of pairs PaddleNLP refuses to tell
            verbose=False,
        )
        # The tokenizer returns no types for models that take none; empty lists keep the rows aligned.
        rows = batch["input_ids"]
        types = batch["token_type_ids"] if self.uses_token_types else [[] for _ in rows]
        if pairs is None:
            truncated = [count > 0 for count in batch["num_truncated_tokens"]]
        elif not tell_cut:  # tokenising again takes as long
            truncated = [False] * len(rows)
        else:  # only a row that fills the window can have been cut
            truncated = [
                len(ids) >= max_length and self._tokens(text) + self._tokens(pair) + self._overhead[True] > max_length
                for ids, text, pair in zip(rows, texts, pairs, strict=True)
            ]
        return [Encoding(*row) for row in zip(rows, types, truncated, strict=True)]

    def _tokens(self, text: str) -> int:
        return len(self.tokenizer.tokenize(text))

    def _word(self, word: str) -> list[int]:
        return self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(self.spelled.as_text(word)))

    def __reduce__(self) -> tuple:
        return _rebuild, (PickledTokenizer.pack(self.tokenizer),)


def build_encoder(tokenizer: Any) -> TextEncoder:
    """The encoder for a tokenizer: one of nlpctl's own, or PaddleNLP's PretrainedTokenizer."""
    return tokenizer.encoder() if isinstance(tokenizer, OwnTokenizer) else PaddleTextEncoder(tokenizer)


def _rebuild(packed: PickledTokenizer) -> PaddleTextEncoder:
    return PaddleTextEncoder(packed.unpack())
