"""Rows of multi-label classification: a text or a pair of texts with any number of labels."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nlpctl import console
from nlpctl.data.readers.annotated import Annotated, with_text
from nlpctl.data.readers.row import RowSource
from nlpctl.data.rows.labels import LabelSet, known_label, label_name, unpacked
from nlpctl.data.rows.text_rows import LabelledTextRows, byte_length_of, checked_text
from nlpctl.errors import UserError
from nlpctl.names import and_more, subject

# What stands between the labels of a column; the first is the default of data.label_separator.
SEPARATORS = (",", "|", ";", "，", "、", "；", "\n")

# -- hierarchical label names -----------------------------------------------------------------------------------------
#
# `food##fruit` is the label fruit below the label food, which it implies.

SEPARATOR = "##"


def tidy(name: str) -> str:
    """`name` without blanks around its levels. ValueError if a level is blank, as in `food##`."""
    levels = [level.strip() for level in name.split(SEPARATOR)]
    if not all(levels):
        raise ValueError(f"bad label: {name!r} has an empty level (levels are joined by {SEPARATOR})")
    return SEPARATOR.join(levels)


def depth(name: str) -> int:
    """The level of a label, 1 for one without a parent."""
    return name.count(SEPARATOR) + 1


def ancestors(name: str) -> tuple[str, ...]:
    """The labels above `name`, the topmost first: a##b##c has a and a##b."""
    levels = name.split(SEPARATOR)
    return tuple(SEPARATOR.join(levels[:count]) for count in range(1, len(levels)))


def with_ancestors(names: Iterable[str]) -> tuple[str, ...]:
    """`names` in their order, with missing ancestors inserted right before their first descendant."""
    given = tuple(names)
    known, closed = set(given), []
    for name in given:
        missing = [above for above in ancestors(name) if above not in known]
        known.update(missing)
        closed += [*missing, name]
    return tuple(closed)


def ancestor_ids(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Per label the ids (positions in `names`) of its ancestors, which must be among `names`."""
    ids = {name: i for i, name in enumerate(names)}
    return tuple(tuple(ids[above] for above in ancestors(name)) for name in names)


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MultiLabelExample:
    """A sentence or a pair. `labels`: sorted ids including ancestors; None without labels, as in predict."""

    text: str
    text_pair: str | None
    labels: tuple[int, ...] | None

    @property
    def byte_length(self) -> int:
        """Proportional to tokens, without tokenising."""
        return byte_length_of(self.text, self.text_pair)


class MultiLabelRows(LabelledTextRows):
    """Rows of multi-label classification: the label column holds a list, or text split at data.label_separator.

    A label a##b implies its parent a. Parents are added to the label set and to the labels of each row.
    """

    annotation = "labels"

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> MultiLabelExample:
        columns = self.data.columns
        text = checked_text(values[columns.text], "text")
        pair = None if columns.text_pair is None else checked_text(values[columns.text_pair], "second text")
        if labels is None:
            return MultiLabelExample(text, pair, None)
        ids: set[int] = set()
        for name in row_labels(values[columns.label], self.data.label_separator):
            ids.add(known_label(name, labels))
            ids.update(labels.id(above) for above in ancestors(name))
        # Sorted, so that rows with the same labels compare equal and deduplicate.
        return MultiLabelExample(text, pair, tuple(sorted(ids)))

    def collect_labels(self, source: RowSource) -> LabelSet:
        labels = super().collect_labels(source)
        if joined := joined_labels(labels):
            made = subject(len(joined), "labels", "is", "are")
            console.warn(
                f"{source.description}: {made} made of other ones with a sign between them, and learned as such: "
                f"{and_more([repr(name) for name in joined])}; rows are split at data.label_separator alone, "
                f"{self.data.label_separator!r}: write this sign in the file, or split them in data.map"
            )
        return labels

    def prepare_labels(self, labels: LabelSet) -> LabelSet:
        """`labels` with the parents of hierarchical ones."""
        try:
            return LabelSet(with_ancestors(tidy(name) for name in labels))
        except ValueError as error:
            raise UserError(str(error), where="data.labels", hint="write parent##child") from None

    def _label_names(self, value: Any) -> list[str]:
        return row_labels(value, self.data.label_separator)

    def from_annotation(self, record: Annotated) -> Mapping[str, Any]:
        column = self.data.columns.label
        values = with_text(record, self.data.columns.text, column)
        if isinstance(values.get(column), str):
            return {**values, column: [values[column]]}  # one label, which is not to be split
        return values | ({column: record.labels(column)} if record.labelled else {})

    def columns_to_fill(self, example: MultiLabelExample) -> dict[str, Any]:
        return {}  # an empty column would say that the text has no label

    def label_names(self, example: MultiLabelExample, labels: LabelSet) -> tuple[str, ...]:
        assert example.labels is not None, "the example is a labelled one"
        return tuple(labels.name(i) for i in example.labels)

    def target(self, example: MultiLabelExample) -> Hashable:
        return example.labels

    def unlabelled(self, example: MultiLabelExample) -> MultiLabelExample:
        return replace(example, labels=None)

    def with_answer(
        self, example: MultiLabelExample, answer: Mapping[str, Any], labels: LabelSet
    ) -> MultiLabelExample:
        return replace(example, labels=tuple(map(labels.id, answer["labels"])))

    def check_training(self, examples: Sequence[Any], labels: LabelSet, where: str) -> None:
        """UserError if all examples have the same labels."""
        first = examples[0].labels
        if all(example.labels == first for example in examples):
            having = f"the labels {and_more([labels.name(i) for i in first], 10)}" if first else "no label"
            hint = "check data.columns.label, data.label_separator and the training file"
            raise UserError(f"all {len(examples)} training rows have {having}", where=where, hint=hint)


def joined_labels(names: Iterable[str]) -> list[str]:
    """Labels that are others of the `names` with a usual separator between them, at which no row was split."""
    known = set(names)
    return sorted(
        name
        for name in known
        if any(sign in name and {part.strip() for part in name.split(sign)} <= known for sign in SEPARATORS)
    )


def row_labels(value: Any, separator: str) -> list[str]:
    """The label names of a row: a list, text split at `separator`, or nothing. ValueError says what is wrong."""
    if value is None or (isinstance(value, str) and (not value.strip() or value.strip() == "[]")):
        return []
    value = unpacked(value)
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):  # [1, 2]; else it is a label
            parsed = json.loads(value)
            value = parsed if isinstance(parsed, list) else value
    if isinstance(value, str):
        parts = value.split(separator)
        if not all(part.strip() for part in parts):
            raise ValueError(f"blank label: {value!r} has nothing between two separators {separator!r}, or at an end")
        value = parts
    elif not isinstance(value, list):
        value = [value]  # a number, say: one label
    return [tidy(label_name(each)) for each in value]
