"""A dictionary of terms with known types, which overrides the entities of a tagger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl.data.tag_scheme import Span
from nlpctl.data.term_files import Term, read_terms
from nlpctl.data.word_spans import word_spans


class TermDictionary:
    """Terms and their types, under every way in which they are written. Upper and lower case differ."""

    def __init__(self, types: Mapping[str, str], terms: Mapping[str, Sequence[Term]] | None = None):
        """`types`: spelling to the type that is given. `terms`: spelling to its terms, where more is known of them."""
        self.types = dict(types)
        self.terms = {} if terms is None else dict(terms)
        lengths: dict[str, set[int]] = {}
        for term in self.types:
            # Indexed by first character and length: a text is matched without trying every term.
            lengths.setdefault(term[0], set()).add(len(term))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    @classmethod
    def from_file(cls, path: Path) -> TermDictionary:
        """The terms of a file (data/term_files.py). UserError lists the bad lines as file:line."""
        terms: dict[str, list[Term]] = {}
        for term in read_terms(path):
            for spelling in (term.name, *term.aliases):
                terms.setdefault(spelling, []).append(term)
        return cls({spelling: found[0].type for spelling, found in terms.items()}, terms)

    def known(self, text: str, span: Span) -> dict[str, Any]:
        """What the file says of the term at `span` besides its type: its id and link, and its name for an alias."""
        written = text[span.start : span.end]
        term = next((each for each in self.terms.get(written, ()) if each.type == span.type), None)
        return {} if term is None else term.known(written)

    def matches(self, text: str) -> list[Span]:
        """Terms in `text` from left to right, the longest first where several start; they never overlap.

        A term begins and ends where words do, so that "US" is not found in "USA".
        """
        spans = word_spans(text)
        ends = {end for _, end in spans}
        found: list[Span] = []
        for start, _ in spans:
            if found and start < found[-1].end:
                continue
            for length in self._lengths.get(text[start], ()):
                term = text[start : start + length]
                if term in self.types and start + len(term) in ends:
                    found.append(Span(self.types[term], start, start + len(term)))
                    break
        return found

    def apply(self, text: str, entities: Sequence[Span]) -> list[Span]:
        """Entities of `text` (character offsets, in order) with the terms among them.

        A term is always an entity of its type; if it has several, of the one that it has among `entities`, else of the
        first in the file. What overlaps it is cut back to what lies outside; list a longer term to keep it whole.
        """
        terms = [self._typed(text, term, entities) for term in self.matches(text)]
        kept = [rest for entity in entities for rest in _outside(entity, terms, text)]
        return sorted([*terms, *kept], key=lambda span: span.start)

    def _typed(self, text: str, span: Span, entities: Sequence[Span]) -> Span:
        """`span` with the type that `entities` give it, where that is one of its own."""
        types = {term.type for term in self.terms.get(text[span.start : span.end], ())}
        return next((each for each in entities if each[1:] == span[1:] and each.type in types), span)


def _outside(entity: Span, terms: Sequence[Span], text: str) -> Iterator[Span]:
    """The parts of `entity` that no term covers, without white space at their ends."""
    start = entity.start
    for term in terms:
        if term.end > start and term.start < entity.end:
            yield from _trimmed(entity.type, start, term.start, text)
            start = term.end
    yield from _trimmed(entity.type, start, entity.end, text)


def _trimmed(kind: str, start: int, end: int, text: str) -> Iterator[Span]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        yield Span(kind, start, end)
