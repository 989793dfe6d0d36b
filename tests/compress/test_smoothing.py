"""Which columns of an activation are divided, and by what."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.graphs.smoothing import Columns

WEIGHT = np.random.default_rng(3).normal(size=(64, 48)).astype(np.float32)


def columns(*largest: float, lowest: float = -1.0) -> Columns:
    """Of 64 columns with values spread evenly up to 1; the last ones up to these."""
    highs = np.ones((1, 64), np.float32)
    highs[0, 64 - len(largest) :] = largest
    lows = highs * lowest
    return Columns(lows, highs, highs**2 * (1 + lowest + lowest**2) / 3)


def drawn(given: Columns, rows: int = 400) -> np.ndarray:
    return np.random.default_rng(4).uniform(given.lows, given.highs, (rows, 64))


def error(given: Columns, divisors: np.ndarray | float, weight=WEIGHT, symmetric=False, per_column=True) -> float:
    """The mean square of what 8 bits change in the product, summed over the outputs, times 12."""
    activation, scaled = drawn(given), weight * np.reshape(divisors, (-1, 1))
    low, high = given.bounds(divisors)
    step = (2 * max(high, -low) if symmetric else max(high, 0) - min(low, 0)) / 255
    steps = np.abs(scaled).max(0 if per_column else None) / 127
    product = (np.round(activation / divisors / step) * step) @ (np.round(scaled / steps) * steps)
    return 12 * float(((product - activation @ weight) ** 2).mean(0).sum())


def test_outliers_are_divided_and_the_others_stay():
    given = columns(30, 70)
    found = given.divisors([WEIGHT], symmetric=False)
    assert found is not None and found.dtype == np.float32
    assert (found[:62] == 1).all() and found[62] > 3 and found[63] == pytest.approx(found[62] * 7 / 3)
    assert error(given, found) < error(given, 1.0) / 3


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("lowest", [-1.0, -0.01, 0.0])
@pytest.mark.parametrize("divisor", [1.0, 5.0, 40.0])
def test_the_estimate_is_the_error(symmetric, per_column, lowest, divisor):
    given, divisors = columns(30, 70, lowest=lowest), np.ones(64)
    divisors[62:] = divisor
    estimated = given._error(divisors, WEIGHT, symmetric, per_column)
    assert estimated == pytest.approx(error(given, divisors, WEIGHT, symmetric, per_column), rel=0.35)


def test_the_larger_side_counts():
    above = columns(50)
    below = Columns(-above.highs, -above.lows, above.squares)
    divisors = [each.divisors([WEIGHT], symmetric=False) for each in (below, above)]
    assert np.array_equal(*divisors) and divisors[0][63] > 3


def test_a_symmetric_scale_pays_twice_for_one_side():
    """As what GELU writes."""
    one_sided = columns(*[70.0] * 4, lowest=-0.002)
    symmetric, other = (one_sided.divisors([WEIGHT], symmetric=each)[63] for each in (True, False))
    assert symmetric > other > 1


def test_rows_of_the_weight_count():
    """A larger divisor where the outlier's row is small; none where it is large already."""
    small, large = WEIGHT.copy(), WEIGHT.copy()
    small[63] /= 100
    large[63] *= 30
    with_small, plain = (columns(80).divisors([each], symmetric=False)[63] for each in (small, WEIGHT))
    assert with_small > plain
    assert columns(80).divisors([large], symmetric=False) is None


def test_all_weights_count():
    large = WEIGHT.copy()
    large[63] *= 30
    assert columns(80).divisors([WEIGHT, large], symmetric=False) is None


def test_one_scale_for_a_weight():
    """A row that is multiplied then costs all columns of the weight."""
    weight = WEIGHT.copy()
    weight[63, 0] = 20
    found = columns(60).divisors([weight], symmetric=False)
    assert found is not None and error(columns(60), found, weight) < error(columns(60), 1.0, weight) / 2
    assert columns(60).divisors([weight], symmetric=False, per_column=False) is None


def test_dead_columns_do_not_hide_outliers():
    """As behind ReLU."""
    given = columns(*[0.0] * 40, *[1.0] * 10, 60.0, lowest=0.0)
    assert given.divisors([WEIGHT], symmetric=False)[63] > 3


@pytest.mark.parametrize("largest", [(), (2.0,), (np.inf,) * 40, (np.inf,), (np.nan,), (0.0,) * 64], ids=str)
def test_nothing_to_gain(largest):
    """Nothing stands out, or by too little for a pass through memory; or columns are broken, or always 0."""
    most = columns(*largest)
    assert Columns(-most.highs, most.highs, most.highs**2).divisors([WEIGHT], symmetric=False) is None


def test_bounds_are_means_over_batches():
    batches = Columns(np.array([[1, -4], [5, 6]]), np.array([[3, 2], [7, 8]]), np.ones((2, 2)))
    assert batches.bounds() == (0.5, 5.5)  # the means of -4 and 5, and of 3 and 8
