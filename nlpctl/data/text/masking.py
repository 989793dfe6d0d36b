"""Text for masked language models: windows of token ids with word ids, and which words are hidden.

The pieces of a word are hidden together, so that none reveals the others. Chinese words are those that jieba finds,
with the words of a user's dictionary kept whole; elsewhere a word is a run between white space and punctuation.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from nlpctl.data.readers.lines import decode, numbered_lines
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.library_tokenizer import LibraryEncoder
from nlpctl.data.text.tokenizers import PaddleTextEncoder
from nlpctl.data.text.word_spans import WORD_BEGINS, is_ideograph, load_jieba, word_spans
from nlpctl.errors import Problem, UserError

# Masks to fill of a window, at most: each has a score for every word of the vocabulary.
MOST_MASKS = 16


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of a text without special tokens: token ids `ids` and word ids `words`, both int32 [tokens].

    Tokens of one word share a word id. `masks`: positions in `ids` of the masks to fill. `truncated`: a part of the
    text is in none of its windows.
    """

    ids: np.ndarray
    words: np.ndarray
    masks: tuple[int, ...] = ()
    truncated: bool = False

    @property
    def byte_length(self) -> int:
        """The number of tokens."""
        return len(self.ids)


class CorpusTokens:
    """Cuts texts into windows of at most `room` tokens. `whole_words` None: every token counts as a word."""

    def __init__(self, encoder: TextEncoder, whole_words: WholeWords | None, room: int):
        tokenizer = encoder.tokenizer
        self.mask = re.compile(re.escape(tokenizer.mask_token))
        if encoder.strips_before(tokenizer.mask_token):
            self.mask = re.compile(rf"\s*{self.mask.pattern}")
        self.mask_id: int = tokenizer.mask_token_id
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._whole_words = whole_words
        self._room = room

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
        for match in self.mask.finditer(text):
            ids += self._plain(text[end : match.start()])
            masks.append(len(ids))
            ids.append(self.mask_id)
            end = match.end()
        ids += self._plain(text[end:])
        windows: list[tuple[int, int, list[int]]] = []
        done = 0
        while done < len(masks):
            # A quarter of the window before the mask, three quarters after it: the rest may hold further masks.
            start = max(0, min(masks[done] - self._room // 4, len(ids) - self._room))
            stop = start + self._room
            # A mask near the end of the window sees little of what follows: leave it to the next one.
            last = len(ids) if stop >= len(ids) else stop - self._room // 4
            inside = [mask for mask in masks[done : done + MOST_MASKS] if mask < max(last, masks[done] + 1)]
            windows.append((start, stop, [mask - start for mask in inside]))
            done += len(inside)
        starts, stops = [*(start for start, *_ in windows), len(ids)], [0, *(stop for _, stop, _ in windows)]
        truncated = any(start > stop for start, stop in zip(starts, stops, strict=True))
        return [
            _window(ids[start:stop], [NO_WORD] * len(ids[start:stop]), inside, truncated)
            for start, stop, inside in windows
        ]

    def _plain(self, text: str) -> list[int]:
        """Token ids of a text without masks."""
        return [piece for word in self._words(text, None) for piece in word]

    def _words(self, text: str, whole_words: WholeWords | None) -> list[list[int]]:
        """The token ids of each word; of each token where `whole_words` is None."""
        if isinstance(self._encoder, LibraryEncoder):
            words = self._by_place(text, self._encoder, whole_words)
        elif isinstance(self._encoder, PaddleTextEncoder) and "wordpiece_tokenizer" not in vars(self._tokenizer):
            words = self._blank_separated(text, self._encoder)
        else:
            # What a WordPiece tokenizer makes of a word does not depend on the words next to it.
            units = [[span] for span in word_spans(text)] if whole_words is None else whole_words.words(text)
            if isinstance(self._encoder, PaddleTextEncoder):
                units = self._encoder.added.keep_whole(text, units)
            pieces = iter(self._encoder.pieces([text[start:end] for word in units for start, end in word]))
            words = [[piece for _ in word for piece in next(pieces)] for word in units]
        return [[piece] for word in words for piece in word] if whole_words is None else words

    @staticmethod
    def _by_place(text: str, encoder: LibraryEncoder, whole_words: WholeWords | None) -> list[list[int]]:
        """The token ids of each word, if tokens know where they stand; one that spans several words joins them."""
        ids, spans = encoder.located(text)
        starts = [] if whole_words is None else [word[0][0] for word in whole_words.words(text)]
        words: list[list[int]] = []
        last = -1  # the word that the token before ends in
        for id, (start, end) in zip(ids, spans, strict=True):
            if words and whole_words is not None and bisect_right(starts, start) == last:
                words[-1].append(id)
            else:
                words.append([id])
            last = bisect_left(starts, end)
        return words

    def _blank_separated(self, text: str, encoder: PaddleTextEncoder) -> list[list[int]]:
        """The token ids of each word, if tokens mark the blank before a word (byte-level BPE, sentencepiece)."""
        tokens = self._tokenizer.tokenize(encoder.spelled.as_text(text))
        ids = self._tokenizer.convert_tokens_to_ids(tokens)
        number, numbers = 0, []
        for token in tokens:
            number += token.startswith(WORD_BEGINS)
            numbers.append(number)
        return [[i for i, _ in word] for _, word in groupby(zip(ids, numbers, strict=True), key=lambda pair: pair[1])]


def _window(ids: Sequence[int], words: Sequence[int], masks: Sequence[int] = (), truncated: bool = False) -> Window:
    return Window(np.array(ids, np.int32), np.array(words, np.int32), tuple(masks), truncated)


NO_WORD = -1  # word id of special tokens and padding: never masked
NO_TARGET = -100  # pads the right ids; PaddleNLP's and PyTorch's mark for "not counted"

Span = tuple[int, int]


class WholeWords:
    """Finds the words of a text. Can be pickled; jieba is loaded (0.6 s) with the first Chinese text."""

    def __init__(self, dictionary: Path | None):
        """UserError if `dictionary` (one word per line, UTF-8) cannot be used."""
        self.kept_whole = () if dictionary is None else read_dictionary(dictionary)

    def words(self, text: str) -> list[list[Span]]:
        """The words of `text` in order, each as the spans (start, end) of its units as `word_spans` finds them.

        A unit (an ideograph, a punctuation mark, a run of letters) is never divided, so a tokenizer makes
        of the units what it would make of the text.
        """
        units = word_spans(text)
        words: list[list[Span]] = []
        for run in _touching(units):
            start, end = run[0][0], run[-1][1]
            # One unit has nothing to join, and only ideographs and dictionary words join at all.
            if len(run) == 1 or not any(is_ideograph(text[first]) for first, _ in run):
                words += [[unit] for unit in run]
            else:
                words += _grouped(run, {start + offset for offset in self._boundaries(text[start:end])})
        return words

    def _boundaries(self, run: str) -> list[int]:
        """The offsets at which jieba's words begin in a run without white space."""
        offsets, position = [], 0
        # jieba returns words, not offsets; their lengths add up because it drops no character.
        for word in load_jieba(self.kept_whole).cut(run):
            offsets.append(position)
            position += len(word)
        return offsets


def read_dictionary(path: Path) -> tuple[str, ...]:
    """Reads one word per line; skips blank lines. UserError lists all bad lines (at most ten)."""
    words, problems = [], []
    try:
        with path.open("rb") as stream:
            for number, raw in numbered_lines(stream, str(path)):
                text, reason = decode(raw)
                word = text.strip()
                if reason is None and len(word.split()) > 1:
                    reason = f"one word per line is wanted, without blanks inside: {word[:40]!r}"
                if reason is not None:
                    problems.append(Problem(reason, f"{path}:{number}", "fix the line or delete it"))
                elif word:
                    words.append(word)
    except OSError as error:
        message = f"cannot read the dictionary: {error.strerror or error}"
        raise UserError(message, where=str(path), hint="check masking.dictionary") from None
    if problems:
        raise UserError(problems=problems[:10])
    return tuple(dict.fromkeys(words))


def mask_words(
    ids: np.ndarray,
    words: np.ndarray,
    chance: np.random.Generator,
    probability: float,
    mask_id: int,
    others: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Hide words of one row, as BERT does: (ids with words hidden, positions of the hidden tokens in order).

    `ids` and `words` are int [tokens]; tokens of one word have one word id, NO_WORD is never hidden. Words
    are drawn until `probability` of the tokens are hidden (at least one word, and no more tokens than the
    share allows unless the first word is longer). 80 % of the hidden tokens become `mask_id`, 10 % one of
    `others` (int [ids]), 10 % stay.
    """
    present, sizes = np.unique(words[words != NO_WORD], return_counts=True)
    wanted = max(1, round(int(sizes.sum()) * probability))
    taken: list[np.integer] = []
    count = 0
    # All of a word or none: BERT's original per-token masking lets the rest of a word give it away.
    for index in chance.permutation(len(present)):
        if count + sizes[index] <= wanted or not taken:
            taken.append(present[index])
            count += sizes[index]
        if count >= wanted:
            break
    positions = np.flatnonzero(np.isin(words, taken))
    fate = chance.random(len(positions))
    replacement = np.where(fate < 0.8, mask_id, ids[positions])
    random_ids = others[chance.integers(len(others), size=len(positions))]
    hidden = ids.copy()
    hidden[positions] = np.where(fate >= 0.9, random_ids, replacement)
    return hidden, positions


def _touching(units: Sequence[Span]) -> list[list[Span]]:
    """Units that stand side by side, without anything between them."""
    runs: list[list[Span]] = []
    for unit in units:
        if runs and runs[-1][-1][1] == unit[0]:
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return runs


def _grouped(run: Sequence[Span], starts: set[int]) -> list[list[Span]]:
    """The units of `run`, a new word at each of `starts` that is the beginning of a unit."""
    number, numbers = 0, []
    for start, _ in run:
        number += start in starts
        numbers.append(number)
    return [[unit for _, unit in word] for _, word in groupby(zip(numbers, run, strict=True), key=lambda pair: pair[0])]
