"""A run that stands still is told once, with what every thread does, also where no Python thread can run."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle

from nlpctl.runtime.event_log import EventLog
from nlpctl.tasks.sequence_classification import SequenceClassification
from nlpctl.training import watchdog
from nlpctl.training.watchdog import watched_for_progress

TENTH = 0.1 / 60  # of a second, in minutes
STILL = 3 * TENTH


@pytest.fixture
def network() -> paddle.nn.Layer:
    return paddle.nn.Linear(2, 2)


def wait_for_something_that_never_comes(seconds: float, first: Callable[[], object] = lambda: True) -> None:
    """Until `first` holds, and for `seconds`."""
    while not first():
        time.sleep(0.05)
    time.sleep(seconds)


def told_so_often(log: EventLog, count: int) -> bool:
    return len(log.read()) >= count


def test_stands_still_twice(network, tmp_path, capfd):
    log = EventLog(tmp_path / "events.jsonl")
    network(paddle.ones([1, 2]))  # the first time takes longer
    with watched_for_progress(network, STILL, log, lambda: 7):
        for stalls in (1, 2):
            told_of = partial(told_so_often, log, stalls)  # whenever the thread that watches runs
            wait_for_something_that_never_comes(0.7, first=told_of)  # and not told again
            network(paddle.ones([1, 2]))
    told = capfd.readouterr().err
    assert told.count("no progress for") == 2 and "after step 7" in told
    assert told.count("in wait_for_something_that_never_comes") == 2
    assert "Timeout (" not in told
    events = log.read()
    assert [(each["event"], each["step"]) for each in events] == [("stalled", 7), ("stalled", 7)]
    assert events[0]["minutes"] == STILL


def test_moves(network, tmp_path, capfd, monkeypatch):
    """By its own clock nine tenths of the time pass between two batches, ten times over."""
    log = EventLog(tmp_path / "events.jsonl")
    clock = [0.0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with watched_for_progress(network, TENTH, log, lambda: 7):
        for _ in range(10):
            clock[0] += 0.09
            time.sleep(0.06)
            network(paddle.ones([1, 2]))
    assert capfd.readouterr().err == "" and log.read() == []


def test_nobody_watches(network, tmp_path, capfd):
    with watched_for_progress(network, None, EventLog(tmp_path / "events.jsonl"), lambda: 7):
        time.sleep(0.3)
    assert capfd.readouterr().err == ""


def test_code_that_lets_no_python_thread_run(network, tmp_path, capfd, monkeypatch):
    """As C++ code that waits with Python's lock held: PyDLL keeps it while sleeping."""
    monkeypatch.setattr(watchdog, "MARGIN", 0.2)
    with watched_for_progress(network, 5 * TENTH, EventLog(tmp_path / "events.jsonl"), lambda: 7):
        ctypes.PyDLL(None).usleep(1_500_000)
        told = capfd.readouterr().err
    assert "Timeout (" in told and "in test_code_that_lets_no_python_thread_run" in told


def test_in_a_run(tiny, capfd, monkeypatch):
    """Scoring counts as progress, and a step that hangs does not."""
    loss = SequenceClassification.loss
    calls: list[bool] = []

    def slow(self, network, outputs, batch):
        calls.append(network.training)
        if calls.count(True) == 4 and network.training:
            wait_for_something_that_never_comes(1.5)
        return loss(self, network, outputs, batch)

    monkeypatch.setattr(SequenceClassification, "loss", slow)
    run = tiny("slow-step", f"runtime.watchdog_minutes={0.6 / 60}", "training.max_steps=6")
    told = capfd.readouterr().err
    assert told.count("no progress for 0.01 minutes, after step 3") == 1
    assert "in wait_for_something_that_never_comes" in told and "in training_step" in told
    assert [each["step"] for each in EventLog(run.events_file).read() if each["event"] == "stalled"].count(3) == 1
    assert run.read_manifest().state == "finished"
