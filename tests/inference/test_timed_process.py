"""Seconds of batches, and the memory of a process, against values computed by hand."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from made_runs import make_run

from nlpctl.inference import timed_process
from nlpctl.inference.timed_process import TimedModel, TimedProcess, TimedRows, full, peak_mb, timed
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


def test_all_timed_batches_are_full(tmp_path):
    """The speed of 10 rows in one batch would stand under "batches of 256"."""
    recipe = make_run(tmp_path, "sequence_classification")
    model = TimedModel("run", str(recipe.run_dir), recipe, None)
    subject = timed_process._open(model, TimedRows(None, 10, None), (8, 32))
    rows = {size: [len(batch["input_ids"]) for batch in batches] for size, batches in subject.batches.items()}
    assert rows == {8: [8, 8], 32: [32]} and subject.report.rows == 10
    assert len(subject.seconds(8, 0.0)) == 2 and subject.text_seconds(32) > 0


def test_a_batch_is_filled_with_its_rows_in_turn():
    batch = full({"input_ids": np.array([[1, 2], [3, 4]]), "pairs": np.array([[[5]], [[6]]])}, 5)
    assert batch["input_ids"].tolist() == [[1, 2], [3, 4], [1, 2], [3, 4], [1, 2]]
    assert batch["pairs"].tolist() == [[[5]], [[6]], [[5]], [[6]], [[5]]]


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
