"""Locates added tokens (model.add_tokens) in text, for encoders that split text by rules of their own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

Span = tuple[int, int]


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
        found: list[list[Span]] = []
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
                found[-1] += units
            else:
                found.append(units)
        return found

    def _spans(self, text: str) -> Iterator[Span]:
        if self._pattern is None:
            return iter(())
        if self._lowercase:  # a character that becomes two would move all that follow
            text = "".join(low if len(low := character.lower()) == 1 else character for character in text)
        return (found.span() for found in self._pattern.finditer(text))
