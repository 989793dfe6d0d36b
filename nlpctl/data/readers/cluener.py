"""CLUENER's JSON, the layout of many Chinese data sets of entities: an object a line.

    {"text": "浙商银行企业信贷部叶老桂", "label": {"name": {"叶老桂": [[9, 11]]}, "company": {"浙商银行": [[0, 3]]}}}

Positions are those of the first and of the last character. An object without label is a row of the test data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nlpctl.data.readers.annotated import Annotated, Mark, checked_mark
from nlpctl.data.readers.json_rows import json_type

TEXT, LABEL = "text", "label"


def is_record(value: Any) -> bool:
    """Whether an object holds a text and entities by type and word, as no other file does."""
    if not isinstance(value, dict) or not isinstance(value.get(TEXT), str) or not isinstance(value.get(LABEL), dict):
        return False
    all_places = [places for words in value[LABEL].values() if isinstance(words, dict) for places in words.values()]
    return bool(all_places) and all(
        isinstance(places, list) and all(isinstance(place, list) and len(place) == 2 for place in places)
        for places in all_places
    )


def annotated(value: Mapping[str, Any]) -> Annotated:
    """ValueError says what is wrong."""
    text = value.get(TEXT)
    if not isinstance(text, str):
        raise ValueError(f"not a record of CLUENER: no {TEXT!r}")
    values = {name: entry for name, entry in value.items() if name != LABEL}
    if LABEL not in value:
        return Annotated(values)
    return Annotated(values, True, marks=tuple(sorted(set(_marks(text, value[LABEL])))), marked=TEXT)


def _marks(text: str, label: Any) -> Iterator[Mark]:
    if not isinstance(label, dict) or not all(isinstance(words, dict) for words in label.values()):
        raise ValueError(f'bad label: expected {{"type": {{"word": [[first, last]]}}}}, got {json_type(label)}')
    for kind, words in label.items():
        for word, places in words.items():
            if not isinstance(places, list) or not all(isinstance(place, list) and len(place) == 2 for place in places):
                raise ValueError(f"bad span: the places of {word!r} are no list of [first, last]")
            for first, last in places:
                end = last + 1 if isinstance(last, int) and not isinstance(last, bool) else last
                mark = checked_mark(text, first, end, kind)
                if text[mark.start : mark.end] != word:
                    raise ValueError(f"bad span: {first} to {last} is {text[mark.start : mark.end]!r}, not {word!r}")
                yield mark
