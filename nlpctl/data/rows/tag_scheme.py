"""Tag schemes: BIO, BIOES, BMES or BILOU, with the mark first (B-PER) or last (PER-B), and entities from tags.

Entities are extracted as in seqeval's default mode and conlleval, also from sequences that violate the scheme, which
untrained networks predict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, listed

OUTSIDE = "O"
UNTYPED = "_"  # the type of entities whose tags are bare marks, as seqeval names it

_MARKS = {"BIO": "BI", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU"}
_ALIKE = {"M": "I", "L": "E", "U": "S"}  # what BMES and BILOU call I, E and S
_HINT = "use one scheme: BIO, BIOES, BMES or BILOU, all tags like B-PER or all like PER-B"


class Span(NamedTuple):
    """An entity: its type, and where it stands, [start, end).

    `TagScheme.entities` counts in words. tasks/token_classification.py turns that into characters of the text by
    TaggedExample.bounds, and uses the same class.
    """

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class TagScheme:
    """`marks`: the scheme's name. `style`: where a tag has its mark; "bare" tags have no type."""

    marks: Literal["BIO", "BIOES", "BMES", "BILOU"]
    style: Literal["prefix", "suffix", "bare"]

    def split(self, tag: str) -> tuple[str, str]:
        """(mark, type); the mark is one of O, B, I, E, S: what BMES calls M is I here, L and U of BILOU are E and S."""
        if tag == OUTSIDE:
            return OUTSIDE, UNTYPED
        if self.style == "prefix":
            mark, kind = tag[0], tag[2:]
        elif self.style == "suffix":
            mark, kind = tag[-1], tag[:-2]
        else:
            mark, kind = tag, UNTYPED
        return _ALIKE.get(mark, mark), kind

    def entities(self, tags: Sequence[str]) -> list[Span]:
        """The entities of one sentence, in order; they never overlap."""
        spans = []
        start = 0
        previous, previous_type = OUTSIDE, UNTYPED
        # One O more than there are words, so that an entity at the end of the sentence is closed as any other.
        for i, (mark, kind) in enumerate([*map(self.split, tags), (OUTSIDE, UNTYPED)]):
            # An I or E goes on with the entity before it, if there is one of its type that has not ended.
            goes_on = mark in "IE" and previous in "BI" and kind == previous_type
            if not goes_on:
                if previous != OUTSIDE:
                    spans.append(Span(previous_type, start, i))
                start = i
            previous, previous_type = mark, kind
        return spans

    def tags(self, spans: Iterable[Span], length: int) -> list[str]:
        """The tags of a sentence of `length` words with these entities: `entities` turned round."""
        tags = [OUTSIDE] * length
        for kind, start, end in spans:
            marks = ["B", *["M" if self.marks == "BMES" else "I"] * (end - start - 1)]
            if self.marks != "BIO":
                last, single = "LU" if self.marks == "BILOU" else "ES"
                marks[-1] = last if end - start > 1 else single
            tags[start:end] = [self._tag(mark, kind) for mark in marks]
        return tags

    def _tag(self, mark: str, kind: str) -> str:
        if self.style == "bare":
            return mark
        return f"{mark}-{kind}" if self.style == "prefix" else f"{kind}-{mark}"

    def first_break(self, tags: Sequence[str]) -> int | None:
        """The position of the first tag that may not follow its predecessor, len(tags) for the end; None if valid."""
        closed = self.marks != "BIO"  # an entity has to be ended by an E
        previous, previous_type = OUTSIDE, UNTYPED
        for i, (mark, kind) in enumerate([*map(self.split, tags), (OUTSIDE, UNTYPED)]):
            is_open = previous in "BI"
            goes_on = mark in "IE" and is_open and kind == previous_type
            if not goes_on and (mark in "IE" or (closed and is_open)):
                return i
            previous, previous_type = mark, kind
        return None


def detect_scheme(tags: Iterable[str], where: str, places: Mapping[str, str] | None = None) -> TagScheme:
    """The scheme of a tag set. UserError for mixtures and for tags that belong to no scheme; `where` names the set,
    `places` where a tag first stands.

    Tags that read either way ("B-S") follow the others; where all do, the mark comes first.
    """
    tags = list(tags)
    names = [tag for tag in tags if tag != OUTSIDE]
    if not names:
        reason = "no tag but O: there are no entities" if tags else "there are no tags"
        raise UserError(reason, where=where, hint="check data.columns.tags and the training file")
    style = _style(names, where, places or {})
    marks: dict[str, set[str]] = {}  # per type; those of BMES keep their M here
    for tag in names:
        mark, kind = (tag[0], tag[2:]) if style == "prefix" else (tag[-1], tag[:-2])
        marks.setdefault(kind or UNTYPED, set()).add(mark)
    return TagScheme(_scheme_name(marks, where), style)


def _style(names: Sequence[str], where: str, places: Mapping[str, str]) -> Literal["prefix", "suffix", "bare"]:
    for known in (frozenset("BIESM"), frozenset("BIESMLU")):  # L and U may be types, too
        fits: dict[Literal["prefix", "suffix", "bare"], list[bool]] = {
            "bare": [tag in known for tag in names],
            "prefix": [len(tag) > 2 and tag[1] == "-" and tag[0] in known for tag in names],
            "suffix": [len(tag) > 2 and tag[-2] == "-" and tag[-1] in known for tag in names],
        }
        for style, fit in fits.items():
            if all(fit):
                return style
    odd = [tag for tag, *any_fit in zip(names, *fits.values(), strict=True) if not any(any_fit)]
    # Tags that fit no style are reported first: one typing error must not look like a mixture of styles.
    if len(odd) == len(names) and all(map(str.isdecimal, names)):
        hint = "name them, that of 0 first: data.numbered_labels: [O, B-PER, I-PER], or a file with a tag per line"
        raise UserError(f"the tags are numbers: {listed(names)}", where=places.get(odd[0], where), hint=hint)
    if odd:
        message = f"{listed(odd)}: no mark B, I, E, S, M, L or U before or after a hyphen"
        raise UserError(message, where=places.get(odd[0], where), hint=_HINT)
    first = {style: names[fit.index(True)] for style, fit in fits.items() if any(fit)}
    samples = [f"{tag!r} ({style}{f', {places[tag]}' if tag in places else ''})" for style, tag in first.items()]
    raise UserError(f"tags of different styles are mixed: {', '.join(samples)}", where=where, hint=_HINT)


def _scheme_name(marks: dict[str, set[str]], where: str) -> Literal["BIO", "BIOES", "BMES", "BILOU"]:
    """The scheme that has all the marks; a type that cannot end where others do shows that two are mixed."""
    used = set().union(*marks.values())
    if {"I", "M"} <= used:
        raise UserError("the marks I (BIO, BIOES) and M (BMES) are mixed", where=where, hint=_HINT)
    if used & set("LU") and used & set("ESM"):
        raise UserError("the marks L and U (BILOU) and E, S or M (BIOES, BMES) are mixed", where=where, hint=_HINT)
    if used <= set(_MARKS["BIO"]):
        return "BIO"
    last, single = "LU" if used & set("LU") else "ES"
    # A type with B or I but without E belongs to BIO, while others are written in BIOES, BMES or BILOU.
    unfinished = sorted(kind for kind, own in marks.items() if own & set("BIM") and last not in own)
    if unfinished:
        mark = last if last in used else single
        marked = sorted(kind for kind, own in marks.items() if mark in own)
        raise UserError(
            f"schemes are mixed: there are tags with the mark {mark} (of {listed(marked)}), but none that ends "
            f"{listed(unfinished)}",
            where=where,
            hint=f"{_HINT}; if the tags are right and the data is small, list all of them in data.labels",
        )
    return "BILOU" if last == "L" else "BMES" if "M" in used else "BIOES"


# -- what the types of tags mean: which are entities, and which are parts of speech -----------------------------------
#
# An analyser tags every word of a text with a part of speech, a tagger of entities the entities alone. A set of parts
# of speech is recognised by its verb, which no analyser lacks and no entity is called.


def _names(text: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, text.split())))


# The verb of a set, and its parts of speech: of ICTCLAS (People's Daily, jieba, LAC), which every analyser extends,
# of Universal Dependencies, of the Chinese and of the Penn Treebank.
_PARTS_OF_SPEECH = (
    ("v", re.compile("[a-z]{1,4}[0-9]?|[ADNTV]g")),
    ("VERB", _names("ADJ ADP ADV AUX CCONJ CONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X")),
    (
        "VV",
        _names(
            "AD AS BA CC CD CS DEC DEG DER DEV DT ETC FW IJ JJ LB LC M MSP NN NR NT OD ON P PN PU SB SP URL VA VC VE VV"
        ),
    ),
    (
        "VB",
        _names(
            "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG "
            "VBN VBP VBZ WDT WP WP$ WRB"
        ),
    ),
)


def wanted_entities(recipe: Recipe, tags: Sequence[str]) -> tuple[str, ...]:
    """The types of the tag set that are entities: those of decode.entity_types, or else what `entities_among` says.

    UserError: the recipe names a type that no tag has.
    """
    kinds, wanted = types_of(tags), recipe.decode.entity_types
    if wanted is None:
        return entities_among(kinds)
    for name in (name for name in wanted if name not in kinds):
        message = f"no tag has the type {name!r}{did_you_mean(name, kinds)}"
        raise UserError(message, recipe.where("decode.entity_types"), f"the types are {listed(kinds)}")
    return wanted


def answers_words(tags: Sequence[str], entities: Collection[str], bare_marks_are_words: bool) -> bool:
    """Whether a tagger answers with all words of a text: some types of its tags are no entities, or nothing is outside.

    `bare_marks_are_words`: what holds for tags without types, which tell neither way.
    """
    kinds = types_of(tags)
    if not kinds:
        return bare_marks_are_words
    return OUTSIDE not in tags or not set(kinds) <= set(entities)


def types_of(tags: Sequence[str]) -> tuple[str, ...]:
    """The distinct types of a tag set, in its order; bare marks have none. UserError: the tags follow no scheme."""
    scheme = detect_scheme(tags, "the label set")
    kinds = dict.fromkeys(scheme.split(tag)[1] for tag in tags if tag != OUTSIDE)
    return tuple(kind for kind in kinds if kind != UNTYPED)


def entities_among(kinds: Sequence[str]) -> tuple[str, ...]:
    """Those of `kinds` that are no parts of speech; all of them where there is no verb."""
    known = [pattern for verb, pattern in _PARTS_OF_SPEECH if verb in kinds]
    return tuple(kind for kind in kinds if not any(pattern.fullmatch(kind) for pattern in known))
