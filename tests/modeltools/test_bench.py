"""Figures of a benchmark, against values computed by hand."""

from __future__ import annotations

import pytest

from nlpctl.modeltools.bench import figures, percentile


def test_percentiles_are_by_nearest_rank():
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99)] == [50, 90, 99]
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0


def test_speed_is_the_median_round_and_latencies_are_of_all_rounds():
    rounds = [[0.1, 0.3], [0.2, 0.2], [0.5, 0.5]]  # 0.4 s, 0.4 s and 1 s for 8 rows
    found = figures(rounds, 8)
    assert found.samples_per_second == pytest.approx(20)
    assert (found.slowest, found.fastest) == (pytest.approx(8), pytest.approx(20))
    assert (found.p50_ms, found.p99_ms) == (pytest.approx(200), pytest.approx(500))
    assert found.rounds == 3
