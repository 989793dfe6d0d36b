"""Usable rows that look wrong and should be reviewed before training."""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from nlpctl.data.inspection.rows import InspectedRow
from nlpctl.data.near_duplicates import same_form
from nlpctl.data.readers.lines import LONE_RETURN
from nlpctl.data.text.word_spans import is_ideograph
from nlpctl.report.language import Later, later

_BEFORE, _AFTER = 40, 120  # characters around a finding


class Oddity(NamedTuple):
    """A finding in a text: its kind, details, and the surrounding text."""

    kind: Later
    details: str
    excerpt: str


# What is left where text was decoded by the wrong table: U+FFFD; UTF-8 read as GBK; UTF-8 read as Latin-1 or
# Windows-1252, where a character becomes two or three.
_LATIN_TAIL = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_BROKEN = re.compile(f"\ufffd|锟斤拷|(?:[à-ï][{_LATIN_TAIL}]{{2}}){{2}}|[ÂÃ][\u0080-\u00bf]|â€[{_LATIN_TAIL}]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2064\ufeff\ufff9-\ufffb\ue000-\uf8ff]"
)
_MARKUP = re.compile(r"</?(?:a|b|br|div|em|font|i|img|li|p|script|span|strong|table|td|tr|u|ul)(?:\s[^<>]*)?/?>|"
                     r"&(?:nbsp|amp|lt|gt|quot|apos|#\d{2,5}|#x[0-9a-f]{2,4});", re.IGNORECASE)  # fmt: skip
_REPEATING = 0.2  # a text that zlib makes this small says the same again and again
_REPEATING_BYTES = 150
_RUN = re.compile(r"(\w)\1{11,}")
_FAR = 4.0  # standard deviations of the logarithm of the length
_RARE_SCRIPT = 0.01  # share of the rows below which a script is an outlier
_FEW_LETTERS = 6  # too little to say which script a text is in
MANY_ROWS = 50  # from so many rows on there is something to be an outlier of


def odd_rows(rows: Sequence[InspectedRow], limit: int) -> Iterator[tuple[InspectedRow, Oddity]]:
    """The suspicious rows and their findings, in row order. `limit`: tokens that are never too many."""
    scripts = [script(row.text) for row in rows]
    rare = _rare_scripts(scripts)
    longest = max(_longest_usual([row.tokens for row in rows]), limit)
    middle = median(row.tokens for row in rows) if rows else 0
    for row, its_script in zip(rows, scripts, strict=True):
        for odd in oddities(row):
            yield row, odd
        if row.tokens > longest:
            details = later("{:,} tokens; the median is {:,.0f}", row.tokens, middle)
            yield row, Oddity(later("far too long"), details, row.text)
        if its_script in rare:
            details = later("{}; {} of {:,} rows are", its_script, rare[its_script], len(rows))
            yield row, Oddity(later("another script"), details, row.text)


def oddities(row: InspectedRow) -> Iterator[Oddity]:
    """The findings of a row that need no other rows, one per kind."""
    for kind, details in row.doubts:
        yield Oddity(kind, details, row.text)
    by_kind: dict[str, Oddity] = {}
    for passage in row.passages:
        for odd in _oddities_of(passage):
            by_kind.setdefault(odd.kind, odd)
    yield from by_kind.values()


def _oddities_of(text: str) -> Iterator[Oddity]:
    broken = None if text.isascii() else _BROKEN.search(text)
    if broken:
        yield _at(broken, later("broken characters"), later("{!a}, decoded by a wrong table", broken[0]))
    unseen = _UNSEEN.search(text)
    if unseen:
        yield _at(unseen, later("invisible characters"), f"U+{ord(unseen[0]):04X}")
    returned = LONE_RETURN.search(text)
    if returned:
        times = len(LONE_RETURN.findall(text))
        details = later("{:,} carriage returns", times) if times > 1 else later("1 carriage return")
        yield _at(returned, later("carriage returns"), details)
    if not any(character.isalnum() for character in text):
        yield Oddity(later("no letter or digit"), later("punctuation or symbols only"), text)
    elif len(same_form(text)) == 1:
        yield Oddity(later("a single character"), "", text)
    markup = _MARKUP.search(text)
    if markup:
        yield _at(markup, later("markup"), markup[0][:40])
    again = _repetition(text)
    if again:
        yield Oddity(later("repeats itself"), again, text)


def _at(match: re.Match[str], kind: Later, details: str) -> Oddity:
    """A finding at some place of a text."""
    start = max(match.start() - _BEFORE, 0)
    excerpt = ("…" if start else "") + match.string[start : match.start() + _AFTER]
    return Oddity(kind, later("{} at character {}", details, match.start() + 1), excerpt)


def _repetition(text: str) -> str:
    run = _RUN.search(text)
    if run:
        return later("{} {} times", run[0][0], len(run[0]))
    raw = text.encode("utf-8")
    if len(raw) < _REPEATING_BYTES:
        return ""
    share = len(zlib.compress(raw)) / len(raw)
    return later("zlib makes {} of it", f"{share:.0%}".replace("%", " %")) if share < _REPEATING else ""


@lru_cache(maxsize=65_536)
def _script_of(character: str) -> str | None:
    """Han, Latin, Cyrillic, ...: the first word of a letter's name in Unicode; None for what is no letter."""
    if is_ideograph(character):
        return "Han"
    if not character.isalpha():
        return None
    first = unicodedata.name(character, "UNKNOWN").split(" ")[0]
    return "Latin" if first in ("LATIN", "FULLWIDTH") else first.title()


def script(text: str) -> str | None:
    """The script of most letters of `text`; None if there are few letters. A Han character counts as three."""
    counts: Counter[str] = Counter()
    for character, times in Counter(text[:400]).items():
        name = _script_of(character)
        if name is not None:
            # One Chinese character carries about as much text as three letters.
            counts[name] += 3 * times if name == "Han" else times
    if counts["Hiragana"] + counts["Katakana"] > 0.1 * counts.total():
        return "Japanese"
    return counts.most_common(1)[0][0] if counts.total() >= _FEW_LETTERS else None


def _rare_scripts(scripts: Sequence[str | None]) -> dict[str, int]:
    """Script -> rows, of those that hardly any row is in."""
    counts = Counter(name for name in scripts if name is not None)
    if counts.total() < MANY_ROWS:
        return {}
    return {name: count for name, count in counts.items() if count < _RARE_SCRIPT * counts.total()}


def _longest_usual(tokens: Sequence[int]) -> float:
    """A length that no ordinary row has: far above the median, on the scale on which lengths are spread evenly."""
    if len(tokens) < MANY_ROWS:
        return math.inf
    logs = [math.log(max(length, 1)) for length in tokens]
    middle = median(logs)
    # 1.4826 makes the median absolute deviation an estimate of a normal distribution's standard deviation; at least
    # 0.2, because it is 0 where most rows have one length.
    spread = max(1.4826 * median(abs(value - middle) for value in logs), 0.2)  # the deviation, from the median one
    return math.exp(middle + _FAR * spread)
