"""Whole-word masking: the pieces of a word are masked together, so that none reveals the others.

Chinese words are those that jieba finds, with the words of a user dictionary kept whole; elsewhere a word
is a run between white space and punctuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from nlpctl.data.readers.lines import decode, numbered_lines
from nlpctl.data.text.jieba_words import load_jieba
from nlpctl.data.text.word_spans import is_ideograph, word_spans
from nlpctl.errors import Problem, UserError

NO_WORD = -1  # word id of special tokens and padding: never masked

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
    taken, count = [], 0
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
