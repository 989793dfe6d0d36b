"""Texts that people annotated elsewhere: the records of Label Studio and doccano, as reader and writer share them.

    file --label_studio.py, doccano.py--> Annotated --TaskRows.from_annotation--> the columns of a task

Marks are positions in code points, as Python counts them, whatever the file counts.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol

from nlpctl.data.readers.row import missing_key


class Mark(NamedTuple):
    """An annotated span of a text: text[start:end], and its label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Annotated:
    """One record. `values`: its texts and whatever else it holds; `labelled`: whether a person has annotated it.

    `choices`: the labels of the whole text, each with the name of the question that it answers; `marks`: those of
    spans, of the field `marked`. Both may be empty where a person found none. `plain`: single labels are among the
    values, as JSON_MIN has them. `unread`: a kind of spans that no tags can be made of, if there are such. `left_out`:
    how many relations, comments and the like it holds besides.
    """

    values: Mapping[str, Any]
    labelled: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    marks: tuple[Mark, ...] = ()
    marked: str | None = None
    plain: bool = False
    unread: str | None = None
    left_out: int = 0

    def labels(self, question: str) -> list[str]:
        """The labels that answer `question`; all of them where no question is called so, unless answers stand among the
        values, too."""
        own = [label for name, label in self.choices if name == question]
        return list(dict.fromkeys(own or [label for _, label in self.choices if not self.plain]))


class AnnotatedTask(Protocol):
    """What a task makes of a record; TaskRows is one."""

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]: ...

    def required(self, labelled: bool) -> tuple[str, ...]: ...


class NotAnnotated(ValueError):
    """Nobody gave a record the label that is read of it."""


@dataclass(frozen=True)
class OnlyAnnotated:
    """`task`, for rows that data.map is to change: what nobody annotated is left out before. A function may give any
    row a label, and none of its labels would be a person's."""

    task: AnnotatedTask

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]:
        values = self.task.from_annotation(record)
        # Labels of JSON_MIN may be under any name, which data.map knows.
        given = record.choices or record.marks or record.plain
        if not given and missing_key(values, self.task.required(labelled=True)) is not None:
            raise NotAnnotated
        return values

    def required(self, labelled: bool) -> tuple[str, ...]:
        return self.task.required(labelled)


def with_text(record: Annotated, column: str, *answers: str) -> dict[str, Any]:
    """The values of a record, with its text, which these programs call "text", under the name of a recipe, too.

    `answers`: columns that a person fills in; what the record holds there without an annotation counts for nothing.
    """
    values = {name: value for name, value in record.values.items() if record.plain or name not in answers}
    if column not in values and "text" in values:
        values[column] = values["text"]
    return values


class MarkedWords(list[str]):
    """The words of a text, cut at the ends of its marks, too, where predict, which has no marks, does not cut."""


def tags_from_marks(
    text: str, marks: Sequence[Mark], cut: Callable[[str], Sequence[tuple[int, int]]]
) -> tuple[MarkedWords, list[str]]:
    """The words of `text` and their tags (BIO). `cut` gives the bounds of the words; a mark cuts them further.

    ValueError: marks overlap, or one covers no word.
    """
    marks = sorted(set(marks))
    for one, other in zip(marks, marks[1:], strict=False):
        if other.start < one.end:
            spans = " and ".join(f"{mark.label} {text[mark.start : mark.end]!r}" for mark in (one, other))
            raise ValueError(f"overlapping spans: {spans}; a word has one tag")
    borders = sorted({place for mark in marks for place in (mark.start, mark.end)})
    words, tags = MarkedWords(), list[str]()
    waiting, inside = list(reversed(marks)), False
    for start, end in _cut_at(cut(text), borders):
        while waiting and waiting[-1].end <= start:
            if not inside:
                raise _empty(text, waiting[-1])
            waiting.pop()
            inside = False
        mark = waiting[-1] if waiting and waiting[-1].start <= start else None
        words.append(text[start:end])
        tags.append("O" if mark is None else f"{'I' if inside else 'B'}-{mark.label}")
        inside = mark is not None
    if len(waiting) > int(inside):
        raise _empty(text, waiting[-1 - int(inside)])
    return words, tags


def _empty(text: str, mark: Mark) -> ValueError:
    return ValueError(f"empty span: {mark.label} at {mark.start} to {mark.end} covers no word")


def _cut_at(bounds: Iterable[tuple[int, int]], borders: Sequence[int]) -> Iterator[tuple[int, int]]:
    """`bounds`, those cut in which one of `borders`, which are sorted, lies."""
    for start, end in bounds:
        inside = borders[bisect_right(borders, start) : bisect_left(borders, end)]
        yield from pairwise((start, *inside, end))


def checked_mark(text: str, start: Any, end: Any, label: Any) -> Mark:
    """ValueError if the span is not one of `text`."""
    if not all(isinstance(place, int) and not isinstance(place, bool) for place in (start, end)):
        raise ValueError(f"bad span: {start!r} to {end!r} are not positions")
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"bad span: {label!r} is no label")
    if not 0 <= start < end <= len(text):
        raise ValueError(f"bad span: {start} to {end} of a text of {len(text)} characters")
    return Mark(start, end, label.strip())


@functools.lru_cache(maxsize=1)  # all spans of a text ask for it
def from_utf16(text: str) -> Callable[[int], int]:
    """From a position in UTF-16 units, which JavaScript counts, to one in code points.

    ValueError for the middle of a character of two units, such as an emoji.
    """
    if text.isascii() or max(text) <= "\uffff":
        return lambda place: place
    places: dict[int, int] = {}
    units = 0
    for number, character in enumerate(text):
        places[units] = number
        units += 1 + (character > "\uffff")
    places[units] = len(text)

    def point(place: int) -> int:
        if place in places:
            return places[place]
        if place > units:
            return len(text) + place - units  # beyond the end, which is refused as such
        raise ValueError(f"bad span: position {place} is in the middle of a character, by UTF-16 units")

    return point


def to_utf16(text: str) -> Callable[[int], int]:
    """From a position in code points to one in UTF-16 units."""
    if text.isascii() or max(text) <= "\uffff":
        return lambda place: place
    return [0, *accumulate(1 + (character > "\uffff") for character in text)].__getitem__


def most_common_answer(answers: Sequence[Any], same: Callable[[Any], Hashable]) -> Any:
    """The answer that most annotators gave; of equally frequent ones the first. `same`: equal for equal answers."""
    counts = Counter(map(same, answers))
    return max(answers, key=lambda answer: counts[same(answer)])  # max gives the first of equals
