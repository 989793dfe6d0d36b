"""The cost of batches is found from their times, and the cheapest division by it."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from nlpctl.serve.batcher import BatchCosts


def learned(fixed: float, each: float, batches: int = 20) -> BatchCosts:
    costs = BatchCosts()
    for number in range(batches):
        rows, longest = 1 + number % 7, 5 + number % 3
        costs.add(rows, longest, fixed + each * rows * longest)
    return costs


def test_costs_are_found_from_times() -> None:
    assert learned(0.003, 2e-5).fitted() == pytest.approx((0.003, 2e-5))


def test_new_times_replace_old_ones() -> None:
    costs = learned(0.003, 2e-5)
    for number in range(400):
        rows = 1 + number % 7
        costs.add(rows, 10, 0.001 + 5e-5 * 10 * rows)
    assert costs.fitted() == pytest.approx((0.001, 5e-5), rel=0.05)


def test_neither_part_is_negative() -> None:
    assert learned(-0.001, 1e-4).fitted()[0] == 0
    assert learned(0.1, -1e-5).fitted()[1] == 0


def test_noise_among_batches_of_one_size_does_not_make_large_ones_dear() -> None:
    """A line through two clouds would be as steep as the noise."""
    costs = BatchCosts()
    for number in range(40):
        costs.add(1, 20 + number % 2, 0.004 + 0.002 * (number % 2))  # 2 ms more for the larger: by chance
    assert costs.fitted() == (0, pytest.approx(0.00025, rel=0.05))
    assert costs.seconds(2, 1000) == pytest.approx(0.25, rel=0.05)
    assert BatchCosts().seconds(1, 10) is None


@pytest.mark.parametrize("costs", [BatchCosts(), learned(0.003, 2e-5, batches=7)])
def test_batches_are_full_while_little_is_known(costs: BatchCosts) -> None:
    assert costs.divide([1, 1, 1, 1], [1, 9, 90, 900], 8) == [4]
    assert costs.divide([1] * 9, list(range(9)), 8) == [1, 9]


def test_rows_of_one_size_tell_nothing_of_size() -> None:
    costs = BatchCosts()
    for _ in range(20):
        costs.add(4, 10, 0.01)
    assert costs.fitted() == (1.0, 0.0)


def test_long_rows_go_alone_where_padding_is_dear_and_together_where_a_batch_is() -> None:
    sizes = [10, 11, 12, 100]
    assert learned(0.001, 1e-4).divide([1, 1, 1, 1], sizes, 8) == [3, 4]
    assert learned(0.1, 1e-4).divide([1, 1, 1, 1], sizes, 8) == [4]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_division_costs_less(seed: int) -> None:
    chance = random.Random(seed)
    fixed, each, most = chance.choice([1e-4, 1e-2]), chance.choice([1e-6, 1e-3]), chance.randint(2, 6)
    count = chance.randint(1, 9)
    rows, sizes = [chance.randint(1, 3) for _ in range(count)], sorted(chance.randint(1, 60) for _ in range(count))

    def cost(ends: list[int]) -> float:
        parts = list(pairwise([0, *ends]))
        if any(sum(rows[start:end]) > most and end - start > 1 for start, end in parts):
            return float("inf")
        return sum(fixed + each * sum(rows[start:end]) * sizes[end - 1] for start, end in parts)

    inner = list(range(1, count))
    every = [[*chosen, count] for many in range(count) for chosen in combinations(inner, many)]
    found = learned(fixed, each).divide(rows, sizes, most)
    assert cost(found) == pytest.approx(min(map(cost, every)))
