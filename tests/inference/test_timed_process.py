"""Seconds of batches, and the memory of a process, against values computed by hand."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from nlpctl.inference import timed_process
from nlpctl.inference.timed_process import peak_mb, timed


def test_every_batch_is_timed_in_turn():
    seen = []
    assert len(timed(seen.append, ["a", "b"])) == 2
    assert seen == ["a", "b"]


def test_short_passes_are_repeated_and_averaged(monkeypatch):
    clock, taken = [0.0], iter([1.0, 2.0, 3.0, 6.0])
    monkeypatch.setattr(timed_process, "time", SimpleNamespace(perf_counter=lambda: sum(clock)))
    assert timed(lambda _: clock.append(next(taken)), ["a", "b"], at_least=4.0) == [2.0, 4.0]
    assert next(taken, None) is None


def test_the_peak_of_a_process_is_not_that_of_its_parent():
    large = bytearray(b"x") * (600 * 1024 * 1024)
    command = "from nlpctl.inference.timed_process import peak_mb; print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert 5 < float(done.stdout) < 400 < peak_mb() and large
