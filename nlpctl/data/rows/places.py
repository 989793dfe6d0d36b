"""Finds file and line of examples. Examples do not store them, to save memory; so the rows are read again."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleList, ExampleReader


@dataclass(frozen=True)
class Placed:
    """An example, or a part of one that fits the window, and its row as file:line."""

    where: str
    item: Any


class FeatureList(ExampleList):
    """The features of `examples` (the parts that fit the window), and the owner of each."""

    def __init__(self, examples: Sequence[Any], cut: Callable[[Any], Sequence[Any]]):
        super().__init__()
        self.examples = examples
        self.owners = array("i")
        for i, example in enumerate(examples):
            parts = cut(example)
            self.extend(parts)
            self.owners.extend([i] * len(parts))

    def owner(self, feature: int) -> Any:
        """The example that the feature at this index is a part of."""
        return self.examples[self.owners[feature]]


class PlacingReader(ExampleReader):
    """Reads a row into a Placed example."""

    def read(self, row: Row | BadRow) -> Placed | BadRow:
        example = super().read(row)
        return example if isinstance(example, BadRow) else Placed(f"{row.source}:{row.line}", example)


def places(rows: Iterable[Row | BadRow], reader: ExampleReader, examples: Sequence[Any]) -> list[str | None]:
    """file:line of each example; None if no row yields it any more.

    Equal examples get different rows, if there are as many rows of that content.
    """
    found: list[str | None] = [None] * len(examples)
    waiting: defaultdict[int, list[int]] = defaultdict(list)  # by length, so that few have to be compared
    for i, example in enumerate(examples):
        waiting[example.byte_length].append(i)
    placing = PlacingReader(reader.rows, reader.labels)
    for row in rows:
        placed = placing.read(row)
        if isinstance(placed, BadRow):
            continue
        same_length = waiting.get(placed.item.byte_length, ())
        same = next((i for i in same_length if examples[i] == placed.item), None)
        if same is not None:
            found[same] = placed.where
            # Each row is used once, so that a repeated example gets the places of different rows.
            same_length.remove(same)
            # Everything asked for is found: the rest of a large file need not be read.
            if not any(waiting.values()):
                break
    return _repeated(found, examples)


def _repeated(found: list[str | None], examples: Sequence[Any]) -> list[str | None]:
    """The places, with those of rows that were drawn several times (data.balance) filled in from each other."""
    missing = [i for i, place in enumerate(found) if place is None]
    for i in missing:
        others = (found[k] for k, example in enumerate(examples) if found[k] is not None and example == examples[i])
        found[i] = next(others, None)
    return found
