"""Rows for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from nlpctl.data.inspect.rows import Seen

MakeSeen = Callable[..., Seen]


@pytest.fixture
def seen() -> MakeSeen:
    """Makes a row of a file named as its split; `truth` is the label where it is not given."""

    def make(
        *passages: str,
        split: str = "train",
        line: int = 1,
        label: str = "pos",
        truth: Hashable = None,
        doubts: tuple[str, ...] = (),
        tokens: int = 10,
    ) -> Seen:
        return Seen(split, f"{split}.tsv", line, passages, (label,), truth or label, doubts, tokens)

    return make
