"""Splits raw text into words with character offsets, for tasks that return spans of the text."""

from __future__ import annotations

import functools
import logging
import unicodedata
from functools import lru_cache
from itertools import pairwise
from typing import Any

from nlpctl.extras import require

WORD_BEGINS = ("Ġ", "▁")  # how BPE and sentencepiece vocabularies write the blank before a word
_JOINER = "\u200d"  # zero width joiner: makes one picture of several emoji

# Ideographs; kana and Hangul are written in words and stay together, as in BERT's tokenizers.
_IDEOGRAPHS = (
    (0x2E80, 0x2FDF),  # radicals
    (0x3007, 0x3007),  # the ideographic zero
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)

IDEOGRAPHS = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IDEOGRAPHS)  # for a class of a pattern

_SPACE, _ALONE, _RUN, _MARK, _INVISIBLE, _SKIN, _FLAG = range(7)


def word_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the words of `text` in order, so that text[start:end] is the word; they never overlap.

    - an ideograph, a punctuation mark or a symbol is a word of its own; everything else makes words in runs;
    - white space (also U+3000) belongs to no word, nor do invisible characters unless they stand inside one;
    - combining marks, variation selectors and skin tones stay with what they follow; emoji that are joined
      and the two letters of a flag are one word.
    """
    spans: list[tuple[int, int]] = []
    start = end = 0  # of the word being read; empty when equal
    last = _SPACE  # kind of its last character that is no mark
    joined = False  # whether a joiner is the last thing read
    for i, character in enumerate(text):
        kind = character_kind(character)
        if kind == _INVISIBLE:
            # A zero-width joiner continues an emoji sequence; at the beginning of a text it joins nothing.
            joined = character == _JOINER and end > start
            continue
        word_goes_on = end > start and kind != _SPACE and (
            joined
            or kind == _MARK
            or (kind == last == _RUN)
            or (kind == _SKIN and last == _ALONE)
            or (kind == last == _FLAG)
        )  # fmt: skip
        joined = False
        if word_goes_on:
            end = i + 1
            if kind != _MARK:
                last = _ALONE if kind == _FLAG else kind  # a flag has two letters, so the next starts a word
            continue
        if end > start:
            spans.append((start, end))
        # White space leaves an empty word behind itself; everything else begins a new one.
        start, end = (i + 1, i + 1) if kind == _SPACE else (i, i + 1)
        # A combining mark without a base character begins a word like a letter.
        last = _RUN if kind == _MARK else kind
    if end > start:
        spans.append((start, end))
    return spans


@lru_cache(maxsize=65_536)
def character_kind(character: str) -> int:
    """Which of the rules of `word_spans` a character falls under."""
    code = ord(character)
    if character.isspace():
        return _SPACE
    if 0x1F3FB <= code <= 0x1F3FF:
        return _SKIN
    if 0x1F1E6 <= code <= 0x1F1FF:
        return _FLAG
    if 0xE0020 <= code <= 0xE007F:  # tag characters, of the flags of England, Scotland and Wales
        return _MARK
    if is_ideograph(character):
        return _ALONE
    category = unicodedata.category(character)
    if category[0] == "M":
        return _MARK
    if category in ("Cc", "Cf"):
        return _INVISIBLE
    return _ALONE if category[0] in "PS" else _RUN


def is_blank(character: str) -> bool:
    """Whether `character` belongs to no word: white space, or invisible."""
    return character_kind(character) in (_SPACE, _INVISIBLE)


def is_mark(character: str) -> bool:
    """Whether `character` belongs to the one before it: a combining mark, or the half-width sound marks of kana."""
    return character_kind(character) == _MARK or character in "\uff9e\uff9f"


def is_ideograph(character: str) -> bool:
    """Whether `character` is a Chinese character (Han ideograph or radical)."""
    code = ord(character)
    return any(first <= code <= last for first, last in _IDEOGRAPHS)


def character_spans(text: str) -> list[tuple[int, int]]:
    """Like `word_spans`, with runs cut into characters: 1949 is four words. Marks stay with what they follow."""
    spans = []
    for start, end in word_spans(text):
        if end - start == 1 or character_kind(text[start]) != _RUN:
            spans.append((start, end))
            continue
        first = [i for i in range(start, end) if i == start or character_kind(text[i]) not in (_MARK, _INVISIBLE)]
        spans.extend(pairwise([*first, end]))
    return spans


@functools.cache
def load_jieba(kept_whole: tuple[str, ...] = ()) -> Any:
    """A private jieba segmenter; loading takes 0.6 s. Words added to jieba's global one would affect other code.

    `kept_whole`: words that it keeps whole besides those of its dictionary.
    """
    require("jieba")
    import jieba

    # Its loading messages would go to stderr, between progress bars.
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()
    # Otherwise the dictionary is read with the first text, in the middle of a timed or forked section.
    segmenter.initialize()
    for word in kept_whole:
        segmenter.add_word(word)
    return segmenter
