"""What the parent of several serving processes tells them, and when it gives them up."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.errors import RunFailed
from nlpctl.runtime.worker import ProcessEnded
from nlpctl.serve import workers as serve_workers
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.workers import ServeWorkerConfig, ServeWorkers, _Ready, _Report

DEAF = 20.0


@pytest.fixture
def workers(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n")
    with socket.socket() as listening:
        config = ServeWorkerConfig(load_recipe(file, (), "apply"), "export", ServeSettings(workers=2), None)
        yield ServeWorkers(config, listening, [])


class Process:
    """A worker that loads, is ready, and is lost after so many seconds; None: it ends when it is told to stop, DEAF:
    only when it is killed."""

    name, alive = "worker process 1", True
    plan: ClassVar[list[float | None]] = []  # of those that are started, one after the other
    started: ClassVar[list[ServeWorkerConfig]] = []
    last_is_ready: ClassVar[Callable[[], None]] = staticmethod(lambda: None)  # the last one of the plan was heard

    def __init__(self, opened: Any, config: ServeWorkerConfig, *arguments: Any, **options: Any):
        self._config, self._over = config, threading.Event()
        assert options["grace"] < serve_workers._GRACE  # else one that has stopped in time is told to be late

    def start(self) -> None:
        Process.started.append(self._config)
        self._is_last = len(Process.plan) == 1
        self._seconds = Process.plan.pop(0) if Process.plan else 0.0

    def send_signal(self, number: int) -> None:
        self._killed = number == signal.SIGKILL
        if self._killed or self._seconds != DEAF:
            self._over.set()

    def end(self, interrupt: bool = False) -> None:
        pass

    def ask(self, request: Any, where: str, hint: str, seconds: Any, callback: Any) -> _Report:
        callback(_Ready("onnxruntime", "int8"))
        callback(_Report(3, []))
        if self._is_last:
            Process.last_is_ready()
        if self._over.wait(self._seconds) and not self._killed:
            return _Report(5, [])
        raise ProcessEnded("its process ended", where, hint)


@pytest.fixture
def plan(monkeypatch) -> list[float | None]:
    monkeypatch.setattr(serve_workers, "Worker", Process)
    monkeypatch.setattr(serve_workers, "_POLL", 0.01)
    monkeypatch.setattr(Process, "plan", [])
    monkeypatch.setattr(Process, "started", [])
    return Process.plan


def test_all_take_the_engine_of_the_first_and_a_signal_stops_them(workers, plan, monkeypatch, capsys):
    """Also one that takes the place of another; the rows of a lost one count as far as it told of them."""
    plan += [None, 0.2, None]
    monkeypatch.setattr(Process, "last_is_ready", lambda: workers._signals.append(signal.SIGTERM))
    with workers:
        workers.start_all()
        assert workers.until_stopped() == 5 + 5 + 3
    first, *others = Process.started
    assert first.rows and first.recipe.inference.engine != "onnxruntime" and len(others) == 2
    for config in others:
        assert (config.recipe.inference.engine, config.recipe.inference.precision) == ("onnxruntime", "int8")
        assert config.rows is None
    told = capsys.readouterr().err
    assert told.count("a worker was lost, and another one takes its place: worker") == 1


def test_a_worker_that_is_lost_again_and_again_ends_the_service(workers, plan, monkeypatch, capsys):
    """Where no other one answers."""
    monkeypatch.setattr(serve_workers, "_PAUSE", 0.1)
    with pytest.raises(RunFailed, match=r"worker .: its process ended\n  -> out of memory\? use fewer"), workers:
        workers.start_all()
        workers.until_stopped()
    assert len(Process.started) > serve_workers.MOST_LOSSES  # one as often as may be, the other at least once
    assert "another one takes its place: worker" in capsys.readouterr().err


def test_the_time_in_which_a_worker_answered_counts_as_peace(workers, plan, monkeypatch):
    """Beside it the losses do not add up, so nothing is waited for."""
    monkeypatch.setattr(serve_workers, "_STABLE", 0.05)
    monkeypatch.setattr(serve_workers, "_PAUSE", 60.0)
    plan += [None, *[0.2] * 6, None]
    monkeypatch.setattr(Process, "last_is_ready", lambda: workers._signals.append(signal.SIGINT))
    with workers:
        workers.start_all()
        workers.until_stopped()
    assert len(Process.started) == 8


def test_a_second_signal_ends_all_at_once(workers, plan):
    plan += [DEAF, DEAF]
    with pytest.raises(KeyboardInterrupt), workers:
        workers.start_all()
        workers._signals += [signal.SIGINT, signal.SIGINT]
        workers.until_stopped()


def test_a_worker_that_does_not_stop_is_killed(workers, plan):
    plan += [None, DEAF]
    workers._stop_limit = 0.1
    with pytest.raises(RunFailed, match=r"worker .: it had not stopped after 0.1 s and was killed"), workers:
        workers.start_all()
        workers._signals.append(signal.SIGTERM)
        workers.until_stopped()


@pytest.mark.parametrize(("drain", "seconds"), [(1.0, 25.0), (32.0, 48.0)])
def test_how_long_a_worker_may_take_to_stop(drain, seconds):
    assert ServeSettings(drain=drain).longest_stop == seconds
