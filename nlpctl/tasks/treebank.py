"""Penn Treebank tokenisation of English, which the scoring script of CMRC 2018 takes from NLTK.

The rules are those of NLTK's word_tokenize (nltk/tokenize/destructive.py, Apache-2.0) for one sentence; the
tests hold their results. Only what changes the count or the text of words is kept. NLTK first cuts text
into sentences with a model that has to be downloaded; here a text is one sentence, so a full stop inside
it stays with its word. Both sides of a comparison are cut alike.
"""

from __future__ import annotations

import re

# Applied in this order; every match is set apart by spaces.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), made)
    for pattern, made in (
        # quotes that open
        ("([«“‘„]|`+)", r" \1 "),
        (r'^"', "``"),
        ("(``)", r" \1 "),
        (r"([ (\[{<])(\"|'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)(')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"\1 "),
        # punctuation
        (r"([^.])(\.)([\])}>\"' »”’]*)\s*$", r"\1 \2 \3 "),
        (r"([:,])(\D)", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"(\.{2,})", r" \1 "),
        (r"([;@#$%&])", r" \1 "),
        ("([\u2012-\u2015])", r" \1 "),
        (r"([?!])", r" \1 "),
        (r"([^'])' ", r"\1 ' "),
        (r"(\*)", r" \1 "),
        (r"([\]\[(){}<>])", r" \1 "),
        ("(--)", r" \1 "),
        # a space at each end lets the rules below see the first and the last word
        (r"(?s)\A(.*)\Z", r" \1 "),
        # quotes that close, and what hangs on a word: 's, n't, 'll
        ("([»”’])", r" \1 "),
        ("''", " '' "),
        ('"', " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sSmMdD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        # two words written as one
        (r"(?i)\b(can)(not)\b", r" \1 \2 "),
        (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
        (r"(?i)\b(gim)(me)\b", r" \1 \2 "),
        (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
        (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
        (r"(?i)\b(lem)(me)\b", r" \1 \2 "),
        (r"(?i)\b(more)('n)\b", r" \1 \2 "),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is)\b", r" \1 \2 "),
        (r"(?i) ('t)(was)\b", r" \1 \2 "),
    )
)


def treebank_words(text: str) -> list[str]:
    """The words and punctuation marks of `text`, taken as one sentence."""
    if not text or text.isspace():
        return []
    # The order matters: later rules see the spaces that earlier ones have set.
    for pattern, made in _RULES:
        text = pattern.sub(made, text)
    return text.split()
