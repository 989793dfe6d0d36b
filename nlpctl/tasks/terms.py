"""A dictionary of terms with known types, which overrides the entities of a tagger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nlpctl.data.lines import decode, numbered_lines
from nlpctl.data.tag_scheme import Span
from nlpctl.data.word_spans import word_spans
from nlpctl.errors import Problem, UserError


class TermDictionary:
    """Terms and their types. Upper and lower case differ."""

    def __init__(self, types: Mapping[str, str]):
        self.types = dict(types)
        lengths: dict[str, set[int]] = {}
        for term in self.types:
            # Indexed by first character and length: a text is matched without trying every term.
            lengths.setdefault(term[0], set()).add(len(term))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    @classmethod
    def from_file(cls, path: Path) -> TermDictionary:
        """Lines of TERM<TAB>TYPE; empty lines are skipped. UserError lists the bad lines as file:line."""
        types: dict[str, str] = {}
        problems = []
        try:
            with open(path, "rb") as stream:
                for number, raw in numbered_lines(stream, str(path)):
                    problem = _add_line(raw, types)
                    if problem is not None:
                        problems.append(Problem(problem, f"{path}:{number}"))
        except OSError as error:
            message = f"cannot read the term dictionary: {error.strerror or error}"
            raise UserError(message, where=str(path), hint="check decode.terms and the file's rights") from None
        if problems:
            raise UserError(problems=[*problems, Problem("no dictionary", str(path), "each line is TERM<TAB>TYPE")])
        return cls(types)

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

        A term is always an entity of its type. What overlaps it is cut back to what lies outside; list a
        longer term to keep it whole.
        """
        terms = self.matches(text)
        kept = [rest for entity in entities for rest in _outside(entity, terms, text)]
        return sorted([*terms, *kept], key=lambda span: span.start)


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


def _add_line(raw: bytes, types: dict[str, str]) -> str | None:
    """Add a line's term to `types`; returns what is wrong with the line, if anything."""
    line, reason = decode(raw)
    if reason is not None or not line.strip():
        return reason
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) != 2:
        return f"expected TERM<TAB>TYPE, got {len(cells)} cells"
    term, kind = cells
    if not term or not kind:
        return "the term is blank" if not term else f"the term {term!r} has no type"
    if types.setdefault(term, kind) != kind:
        return f"the term {term!r} has the type {types[term]!r} above, and {kind!r} here"
    return None
