"""Entities of one guideline put among the words of an analyser: the arithmetic of `nlpctl data retag`.

Positions are those of tokens. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nlpctl.data.tag_scheme import Span

# What an analyser calls a name that is no entity: other person, other place, other organisation.
PLAIN = {"PER": "nr", "LOC": "ns", "ORG": "nt"}


@dataclass
class Changes:
    """What retagging changed. `agreed`: entities that the analyser found itself; `inserted`: the others, by type.

    `plain`: names of the analyser, by type, that are none in the data. `cut`: words that an entity replaced or cut.
    `changed`: sentences with other tags than the analyser's.
    """

    sentences: int = 0
    changed: int = 0
    agreed: int = 0
    cut: int = 0
    inserted: Counter[str] = field(default_factory=Counter)
    plain: Counter[str] = field(default_factory=Counter)

    def add(self, words: Sequence[Span], entities: Sequence[Span], plain: Mapping[str, str]) -> list[Span]:
        """`merged`, counted."""
        spans, found, taken = merged(words, entities, plain), set(words), covered(entities)
        self.sentences += 1
        self.changed += spans != list(words)
        self.agreed += sum(entity in found for entity in entities)
        self.inserted.update(entity.type for entity in entities if entity not in found)
        overlapped = [word for word in words if not taken.isdisjoint(range(word.start, word.end))]
        self.cut += len(set(overlapped) - set(entities))
        self.plain.update(word.type for word in words if word.type in plain and word not in overlapped)
        return spans

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        counts = {"sentences": self.sentences, "changed_sentences": self.changed, "agreed": self.agreed}
        return {**counts, "inserted": dict(self.inserted), "cut_words": self.cut, "made_plain": dict(self.plain)}


def merged(words: Sequence[Span], entities: Sequence[Span], plain: Mapping[str, str]) -> list[Span]:
    """The entities, and what they leave of the words, in order; a word around an entity falls in two.

    `plain`: type of a word that is no entity of the data to the type that it gets.
    """
    taken, spans = covered(entities), list(entities)
    for kind, start, end in words:
        places = [place for place in range(start, end) if place not in taken]
        begins = [place for place in places if place == start or place - 1 in taken]
        ends = [place + 1 for place in places if place + 1 == end or place + 1 in taken]
        spans += [Span(plain.get(kind, kind), *part) for part in zip(begins, ends, strict=True)]
    return sorted(spans, key=lambda span: span.start)


def covered(spans: Sequence[Span]) -> set[int]:
    """The positions in `spans`."""
    return {place for span in spans for place in range(span.start, span.end)}
