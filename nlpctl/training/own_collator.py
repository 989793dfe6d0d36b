"""Training batches made by the user's own collator, as PaddleNLP's Trainer would have them made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nlpctl.config.own_parts import part_of
from nlpctl.data.collate import Batch, Collator, LoaderFailure, failure_batch
from nlpctl.data.functions import raised
from nlpctl.errors import UserError

PART = part_of("training.data_collator")
Collate = Callable[[list[dict[str, Any]]], Any]
_ENTRY = "return a dict of arrays, each with an entry per row, or a tensor of it"


class OwnCollator:
    """From features to a batch, through the user's function; never raises, like `Collator`.

    The function gets a dict for each row: what the task's own collator makes of it, not padded, as lists. Its batch
    must hold the labels, and as many rows as it got.
    """

    def __init__(self, name: str, collate: Collate, inner: Collator, needs: Sequence[str]):
        """`needs`: the entries that a batch must have."""
        self.name, self._collate, self._inner, self._needs = name, collate, inner, tuple(needs)

    def __call__(self, features: Sequence[Any]) -> dict[str, Any]:
        try:
            for feature in features:
                if isinstance(feature, LoaderFailure):
                    return failure_batch(feature)
            return self.collate(features)
        except Exception as error:
            return failure_batch(LoaderFailure.of(error))

    def collate(self, features: Sequence[Any]) -> Batch:
        """The batch. UserError: the function fails, or what it returns is no batch of these rows."""
        rows = [self._row(feature) for feature in features]
        try:
            found = self._collate(rows)
        except Exception as error:
            raise UserError(f"{self.name} failed: {raised(error, __file__)}", PART.key, "fix it") from None
        if not isinstance(found, Mapping):
            raise UserError(f"{self.name} returned {type(found).__name__}, not a dict", PART.key, _ENTRY)
        missing = [name for name in self._needs if name not in found]
        if missing:
            message = f"{self.name} returned a batch without {', '.join(missing)}"
            raise UserError(message, PART.key, f"keep it; its rows hold {', '.join(rows[0])}")
        batch = {str(name): _array(value) for name, value in found.items()}
        for name, array in batch.items():
            if array.dtype == object or array.ndim == 0 or len(array) != len(rows):
                told = "rows of different lengths" if array.dtype == object else f"shape {list(array.shape)}"
                message = f"{self.name} returned {told} as {name} for {len(rows)} rows"
                raise UserError(message, PART.key, _ENTRY)
        return batch

    def _row(self, feature: Any) -> dict[str, Any]:
        made = self._inner.collate([feature])
        if any(len(array) != 1 for array in made.values()):
            hint = "remove training.data_collator"
            raise UserError("a row of this task becomes several in a batch", PART.key, hint)
        return {name: array[0].tolist() for name, array in made.items()}


def _array(value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty(len(value), dtype=object)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array
