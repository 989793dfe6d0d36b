"""Synthetic texts that a teacher labels for distillation. They need no meaning, only the distribution of the data.

As Tang et al. (2019, "Distilling task-specific knowledge from BERT into simple neural networks", section 4.3) make
them: words hidden, words replaced, n-grams taken. Their replacements have the same part of speech; these stand between
the same neighbours somewhere else, or have a similar vector in the teacher (Jiao et al., 2020, TinyBERT, algorithm 1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

from nlpctl.config.distillation_section import GeneratedSection

Words = tuple[str, ...]

LONGEST_FRAGMENT = 5  # words, as Tang et al. sample n-grams
_EDGE = ""  # stands before the first word of a text, and behind the last


class Variations:
    """Varies pre-tokenised texts by statistics of all of them. Deterministic for `seed` and the sequence of calls."""

    def __init__(
        self,
        texts: Sequence[Words],
        settings: GeneratedSection,
        similar: Mapping[str, Sequence[str]],
        mask: str | None,
        seed: int,
    ):
        """`similar`: word to words of like meaning. `mask`: what a hidden word becomes; None: it is left out."""
        self._texts = texts
        self._settings = settings
        self._similar = similar
        self._mask = mask
        self._random = Random(f"{seed} variations")
        self._after: defaultdict[str, set[str]] = defaultdict(set)
        self._before: defaultdict[str, set[str]] = defaultdict(set)
        self._places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._between: dict[tuple[str, str], list[str]] = {}
        for number, words in enumerate(texts):
            for place, word in enumerate(words):
                self._places[word].append((number, place))
            for left, right in pairwise((_EDGE, *words, _EDGE)):
                self._after[left].add(right)
                self._before[right].add(left)

    def whole(self, words: Words) -> Words:
        """`words` varied in every way; may be empty, or what it was."""
        if self._random.random() < self._settings.cross:
            words = self._crossed(words)
        words = self.reworded(words)
        if self._random.random() < self._settings.fragment:
            words = self._fragment(words)
        return words

    def reworded(self, words: Words) -> Words:
        """`words` with some of them replaced, hidden or left out."""
        settings, varied = self._settings, list(words)
        for place, word in enumerate(words):
            chance = self._random.random()
            if chance < settings.mask:
                varied[place] = self._mask or ""
            elif chance < settings.mask + settings.replace:
                varied[place] = self._other(word, words[place - 1] if place else _EDGE, _at(words, place + 1))
        return tuple(word for word in varied if word)

    def _other(self, word: str, left: str, right: str) -> str:
        """Another word for `word`."""
        alike = self._similar.get(word, ())
        if alike and self._random.random() < 0.5:
            return self._random.choice(alike)
        fitting = self._between.get((left, right))
        if fitting is None:
            # Sorted, since the order of a set of texts changes from process to process (hash randomisation).
            fitting = sorted((self._after[left] & self._before[right]) - {_EDGE})
            # Cached: the intersection of two large sets is the costly part, and frequent neighbours recur.
            self._between[left, right] = fitting
        others = fitting if fitting and fitting != [word] else alike
        return self._random.choice(others) if others else word

    def _crossed(self, words: Words) -> Words:
        """The beginning of `words`, and from a word that both have on, the end of another text."""
        if not words:
            return words
        place = self._random.randrange(len(words))
        elsewhere = self._places.get(words[place], ())
        if not elsewhere:
            return words
        number, there = self._random.choice(elsewhere)
        return (*words[:place], *self._texts[number][there:])

    def _fragment(self, words: Words) -> Words:
        size = self._random.randint(1, LONGEST_FRAGMENT)
        start = self._random.randrange(max(len(words) - size, 0) + 1)
        return words[start : start + size]


def _at(words: Words, place: int) -> str:
    return words[place] if place < len(words) else _EDGE
