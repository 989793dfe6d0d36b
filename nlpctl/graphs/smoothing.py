"""Outlier columns of activations, which 8 bits would pay for in all other columns.

An activation in 8 bits has one scale. Encoders have a few columns far larger than the others: the second product of a
layer of multilingual-e5-small reads values up to 63, of which half are below 0.1, so that 8 bits leave most of them 0.
As in SmoothQuant (arXiv:2211.10438, equation 3) such a column is divided by a number, and the row of the weight that it
meets multiplied with it, which leaves the product as it was. Only outliers are divided: SmoothQuant's own numbers,
which move all columns, were worse here (docs/compression-benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# What is larger is an outlier, in medians of the largest values of the columns; the best of these is taken.
LIMITS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
GAIN = 2.0  # by so much the error's power shrinks at least, since dividing is a pass through memory
_STEPS = 255


@dataclass(frozen=True)
class Columns:
    """The columns of an activation, per batch: their smallest and largest values and the means of their squares, each
    [batches, columns]."""

    lows: np.ndarray
    highs: np.ndarray
    squares: np.ndarray

    def bounds(self, divisors: np.ndarray | float = 1.0) -> tuple[float, float]:
        """Minimum and maximum of the divided activation, as means over the batches, so that one batch does not
        stretch them."""
        return float((self.lows / divisors).min(1).mean()), float((self.highs / divisors).max(1).mean())

    def divisors(self, weights: Sequence[np.ndarray], *, symmetric: bool) -> np.ndarray | None:
        """A number of at least 1 for each column, [columns], with which 8 bits change the products with `weights`
        [columns, outputs] least; None where that gains too little. `symmetric`: the activation's scale has 0 in its
        middle."""
        largest = np.maximum(-self.lows, self.highs).mean(0)
        usual = np.median(largest)
        if not 0 < usual < np.inf:
            return None
        tried = [np.maximum(largest / (limit * usual), 1.0).astype(np.float32) for limit in LIMITS]
        errors = [self._error(divisors, weights, symmetric) for divisors in (np.ones_like(largest), *tried)]
        best = int(np.argmin(errors))
        return tried[best - 1] if errors[0] >= GAIN * errors[best] > 0 else None

    def _error(self, divisors: np.ndarray, weights: Sequence[np.ndarray], symmetric: bool) -> float:
        """The power of the error that 8 bits make in the products, times 12: a step has the power step^2 / 12."""
        low, high = self.bounds(divisors)
        step = (2 * max(high, -low) if symmetric else max(high, 0.0) - min(low, 0.0)) / _STEPS
        power = (self.squares.mean(0) / divisors**2).sum()
        error = 0.0
        for weight in weights:
            scaled = weight * divisors[:, None]
            steps = 2 * np.abs(scaled).max(0) / _STEPS
            error += step**2 * float((scaled**2).sum()) + float((steps**2).sum() * power)
        return error


def columns_of(names: Iterable[str], seen: Sequence[Sequence[np.ndarray]]) -> dict[str, Columns]:
    """`seen`: for each batch, smallest values, largest values and mean squares of the first activation's columns, then
    those of the next."""
    by_output = [np.array(each) for each in zip(*seen, strict=True)]
    return {name: Columns(*by_output[3 * at : 3 * at + 3]) for at, name in enumerate(names)}
