"""Rows for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from nlpctl.data.inspection.rows import InspectedRow
from nlpctl.data.rows.task_rows import Doubt

MakeSeen = Callable[..., InspectedRow]


@pytest.fixture
def seen() -> MakeSeen:
    """Makes a row of a file named as its split; `target` is the label where it is not given."""

    def make(
        *passages: str,
        split: str = "train",
        line: int = 1,
        label: str = "pos",
        target: Hashable = None,
        doubts: tuple[Doubt, ...] = (),
        tokens: int = 10,
    ) -> InspectedRow:
        return InspectedRow(split, f"{split}.tsv", line, passages, (label,), target or label, doubts, tokens)

    return make
