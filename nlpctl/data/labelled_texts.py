"""Which texts are labelled already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nlpctl.data.examples import ExampleReader
from nlpctl.data.inspect.normalise import row_key
from nlpctl.data.open_split import open_split
from nlpctl.data.row import BadRow
from nlpctl.data.task_rows import TaskRows


def labelled_texts(rows: TaskRows, split: str) -> Iterator[bytes]:
    """The `text_key` of each row of a split. Rows that are bad, or whose column for the label is empty, have none.

    UserError if the split cannot be read.
    """
    reader = ExampleReader(rows, None)
    for row in open_split(rows, split):
        example = reader.read(row)
        if isinstance(example, BadRow):
            continue
        to_fill = [name for name, value in rows.to_label(example).items() if value is None]
        if not any(row.values.get(name, True) in (None, "") for name in to_fill):
            yield text_key(rows, example)


def text_key(rows: TaskRows, example: Any) -> bytes:
    """Equal for examples with the same texts."""
    return row_key(list(rows.passages(example).values()))
