"""What batches cost, learned from those computed so far, and how requests are divided so that they cost the least.

A batch is as slow as its longest row. Dividing it saves what the shorter rows are padded by, and costs what every batch
takes whatever is in it. Both differ by a hundred times between networks and devices, so they are measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_MEMORY = 0.98  # weight of a batch beside the next one: some fifty count
_ENOUGH = 8  # batches before their cost is believed


class BatchCosts:
    """Seconds of a batch = fixed + per unit * rows * size of the longest, by least squares over the latest batches.

    Padding makes every row as large as the longest. `size` is any unit that grows with a row's time.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)  # of 1, x, y, x * x, x * y

    def add(self, rows: int, longest: float, seconds: float) -> None:
        """A batch of `rows`, the largest of size `longest`, took `seconds`."""
        self._seen += 1
        padded = rows * longest
        latest = (1, padded, seconds, padded * padded, padded * seconds)
        self._sums = tuple(_MEMORY * last + new for last, new in zip(self._sums, latest, strict=True))

    def fitted(self) -> tuple[float, float]:
        """Seconds of every batch, and per unit of padded size, neither negative.

        (1, 0), which makes batches full, while too little is known.
        """
        count, x, y, xx, xy = self._sums
        spread = count * xx - x * x
        if self._seen < _ENOUGH or spread <= 1e-9 * count * xx:  # all of one size
            return 1.0, 0.0
        each = max((count * xy - x * y) / spread, 0.0)
        fixed = (y - each * x) / count
        # Batches of nearly one size say little of either: the best line that is not below zero begins there.
        return (fixed, each) if fixed >= 0 else (0.0, xy / xx)

    def seconds(self, batches: int, padded: float) -> float | None:
        """What `batches` of `padded` units in all will take; None while that is unknown."""
        fixed, each = self.fitted()
        return fixed * batches + each * padded if each else None

    def divide(self, rows: Sequence[int], sizes: Sequence[float], most: int) -> list[int]:
        """Where to divide requests into batches of at most `most` rows, one larger request aside, for the least cost.

        `rows` of each request, and the size of its longest, rising. Returns the end of each batch.
        """
        if len(rows) == 1:
            return [1]
        fixed, each = self.fitted()
        before = np.concatenate([[0], np.cumsum(rows)])  # rows before each request
        cost, start = np.zeros(len(rows) + 1), [0] * (len(rows) + 1)
        # cost[end] is the least cost of the first `end` requests, whose last batch begins at start[end].
        for end in range(1, len(rows) + 1):
            first = min(int(np.searchsorted(before, before[end] - most)), end - 1)
            found = cost[first:end] + each * sizes[end - 1] * (before[end] - before[first:end])
            # argmin takes the first of equals, which is the largest batch.
            start[end] = first + int(found.argmin())
            cost[end] = found[start[end] - first] + fixed
        ends = [len(rows)]
        while start[ends[-1]]:
            ends.append(start[ends[-1]])
        return ends[::-1]
