"""Which columns of an activation are divided, and by what."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.graphs.smoothing import Columns

WEIGHT = np.random.default_rng(3).normal(size=(64, 8)).astype(np.float32)


def columns(*largest: float) -> Columns:
    """Of 64 columns between -1 and 1; the last ones up to these."""
    highs = np.ones((1, 64), np.float32)
    highs[0, 64 - len(largest) :] = largest
    return Columns(-np.ones_like(highs), highs, highs**2 / 3)


def error(activation: np.ndarray, divisors: np.ndarray | float) -> float:
    """The mean square of what 8 bits change in the product with WEIGHT."""
    divided, scaled = activation / divisors, WEIGHT * np.reshape(divisors, (-1, 1))
    step, steps = np.ptp(divided) / 255, np.abs(scaled).max(0) / 127
    product = (np.round(divided / step) * step) @ (np.round(scaled / steps) * steps)
    return float(((product - activation @ WEIGHT) ** 2).mean())


def test_outliers_are_divided_and_the_others_stay():
    found = columns(30, 70).divisors([WEIGHT], symmetric=False)
    assert found is not None and found.dtype == np.float32
    assert (found[:62] == 1).all() and found[62] > 3 and found[63] == pytest.approx(found[62] * 7 / 3)
    draw = np.random.default_rng(4).uniform(-1, 1, (500, 64)) * columns(30, 70).highs
    assert error(draw, found) < error(draw, 1.0) / 3


def test_the_larger_side_counts():
    below, above = columns(), columns(50)
    below.lows[0, 63] = -50
    below.squares[0, 63] = above.squares[0, 63]
    divisors = [each.divisors([WEIGHT], symmetric=False) for each in (below, above)]
    assert np.array_equal(*divisors) and divisors[0][63] > 3


def test_a_symmetric_scale_pays_twice_for_one_side():
    """As what GELU writes: -0.17 to 70."""
    one_sided = columns(*[70.0] * 4)
    one_sided.lows[:] = -0.17
    symmetric, other = (one_sided.divisors([WEIGHT], symmetric=each)[63] for each in (True, False))
    assert symmetric >= other > 1


def test_columns_that_meet_nothing_are_free():
    """A larger divisor where the outlier's row of the weight is small."""
    small = WEIGHT.copy()
    small[63] /= 100
    with_small, plain = (columns(80).divisors([each], symmetric=False)[63] for each in (small, WEIGHT))
    assert with_small > plain


@pytest.mark.parametrize("largest", [(), (2.0,), (np.inf,) * 40, (0.0,) * 64], ids=str)
def test_little_to_gain(largest):
    """Nothing stands out, or by too little for a pass through memory; or most columns are broken, or always 0."""
    assert columns(*largest).divisors([WEIGHT], symmetric=False) is None


def test_bounds_are_means_over_batches():
    batches = Columns(np.array([[1, -4], [5, 6]]), np.array([[3, 2], [7, 8]]), np.ones((2, 2)))
    assert batches.bounds() == (0.5, 5.5)  # the means of -4 and 5, and of 3 and 8
