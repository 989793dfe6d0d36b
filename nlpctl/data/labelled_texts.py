"""Which texts are labelled already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nlpctl.data.changed_rows import pairs
from nlpctl.data.near_duplicates import row_key
from nlpctl.data.open_split import open_split
from nlpctl.data.readers.row import BadRow, missing_key
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import TaskRows


def labelled_texts(rows: TaskRows, split: str) -> Iterator[Any]:
    """The examples of a split, without their labels. Rows that are bad, or whose column for the label is empty, have
    none.

    A row that data.map changes has two: unlabelled texts do not pass through it. UserError if the split cannot be read.
    """
    reader, source = ExampleReader(rows, None), open_split(rows, split)
    for given, row in pairs(source):
        if row is None:
            continue
        example = reader.read(row)
        if isinstance(example, BadRow):
            continue
        to_fill = [name for name, value in rows.to_label(example).items() if value is None]
        if any(row.values.get(name, True) in (None, "") for name in to_fill):
            continue
        yield example
        if given is not row and missing_key(given.values, rows.required(labelled=False)) is None:
            example = reader.read(given)
            if not isinstance(example, BadRow):
                yield example


def text_key(rows: TaskRows, example: Any) -> bytes:
    """Equal for examples with the same texts, whose label is the same."""
    return row_key(list(rows.passages(example).values()), ordered=not rows.symmetric)
