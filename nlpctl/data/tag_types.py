"""What the types of tags mean: which are entities, and which are parts of speech.

An analyser tags every word of a text with a part of speech, a tagger of entities the entities alone. A set of parts of
speech is recognised by its verb, which no analyser lacks and no entity is called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from nlpctl.config.schema import Recipe
from nlpctl.data.tag_scheme import OUTSIDE, UNTYPED, detect_scheme
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, listed


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
