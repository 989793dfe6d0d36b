"""Engines are timed once, in a process of their own that may die; what was measured is kept."""

from __future__ import annotations

import json

import pytest

from nlpctl.inference import speeds
from nlpctl.inference.choice import Choice
from nlpctl.inference.speeds import Order, Speeds, measure, measured_speeds
from nlpctl.models.export_folder import Graph
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.worker import Answer

ORDER = Order("export", ("one", "two", "three"), 8, "cpu", 2)
CHOICES = (
    Choice("paddle", "fp32", Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams"))),
    Choice("onnxruntime", "fp32", Graph("onnx", "fp32", ("model.onnx",))),
)


@pytest.fixture
def process(monkeypatch):
    """`process([(events, code), ...])`: what the measuring process does each time; returns the orders it got."""

    def play(script):
        orders, script = [], list(script)

        def run(*arguments):
            orders.append(json.loads(arguments[2]))
            events, code = script.pop(0)
            return Answer("\n".join(map(json.dumps, events)), "", code)

        monkeypatch.setattr(speeds, "run_python", run)
        return orders

    return play


def trying(*names):
    return [{"trying": name} for name in names]


def test_speeds_are_those_of_the_process(process):
    orders = process([([*trying("one", "two"), {"rows_per_second": {"one": 5.0, "two": 7.0}}], 0)])
    assert measure(ORDER) == Speeds({"one": 5.0, "two": 7.0})
    assert orders[0]["names"] == ["one", "two", "three"]
    assert (orders[0]["batch_size"], orders[0]["threads"], orders[0]["device"]) == (8, 2, "cpu")


def test_an_engine_that_kills_the_process_is_left_out(process):
    again = [*trying("one", "three"), {"failed": {"three": "no"}}, {"rows_per_second": {"one": 5.0}}]
    orders = process([(trying("one", "two"), -6), (again, 0)])
    found = measure(ORDER)
    assert found.rows_per_second == {"one": 5.0}
    assert found.failed == {"two": "killed by SIGABRT", "three": "no"}
    assert orders[1]["names"] == ["one", "three"]


def test_nothing_can_be_timed(process):
    process([([], 1)])
    assert measure(ORDER) == Speeds({}, {})
    process([(trying("one"), -11), (trying("two"), -11), (trying("three"), -9), ([{"rows_per_second": {}}], 0)])
    assert set(measure(ORDER).failed) == {"one", "two", "three"}


@pytest.fixture
def export(tmp_path, monkeypatch):
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "export"
    folder.mkdir()
    sums = {"model.pdmodel": "1", "model.pdiparams": "2", "model.onnx": "3"}
    (folder / "export.json").write_text(json.dumps({"sha256": sums}))
    return folder


def ask(export, threads=2, batch_size=8):
    return measured_speeds(export, CHOICES, ProcessSetup("cpu", threads, 0, 1), batch_size)


@pytest.fixture
def measured(monkeypatch):
    """The orders that were measured; each gives the same speeds."""
    orders = []

    def give(order):
        orders.append(order)
        return Speeds({"paddle fp32": 5.0, "onnxruntime fp32": 7.0})

    monkeypatch.setattr(speeds, "measure", give)
    return orders


def test_what_was_measured_is_kept(export, measured):
    first, second = ask(export), ask(export)
    assert (first.kept, second.kept) == (False, True)
    assert first.rows_per_second == second.rows_per_second == {"paddle fp32": 5.0, "onnxruntime fp32": 7.0}
    assert len(measured) == 1


def test_it_is_measured_again_for_other_threads_batches_and_graphs(export, measured):
    ask(export)
    ask(export, threads=1)
    ask(export, batch_size=9)
    sums = {"model.pdmodel": "1", "model.pdiparams": "2", "model.onnx": "another"}
    (export / "export.json").write_text(json.dumps({"sha256": sums}))
    assert not ask(export).kept
    assert len(measured) == 4


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows_per_second": [], "failed": {}}', '{"rows_per_second": {}}'])
def test_a_damaged_note_is_measured_again(export, measured, tmp_path, content):
    ask(export)
    (file,) = (tmp_path / "cache").rglob("*.json")
    file.write_text(content)
    assert not ask(export).kept
    assert ask(export).kept


def test_a_cache_that_cannot_be_written_costs_time_only(export, measured, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert not ask(export).kept and not ask(export).kept


def test_nothing_measured_is_not_kept(export, monkeypatch):
    monkeypatch.setattr(speeds, "measure", lambda order: Speeds({}, {"paddle fp32": "no"}))
    assert not ask(export).kept and not ask(export).kept
