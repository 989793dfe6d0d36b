"""Outlier columns of activations, which 8 bits would pay for in all other columns.

An activation in 8 bits has one scale. Encoders have a few columns far larger than the others: the second product of a
layer of multilingual-e5-small reads values up to 63, of which half are below 0.1, so that 8 bits leave most of them 0.
As in SmoothQuant (arXiv:2211.10438, equation 3) such a column is divided by a number, and the row of the weight that it
meets multiplied with it, which leaves the product as it was. Only outliers are divided: SmoothQuant's own numbers,
which move all columns, were worse here (docs/compression-benchmarks.md, "Outlier columns").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# The limits that are tried, above which a column is an outlier: multiples of the median of the columns' largest values.
LIMITS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
GAIN = 4.0  # by so much the power of the error shrinks at least, since dividing is a pass through memory in 32 bits
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

    def divisors(self, weights: Sequence[np.ndarray], *, symmetric: bool, per_column: bool = True) -> np.ndarray | None:
        """A number of at least 1 for each column, float32 [columns], with which 8 bits change the products with
        `weights` [columns, outputs] least; None where that gains too little.

        `symmetric`: the activation's scale has 0 in its middle. `per_column`: the weights have a scale for each output,
        or one. Between the bounds of `bounds`; a range chosen otherwise (mse, KL) may gain less.
        """
        largest = np.maximum(-self.lows, self.highs).mean(0, dtype=np.float64)
        if not (np.isfinite(largest).all() and np.isfinite(self.squares).all() and (largest > 0).any()):
            return None
        usual = np.median(largest[largest > 0])
        tried = [np.maximum(largest / (limit * usual), 1.0) for limit in LIMITS]
        plain, *errors = (
            sum(self._error(divisors, weight, symmetric, per_column) for weight in weights)
            for divisors in (np.ones_like(largest), *tried)
        )
        best = int(np.argmin(errors))
        return tried[best].astype(np.float32) if plain >= GAIN * errors[best] > 0 else None

    def _error(self, divisors: np.ndarray, weight: np.ndarray, symmetric: bool, per_column: bool) -> float:
        """The power of the error that 8 bits make in a product, summed over its outputs, times 12: rounding to a step
        has the power step^2 / 12."""
        low, high = self.bounds(divisors)
        step = (2 * max(high, -low) if symmetric else max(high, 0.0) - min(low, 0.0)) / _STEPS
        power = self.squares.mean(0, dtype=np.float64) / divisors**2
        scaled = weight * divisors[:, None]
        steps = 2 * np.abs(scaled).max(0 if per_column else None) / _STEPS * np.ones(weight.shape[1])
        # What is far below a step becomes 0, and loses no more than it was.
        lost = np.minimum(step**2, 12 * power)
        return float(lost @ (scaled**2).sum(1) + (steps**2).sum() * power.sum())


def columns_of(names: Iterable[str], seen: Sequence[Sequence[np.ndarray]]) -> dict[str, Columns]:
    """`seen`: for each batch, smallest values, largest values and mean squares of the first activation's columns, then
    those of the next."""
    by_output = [np.array(each) for each in zip(*seen, strict=True)]
    return {name: Columns(*by_output[3 * at : 3 * at + 3]) for at, name in enumerate(names)}
