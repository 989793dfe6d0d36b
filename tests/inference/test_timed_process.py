"""Seconds of batches, and the memory of a process, against values computed by hand."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from nlpctl.inference import timed_process
from nlpctl.inference.timed_process import TimedProcess, peak_mb, timed
from nlpctl.runtime.worker import listen_for_interrupts


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


def _opened(*arguments):
    listen_for_interrupts()
    return lambda asked: time.sleep(asked)


def test_ctrl_c_does_not_wait_for_a_pass(monkeypatch):
    """Which may take minutes, in C++ that sees no signal; what the process was to tell nobody wants any more."""
    monkeypatch.setattr(timed_process, "STOP_SECONDS", 60.0)
    monkeypatch.setattr(timed_process, "_open_subject", _opened)
    with pytest.raises(KeyboardInterrupt), TimedProcess(None, None, ()) as process:
        process._worker.channel.send(20.0)
        raise KeyboardInterrupt
    assert process._worker.code() == -signal.SIGKILL
