"""Pairs of training rows with equal and with different labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nlpctl.data.rows.text_rows import TextExample


@dataclass(frozen=True, slots=True)
class RowPair:
    """Two training rows to compare."""

    first: TextExample
    second: TextExample

    @property
    def byte_length(self) -> int:
        """By which batches are sorted: the longer of the two decides how wide they are padded."""
        return max(self.first.byte_length, self.second.byte_length)


class PairDraw:
    """Draws the pairs of one row after the other, a function of the seed and of the rows."""

    def __init__(self, rows: Sequence[TextExample], pairs: int, seed: int):
        """`pairs`: how many of each kind a row gets."""
        self._rows = rows
        self._pairs = pairs
        self._random = np.random.default_rng([seed, len(rows)])
        self._of: defaultdict[int | None, list[TextExample]] = defaultdict(list)
        self._places: defaultdict[int, list[int]] = defaultdict(list)  # data.balance repeats a row
        for row in rows:
            self._places[id(row)].append(len(self._of[row.label]))
            self._of[row.label].append(row)

    def __call__(self, row: TextExample) -> list[RowPair]:
        """`pairs` pairs of `row` with rows of its label, itself only if there is no other, and as many with others, if
        there are."""
        alike, drawn = self._of[row.label], []
        for _ in range(self._pairs):
            drawn.append(RowPair(row, self._alike(row, alike)))
            if len(alike) < len(self._rows):
                drawn.append(RowPair(row, self._different(row, len(alike))))
        return drawn

    def _alike(self, row: TextExample, alike: Sequence[TextExample]) -> TextExample:
        own = self._places[id(row)]
        if len(own) == len(alike):
            return row
        place = int(self._random.integers(len(alike) - len(own)))
        for each in own:
            place += place >= each
        return alike[place]

    def _different(self, row: TextExample, alike: int) -> TextExample:
        place = int(self._random.integers(len(self._rows) - alike))
        for label, rows in self._of.items():
            if label == row.label:
                continue
            if place < len(rows):
                return rows[place]
            place -= len(rows)
        raise AssertionError("there is a row with another label")
