"""Figures of a benchmark, against values computed by hand."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from nlpctl.engines import timing
from nlpctl.engines.timing import figures, percentile, timed
from nlpctl.inference.timed_process import peak_mb


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


def test_every_batch_is_timed_in_turn():
    seen = []
    assert len(timed(seen.append, ["a", "b"])) == 2
    assert seen == ["a", "b"]


def test_short_passes_are_repeated_and_averaged(monkeypatch):
    clock, taken = [0.0], iter([1.0, 2.0, 3.0, 6.0])
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: sum(clock)))
    assert timed(lambda _: clock.append(next(taken)), ["a", "b"], at_least=4.0) == [2.0, 4.0]
    assert next(taken, None) is None


def test_the_peak_of_a_process_is_not_that_of_its_parent():
    large = bytearray(b"x") * (600 * 1024 * 1024)
    command = "from nlpctl.inference.timed_process import peak_mb; print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert 5 < float(done.stdout) < 400 < peak_mb() and large
