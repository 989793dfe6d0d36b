"""doccano's JSON and JSONL: a text and its labels per record.

    {"text": "...", "label": ["positive"]}                     of the text
    {"text": "...", "label": [[0, 5, "PER"]]}                  of spans; also "labels"
    {"text": "...", "entities": [{"start_offset": 0, "end_offset": 5, "label": "PER"}], "relations": []}
    {"data": "...", "label": [[0, 5, "PER"]]}                  the text called data, some versions between
    {"text": "...", "annotations": [{"start_offset": 0, "end_offset": 5, "label_name": "PER"}]}     older

Spans are counted in UTF-16 units, as its editor counts them. A project that counts grapheme clusters cannot be told
from one that does not, nor a program that counts code points and writes the same form; they differ in texts with emoji,
rare characters and combining marks alone, of which a warning tells.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from nlpctl import console
from nlpctl.data.readers.annotated import Annotated, Mark, checked_mark, from_utf16, to_utf16

TEXT = "text"
_DATA = "data"  # what some versions call the text
_LABELS = ("label", "labels", "entities", "annotations", "cats")
_LISTS = ("relations", "Comments", "comments")  # what doccano adds beside the labels, and whoever approved them
_APPROVER = "annotation_approver"


def is_record(value: Any) -> bool:
    """Whether an object holds spans, or a text called data and a list of labels: no other file is like this."""
    text = _text_of(value)
    if text is None:
        return False
    return any(_spans(value.get(key)) for key in _LABELS) or (TEXT not in value and has_label_list(value))


def has_label_list(value: Any) -> bool:
    """Whether an object holds a list of labels of its text."""
    labels = value.get("label") if _text_of(value) is not None else None
    return isinstance(labels, list) and bool(labels) and all(isinstance(each, str) for each in labels)


def _text_of(value: Any) -> str | None:
    text = value.get(TEXT, value.get(_DATA)) if isinstance(value, dict) else None
    return text if isinstance(text, str) else None


def _spans(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_span(each) for each in value)


def _is_span(value: Any) -> bool:
    if isinstance(value, dict):
        return "start_offset" in value and "end_offset" in value
    return isinstance(value, list) and len(value) == 3 and isinstance(value[0], int) and isinstance(value[2], str)


def annotated(value: Mapping[str, Any]) -> Annotated:
    """ValueError says what is wrong."""
    text = _text_of(value)
    if text is None:
        raise ValueError(f"not a record of doccano: no {TEXT!r}")
    others = {name: entry for name, entry in value.items() if not _has_a_meaning(name, entry)}
    values = others if TEXT in value else {TEXT if name == _DATA else name: entry for name, entry in others.items()}
    point = from_utf16(text)
    labels: list[str] = []
    marks: list[Mark] = []
    given = [value[key] for key in _LABELS if value.get(key) is not None]
    for each in given:
        if not isinstance(each, list):
            each = [each]  # the label column of a table
        for entry in each:
            if _is_span(entry):
                marks.append(_mark(text, point, entry))
            elif isinstance(entry, str):
                labels.append(entry)
            elif isinstance(entry, dict) and isinstance(entry.get("label_name"), str):  # an older classification
                labels.append(entry["label_name"])
            elif entry is not None:
                raise ValueError(f"bad label: {entry!r} is neither a label nor [start, end, label]")
    unit = to_utf16(text)
    if any(unit(mark.end) != mark.end for mark in marks):
        _warn_of_units()
    choices = tuple(("label", label) for label in labels)
    left_out = sum(len(value[name]) for name in _LISTS if isinstance(value.get(name), list))
    return Annotated(values, bool(given), choices, tuple(sorted(set(marks))), TEXT, left_out=left_out)


def _has_a_meaning(name: str, value: Any) -> bool:
    """Whether a key is doccano's own; a text called comments is a column of the user."""
    return name in (*_LABELS, _APPROVER) or (name in _LISTS and (value is None or isinstance(value, list)))


@functools.cache
def _tell(names: tuple[str, ...]) -> None:
    """Once, however many rows have them."""
    console.note(f"not written, since doccano takes it for its own: {', '.join(names)}")


@functools.cache
def _warn_of_units() -> None:
    """Once, of however many rows: nothing in a file tells who counted."""
    console.warn(
        "spans behind an emoji or a rare character are read as doccano counts: such a character is two UTF-16 units\n"
        "  -> if a program counted characters, labels are shifted: write spans as objects, which count characters:\n"
        '     {"text": "...", "spans": [{"start": 0, "end": 5, "label": "PER"}]}'
    )


def _mark(text: str, point: Any, span: Any) -> Mark:
    if isinstance(span, dict):
        start, end, label = span["start_offset"], span["end_offset"], span.get("label_name", span.get("label"))
    else:
        start, end, label = span
    if isinstance(start, int) and isinstance(end, int):
        start, end = point(start), point(end)
    return checked_mark(text, start, end, label)


def record_of(
    data: Mapping[str, Any], text: str, labels: Sequence[str] | None, marks: Sequence[Mark]
) -> dict[str, Any]:
    """A record to import. `labels` None: it has spans."""
    taken = [name for name, value in data.items() if _has_a_meaning(name, value)]
    if taken:
        _tell(tuple(taken))
    others = {name: value for name, value in data.items() if name not in (*taken, TEXT)}
    written: list[Any]
    if labels is None:
        unit = to_utf16(text)
        written = [[unit(start), unit(end), label] for start, end, label in marks]
    else:
        written = list(labels)
    return {**others, TEXT: text, "label": written}
