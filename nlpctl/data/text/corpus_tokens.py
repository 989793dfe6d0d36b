"""Tokenises text into windows of token ids with word ids, for masked language models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.whole_words import NO_WORD, WholeWords
from nlpctl.data.text.word_spans import word_spans

_WORD_BEGINS = ("Ġ", "▁")  # how BPE and sentencepiece vocabularies write a blank before a token


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of a text without special tokens: token ids `ids` and word ids `words`, both int32 [tokens].

    Tokens of one word share a word id. `masks`: positions in `ids` of the masks to fill.
    """

    ids: np.ndarray
    words: np.ndarray
    masks: tuple[int, ...] = ()

    @property
    def byte_length(self) -> int:
        """The number of tokens."""
        return len(self.ids)


class CorpusTokens:
    """Cuts texts into windows of at most `room` tokens. `whole_words` None: every token counts as a word."""

    def __init__(self, encoder: TextEncoder, whole_words: WholeWords | None, room: int):
        tokenizer = encoder.tokenizer
        self.mask = re.compile(re.escape(tokenizer.mask_token))
        self.mask_id: int = tokenizer.mask_token_id
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._whole_words = whole_words
        self._room = room
        # What a WordPiece tokenizer makes of a word does not depend on the words next to it.
        self._word_by_word = "wordpiece_tokenizer" in vars(tokenizer)

    def windows(self, text: str) -> list[Window]:
        """Consecutive windows that cover the text and end at word boundaries where possible; [] if it has no tokens."""
        grouped = self._words(text, self._whole_words)
        ids = [piece for word in grouped for piece in word]
        words = [number for number, word in enumerate(grouped) for _ in word]
        cuts, start = [], 0
        while len(ids) - start > self._room:
            end = start + self._room
            # A word cut in two would be masked in one half only; the other half would give it away.
            while end > start and words[end] == words[end - 1]:
                end -= 1
            # A single word longer than the window is cut after all.
            cuts.append((start, end if end > start else start + self._room))
            start = cuts[-1][1]
        if len(ids) > start:
            cuts.append((start, len(ids)))
        return [_window(ids[start:end], words[start:end]) for start, end in cuts]

    def around_masks(self, text: str) -> list[Window]:
        """Windows that together hold every mask of `text` exactly once, in order, each with context on both sides."""
        ids: list[int] = []
        masks: list[int] = []
        end = 0
        for found in self.mask.finditer(text):
            ids += self._plain(text[end : found.start()])
            masks.append(len(ids))
            ids.append(self.mask_id)
            end = found.end()
        ids += self._plain(text[end:])
        windows, done = [], 0
        while done < len(masks):
            # A quarter of the window before the mask, three quarters after it: the rest may hold further masks.
            start = max(0, min(masks[done] - self._room // 4, len(ids) - self._room))
            stop = start + self._room
            # A mask near the end of the window sees little of what follows: leave it to the next one.
            last = len(ids) if stop >= len(ids) else stop - self._room // 4
            inside = [mask for mask in masks[done:] if mask < max(last, masks[done] + 1)]
            shown = ids[start:stop]
            windows.append(_window(shown, [NO_WORD] * len(shown), [mask - start for mask in inside]))
            done += len(inside)
        return windows

    def _plain(self, text: str) -> list[int]:
        """Token ids of a text without masks."""
        return [piece for word in self._words(text, None) for piece in word]

    def _words(self, text: str, whole_words: WholeWords | None) -> list[list[int]]:
        """The token ids of each word; of each token where `whole_words` is None."""
        if self._word_by_word:
            units = [[span] for span in word_spans(text)] if whole_words is None else whole_words.words(text)
            spans = self._encoder.added.keep_whole(text, units)
            pieces = iter(self._encoder.pieces([text[start:end] for word in spans for start, end in word]))
            words = [[piece for _ in word for piece in next(pieces)] for word in spans]
        else:
            words = self._blank_separated(text)
        return [[piece] for word in words for piece in word] if whole_words is None else words

    def _blank_separated(self, text: str) -> list[list[int]]:
        """The token ids of each word, if tokens mark the blank before a word (byte-level BPE, sentencepiece)."""
        tokens = self._tokenizer.tokenize(self._encoder.spelled.as_text(text))
        ids = self._tokenizer.convert_tokens_to_ids(tokens)
        number, numbers = 0, []
        for token in tokens:
            number += token.startswith(_WORD_BEGINS)
            numbers.append(number)
        return [[i for i, _ in word] for _, word in groupby(zip(ids, numbers, strict=True), key=lambda pair: pair[1])]


def _window(ids: Sequence[int], words: Sequence[int], masks: Sequence[int] = ()) -> Window:
    return Window(np.array(ids, np.int32), np.array(words, np.int32), tuple(masks))
