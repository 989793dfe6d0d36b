"""What the parent of several serving processes tells them, and when it gives them up."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.errors import RunFailed
from nlpctl.serve import workers as serve_workers
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.workers import ServeWorkerConfig, _Workers


@pytest.fixture
def workers(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n")
    with socket.socket() as listening:
        order = ServeWorkerConfig(load_recipe(file, (), "apply"), "export", ServeSettings(workers=2), None)
        yield _Workers(order, listening, [])


def test_all_take_the_engine_of_the_first(workers):
    first = workers._order_of(0)
    assert first.rows and first.recipe.inference.engine != "onnxruntime"
    workers._engine = ("onnxruntime", "int8")
    for number in (0, 1):  # a replacement of the first, too
        order = workers._order_of(number)
        assert (order.recipe.inference.engine, order.recipe.inference.precision) == ("onnxruntime", "int8")
        assert order.rows is None


class Lost:
    """A worker that loads for `seconds`, is ready, and is lost at once."""

    seconds = 0.0
    started = 0

    def __init__(self, *arguments: Any, **options: Any):
        Lost.started += 1

    def start(self) -> None:
        pass

    def send_signal(self, number: int) -> None:
        pass

    def end(self) -> None:
        pass

    def ask(self, asked: str, where: str, *more: Any, **options: Any) -> Any:
        if asked == "engine":
            time.sleep(self.seconds)
            return "onnxruntime", "fp32"
        raise RunFailed("its process ended", where)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_worker_that_is_lost_again_and_again_ends_the_service(workers, monkeypatch, capsys, seconds):
    """However long it loads: only the time in which it answered counts."""
    monkeypatch.setattr(serve_workers, "Worker", Lost)
    monkeypatch.setattr(serve_workers, "_STABLE", 0.2)
    monkeypatch.setattr(Lost, "seconds", seconds)
    monkeypatch.setattr(Lost, "started", 0)
    workers._open.set()
    attending = threading.Thread(target=workers._attend, args=(0,))
    attending.start()
    attending.join(20)
    assert workers._failure is not None and Lost.started == serve_workers.MOST_LOSSES
    assert capsys.readouterr().err.count("another one takes its place: worker 0: its process ended") == 2


@pytest.mark.parametrize(("drain", "seconds"), [(1.0, 25.0), (32.0, 48.0)])
def test_how_long_a_worker_may_take_to_stop(drain, seconds):
    assert ServeSettings(drain=drain).longest_stop == seconds
