"""Texts with spans as objects, the form of spaCy, Prodigy, Argilla and of many programs of one's own.

    {"text": "叶老桂在武汉", "entities": [{"start": 0, "end": 3, "label": "name"}]}                   also "spans", ...
    {"text": "叶老桂在武汉", "entities": [{"type": "name", "start": 0, "end": 3, "text": "叶老桂"}]}  as predict answers

Positions count characters, and the end is behind the last one. A text beside a span must be what the span covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nlpctl.data.readers.annotated import Annotated, Mark, checked_mark
from nlpctl.data.readers.json_rows import json_type

TEXT = "text"
_OF_SPANS = ("entities", "spans", "ents")
_LISTS = (*_OF_SPANS, "label", "labels", "annotations", "annotation")
_TYPES = ("label", "type")
_PRODIGY, _REFUSED = "_task_hash", ("reject", "ignore")  # a key that tells who wrote it, and answers that give no label


def is_record(value: Any) -> bool:
    """Whether an object holds a text and spans of it, and no tags of tokens beside them, which are read as they are."""
    if not isinstance(value, dict) or not isinstance(value.get(TEXT), str):
        return False
    tokens, tags = value.get("tokens"), value.get("tags")
    if isinstance(tokens, list) and isinstance(tags, list) and len(tokens) == len(tags):
        return False
    return any(value.get(key) and _are_spans(value[key]) for key in _LISTS)


def _are_spans(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and {"start", "end"} <= each.keys() and not each.keys().isdisjoint(_TYPES)
        for each in value
    )


def annotated(value: Mapping[str, Any]) -> Annotated:
    """ValueError says what is wrong."""
    text = value.get(TEXT)
    if not isinstance(text, str):
        raise ValueError(f"not a text with spans: no {TEXT!r}")
    key = list_of(value)
    values = {name: entry for name, entry in value.items() if name != key}
    if _PRODIGY in value and value.get("answer") in _REFUSED:
        return Annotated(values)
    if key is None:
        _refuse_no_list(value, _LISTS)
        return Annotated(values)
    marks = _marks(text, value[key])
    _refuse_no_list(value, [name for name in _OF_SPANS if name != key and not _are_groups(value.get(name))])
    for name in (each for each in _LISTS if each != key and value.get(each) and isinstance(value[each], list)):
        # One of another form may be what is meant, beside an empty list or where it has objects as well.
        meant = name in _OF_SPANS and (not marks or any(isinstance(each, dict) for each in value[name]))
        if (_are_spans(value[name]) or meant) and _marks(text, value[name]) != marks:
            raise ValueError(f"{key!r} and {name!r} hold different spans: which ones count? remove the others")
    return Annotated(values, True, marks=marks, marked=TEXT)


def _are_groups(value: Any) -> bool:
    """Whether these are spaCy's groups of other spans, which it writes beside the entities."""
    return isinstance(value, dict) and all(isinstance(each, list) for each in value.values())


def _marks(text: str, listed: Sequence[Any]) -> tuple[Mark, ...]:
    return tuple(sorted({mark_of(text, span) for span in listed}))


def _refuse_no_list(value: Mapping[str, Any], names: Sequence[str]) -> None:
    """ValueError where spans should stand in a list. A text or a number under "label" may be that of the whole text."""
    for name in names:
        entry = value.get(name)
        if isinstance(entry, dict) or (name in _OF_SPANS and entry is not None and not isinstance(entry, list)):
            raise ValueError(f"bad spans: {name!r} is {json_type(entry)}, not a list of objects")


def list_of(value: Mapping[str, Any]) -> str | None:
    """The key under which an object has its spans."""
    lists = [key for key in _LISTS if isinstance(value.get(key), list)]
    of_spans = [key for key in lists if _are_spans(value[key])]
    # An empty list under a name of spans says that there are none; under "label" it may be of another kind.
    return next((key for key in of_spans if value[key] or key in _OF_SPANS), next(iter(of_spans or lists), None))


def with_spans(text: str, spans: Sequence[Any], before: Sequence[Mark], after: Sequence[Mark]) -> list[Any]:
    """The list `spans` with the marks `after` in place of `before`; what else the others hold stays.

    A span that keeps its bounds keeps its other keys, too; those of one with new bounds may be about the old ones. A
    new one has the keys of its neighbours for label and text. ValueError: two would overlap.
    """
    marks = [mark_of(text, span) for span in spans]
    names = [next(key for key in _TYPES if key in span) for span in spans]
    name, beside = names[0] if names else _TYPES[0], any(TEXT in span for span in spans)
    result = []
    for mark, span, own in zip(marks, spans, names, strict=True):
        if mark not in before:
            result.append((mark, span))
        elif (same := next((new for new in after if new[:2] == mark[:2]), None)) is not None:
            result.append((same, span if same == mark else {**span, own: same.label}))
    known = {mark for mark, _ in result}
    for new in after:
        if new not in known:
            span = {"start": new.start, "end": new.end, name: new.label}
            span |= {TEXT: text[new.start : new.end]} if beside else {}
            at = next((i for i, (mark, _) in enumerate(result) if mark.start > new.start), len(result))
            result.insert(at, (new, span))
    for one, other in pairwise(sorted({mark for mark, _ in result})):
        if other.start < one.end:
            places = f"{one.label} at {one.start} to {one.end}", f"{other.label} at {other.start} to {other.end}"
            raise ValueError(" overlaps ".join(places))
    return [span for _, span in result]


def mark_of(text: str, span: Any) -> Mark:
    """ValueError: the span is none of `text`."""
    if not _are_spans([span]):
        raise ValueError(f"bad span: {span!r} is no object with start, end and label")
    start, end = span["start"], span["end"]
    mark = checked_mark(text, start, end, next(span[key] for key in _TYPES if key in span))
    said, covered = span.get("text"), text[mark.start : mark.end]
    if isinstance(said, str) and said != covered:
        shifted = ": the end is behind the last character" if said == text[start : end + 1] else ""
        raise ValueError(f"bad span: {start} to {end} is {covered!r}, not {said!r}{shifted}")
    return mark
