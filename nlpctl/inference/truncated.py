"""What is said of texts that have more tokens than data.max_seq_length: the network does not read the others."""

from __future__ import annotations

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import Problem
from nlpctl.names import counted

LONGER = "a model trained with a larger data.max_seq_length reads more of them"


def told_truncated(recipe: Recipe, count: int, rows: int, hint: str = LONGER, split: str | None = None) -> str:
    """That `count` of `rows` texts were cut."""
    limit = recipe.data.max_seq_length
    message = f"cut to {limit} tokens: {count:,} of {counted(rows, 'rows')}; what stands behind is not read"
    return str(Problem(message, "data.max_seq_length" if split is None else split, hint))


def warn_of_truncated(recipe: Recipe, count: int, rows: int, hint: str = LONGER, split: str | None = None) -> None:
    """Warn if any were."""
    if count:
        console.warn(told_truncated(recipe, count, rows, hint, split))
