"""decode.terms: a dictionary of terms with known types, which overrides the entities of a tagger.

The first line of its file tells which of three kinds it is:

    北京大学<TAB>ORG                  two columns, no header; a term has one type
    term<TAB>type<TAB>id<TAB>link     a header with these names, also alias (several parted by |); term and type must be
    {"term": ..., "termtype": ...}    JSON lines, as TermTree of PaddleNLP has them: also termid, alias, links

With a header or as JSON, a term may be there several times with different types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nlpctl.data.readers.lines import decode, numbered_lines
from nlpctl.data.rows.tag_scheme import Span
from nlpctl.data.text.word_spans import word_spans
from nlpctl.errors import Problem, UserError
from nlpctl.files import parse_json

COLUMNS = ("term", "type", "id", "link", "alias")
_TERMTREE = {"term": "term", "type": "termtype", "id": "termid", "link": "links", "alias": "alias"}
_BETWEEN = "|"


@dataclass(frozen=True)
class Term:
    """A term, its type, and what is known of it. `link` is JSON-ready; `aliases` are other ways to write it."""

    name: str
    type: str
    id: str | None = None
    link: Any = None
    aliases: tuple[str, ...] = ()

    def known(self, text: str) -> dict[str, Any]:
        """What an answer says of it besides its type, where it is written `text`."""
        facts = {"term": self.name if text != self.name else None, "id": self.id, "link": self.link}
        return {name: value for name, value in facts.items() if value is not None}


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
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}

    @classmethod
    def from_file(cls, path: Path) -> TermDictionary:
        """The terms of a file. UserError lists the bad lines as file:line."""
        terms: dict[str, list[Term]] = {}
        for term in read_terms(path):
            for spelling in (term.name, *term.aliases):
                terms.setdefault(spelling, []).append(term)
        return cls({spelling: entries[0].type for spelling, entries in terms.items()}, terms)

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
        matches: list[Span] = []
        for start, _ in spans:
            if matches and start < matches[-1].end:
                continue
            for length in self._lengths.get(text[start], ()):
                term = text[start : start + length]
                if term in self.types and start + len(term) in ends:
                    matches.append(Span(self.types[term], start, start + len(term)))
                    break
        return matches

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


def read_terms(path: Path) -> list[Term]:
    """The terms of a file; empty lines are passed over. UserError lists the bad lines as file:line."""
    terms: list[Term] = []
    problems: list[Problem] = []
    read: Callable[[str], Term] | None = None
    try:
        with open(path, "rb") as stream:
            for number, raw in numbered_lines(stream, str(path)):
                line, reason = decode(raw)
                try:
                    if reason is not None:
                        raise ValueError(reason)
                    if not line.strip():
                        continue
                    if read is None:
                        read, is_header = _line_parser(line)
                        if is_header:
                            continue
                    terms.append(read(line))
                except ValueError as error:
                    problems.append(Problem(str(error), f"{path}:{number}"))
    except OSError as error:
        message = f"cannot read the term dictionary: {error.strerror or error}"
        raise UserError(message, where=str(path), hint="check decode.terms and the file's rights") from None
    if problems:
        hint = f"each line is TERM<TAB>TYPE; a first line can name further columns: {', '.join(COLUMNS)}"
        raise UserError(problems=[*problems, Problem("no dictionary", str(path), hint)])
    return terms


def _line_parser(first: str) -> tuple[Callable[[str], Term], bool]:
    """How the lines of a file are read, and whether the first one is a header."""
    if first.lstrip().startswith("{"):
        return _parse_json, False
    names = tuple(cell.strip().lower() for cell in first.split("\t"))
    if not {"term", "type"} <= set(names):
        return partial(_parse_two_columns, {}), False
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names):
        wrong = f"no such column: {unknown[0]!r}" if unknown else "a column is named twice"
        raise ValueError(f"{wrong}; columns are {', '.join(COLUMNS)}")
    return partial(_parse_named_columns, names), True


def _parse_two_columns(types: dict[str, str], line: str) -> Term:
    """A line of TERM<TAB>TYPE. `types` of the lines above: a term has one."""
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) != 2:
        raise ValueError(f"expected TERM<TAB>TYPE, got {len(cells)} cells")
    term = _checked(cells[0], cells[1])
    if types.setdefault(term.name, term.type) != term.type:
        raise ValueError(f"the term {term.name!r} has the type {types[term.name]!r} above, and {term.type!r} here")
    return term


def _parse_named_columns(names: tuple[str, ...], line: str) -> Term:
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) > len(names):
        raise ValueError(f"{len(cells)} cells, and the header names {len(names)} columns")
    values = dict(zip(names, [*cells, *[""] * (len(names) - len(cells))], strict=True))
    aliases = tuple(alias.strip() for alias in values.get("alias", "").split(_BETWEEN) if alias.strip())
    return _checked(values["term"], values["type"], values.get("id") or None, values.get("link") or None, aliases)


def _parse_json(line: str) -> Term:
    try:
        content = parse_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(content, Mapping):
        raise ValueError("not a JSON object")
    values = {name: content.get(name) or content.get(other) for name, other in _TERMTREE.items()}
    aliases = values["alias"] or []
    aliases = [aliases] if isinstance(aliases, str) else aliases
    texts = [values["term"] or "", values["type"] or "", values["id"] or ""]
    if not isinstance(aliases, list) or not all(isinstance(text, str) for text in (*texts, *aliases)):
        raise ValueError("term, type, id and each alias must be texts")
    term, kind, id = (text.strip() for text in texts)
    return _checked(term, kind, id or None, values["link"] or None, tuple(filter(None, map(str.strip, aliases))))


def _checked(name: str, type: str, id: str | None = None, link: Any = None, aliases: tuple[str, ...] = ()) -> Term:
    if not name or not type:
        raise ValueError("the term is blank" if not name else f"the term {name!r} has no type")
    return Term(name, type, id, link, aliases)
