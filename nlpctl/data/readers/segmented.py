"""Words and their parts of speech on a line, as in the People's Daily corpus.

    19980101-01-001-001/m  迈向/v  充满/v  希望/n  的/u  新/a  世纪/n
    [中央/n  人民/n  广播/vn  电台/n]nt

Each character becomes a token, with the tags B-v, I-v of its word. The number of a paragraph, the brackets around
compounds with their tags, and readings such as 为{wei4} are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nlpctl.data.readers.conll import TAGS, TOKENS
from nlpctl.data.readers.lines import decode
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row, missing_key

_LONGEST = 1000  # characters of a word
_TAG = r"[A-Za-z][A-Za-z0-9]{0,5}"
# A bracket before a tag is a word. The group is matched as a whole (Python 3.11 would spell it *+), and a word is
# bounded, or a line of brackets, or of tags and brackets, would take the square of its length.
_BRACKETS = r"(?=(?P<brackets>(?:\[(?!/[^/]))*))(?P=brackets)"
_READING = r"(?:\{[A-Za-z:]+\d?\})?"
_WORD = re.compile(rf"{_BRACKETS}(?P<word>.{{1,{_LONGEST}}}?){_READING}/(?P<tag>{_TAG})(?:\](?:/?{_TAG})?)*")
_PARAGRAPH = re.compile(r"\d{8}-\d+-\d+-\d+(/m)?")
_LOOKED_AT = 5  # lines


def segmented_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """A row per line that is not blank."""
    for number, raw in lines:
        text, reason = decode(raw)
        words = _words(text)
        if reason is None and not words:
            continue
        tokens: list[str] = []
        tags: list[str] = []
        for word in words:
            match = _WORD.fullmatch(word)
            if match is None:
                too_long = f", of a word of {_LONGEST} characters at most" if len(word) > _LONGEST else ""
                reason = reason or f"no tag: {word!r} is not WORD/TAG{too_long}"
                break
            tokens += match["word"]
            tags += [f"{mark}-{match['tag']}" for mark in "B" + "I" * (len(match["word"]) - 1)]
        values = {TOKENS: tokens, TAGS: tags}
        reason = reason or missing_key(values, request.required)
        yield Row(source, number, values) if reason is None else BadRow(source, number, reason)


def is_segmented(lines: Iterable[str]) -> bool:
    """Whether the first lines of a file are words with their tags, and several of them."""
    words_of_lines = [words for line in lines if (words := _words(line))][:_LOOKED_AT]
    return any(len(words) > 1 for words in words_of_lines) and all(
        _WORD.fullmatch(word) for words in words_of_lines for word in words
    )


def _words(line: str) -> list[str]:
    """The words of a line; white space but that of ASCII may be one."""
    words = [word for word in re.split(r"[ \t\r\n]+", line) if word]
    return words[1:] if words and _PARAGRAPH.fullmatch(words[0]) else words
