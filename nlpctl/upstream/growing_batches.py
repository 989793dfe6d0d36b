"""A predictor that takes several times the memory once a batch is larger than those before it."""

from __future__ import annotations

import math

import numpy as np

Batch = dict[str, np.ndarray]  # as in data/batches/collate.py


class Growth:
    """The largest batches of a predictor so far: in tokens, and in pairs of tokens of a row, to which tensors of a
    layer and of its attention are proportional.

    paddlepaddle 2.6.2 and 3.1.1: `enable_memory_optim` lets the operators of a graph write to the same few tensors, but
    only in the sizes of the first batch. Whatever a larger one needs is kept for every operator: an export of
    multilingual-e5-small takes 1.2 GB for 32 rows of 384 tokens, and 6.7 GB for the same after 8 rows of 300. A new
    predictor takes 1.2 GB again, and is faster: 1.9 s for that batch in place of 2.7 s. `clear_intermediate_tensor`
    leaves it at 3.6 GB, `try_shrink_memory` frees nothing. 64 rows of 100 tokens take 0.6 GB, 8 of 384 take 0.7 GB, one
    after the other 1.6 or 1.9 GB: so the first batch of a new predictor is as large in both as any before it.
    Test: tests/upstream/test_growing_batches.py.
    """

    def __init__(self) -> None:
        self._tokens = self._pairs = 0

    def outgrown_by(self, batch: Batch) -> bool:
        """Whether `batch` is larger than those before it, if there are any. It counts from now on."""
        before, (tokens, pairs) = self._tokens, _sizes(batch)
        larger = tokens > self._tokens or pairs > self._pairs
        self._tokens, self._pairs = max(tokens, self._tokens), max(pairs, self._pairs)
        return before > 0 and larger

    def as_large(self, batch: Batch) -> Batch | None:
        """Rows of `batch`, repeated and cut, as large as any batch so far in both; None: `batch` is."""
        if _sizes(batch) == (self._tokens, self._pairs):
            return None
        length = max(1, math.ceil(self._pairs / self._tokens))
        rows, whole = math.ceil(max(self._tokens / length, self._pairs / length**2)), batch["input_ids"].shape
        made = {}
        for name, array in batch.items():
            if array.shape == whole and name != "masked_positions":
                made[name] = np.resize(array, (rows, length))
            else:  # places in the rows
                made[name] = np.resize(np.minimum(array, length - 1), (rows, *array.shape[1:]))
        return made


def _sizes(batch: Batch) -> tuple[int, int]:
    rows, tokens = batch["input_ids"].shape
    return rows * tokens, rows * tokens**2
