"""Truncated rows: those of more tokens than data.max_seq_length, of which the network does not read the rest.

Where rows are tokenised, the encoder that cuts them says so (`Encoding.truncated`); `Predictions.truncated`
(tasks/base.py) has the rows of whatever is answered or scored, and all commands count these. Where rows are only looked
at, before a training and in `nlpctl data inspect`, `count_truncated` decides from their lengths
(data/inspection/lengths.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import Problem
from nlpctl.names import counted

LONGER = "a model trained with a larger data.max_seq_length reads more of them"


@dataclass(frozen=True)
class Truncation:
    """How many of `rows` rows are `truncated`, and which share of the tokens of all is not read."""

    rows: int
    truncated: int
    unread: float

    @property
    def share(self) -> float:
        return self.truncated / max(1, self.rows)


def count_truncated(tokens: Sequence[int], limit: int) -> Truncation:
    """`tokens`: of each row, special ones included. `limit`: data.max_seq_length."""
    unread = sum(max(0, count - limit) for count in tokens)
    return Truncation(len(tokens), sum(count > limit for count in tokens), unread / max(1, sum(tokens)))


def truncated_message(recipe: Recipe, count: int, rows: int, hint: str = LONGER, split: str | None = None) -> str:
    """That `count` of `rows` texts were truncated, those of `split` if it is given."""
    limit = recipe.data.max_seq_length
    message = f"cut to {limit} tokens: {count:,} of {counted(rows, 'rows')}; what stands behind is not read"
    return str(Problem(message, "data.max_seq_length" if split is None else split, hint))


def warn_of_truncated(recipe: Recipe, count: int, rows: int, hint: str = LONGER, split: str | None = None) -> None:
    """Warn if any were."""
    if count:
        console.warn(truncated_message(recipe, count, rows, hint, split))
