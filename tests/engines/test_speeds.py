"""Speeds come from the export, from the cache, or from a process that may die; what was measured is kept."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nlpctl.engines import speeds
from nlpctl.engines.choice import Choice
from nlpctl.engines.speeds import (
    BenchmarkRequest,
    conditions,
    known_speeds,
    measure,
    measured_speeds,
    usual_speeds,
)
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.worker import Answer

ORDER = BenchmarkRequest("export", ("one", "two", "three"), "cpu", 2)
SETUP = ProcessSetup("cpu", 2, 0, 1)
HERE = conditions(SETUP)
CHOICES = (
    Choice("paddle", "fp32", Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams"))),
    Choice("onnxruntime", "fp32", Graph("onnx", "fp32", ("model.onnx",))),
)


@pytest.fixture
def process(monkeypatch):
    """`process([(events, code), ...])`: what the measuring process does each time; returns the orders it got."""

    def play(script):
        orders, script = [], list(script)

        def run(*arguments, seconds):
            assert seconds > speeds.LIMIT
            orders.append(json.loads(arguments[2]))
            events, code = script.pop(0)
            return Answer("\n".join(map(json.dumps, events)), "" if code is not None else "no answer", code)

        monkeypatch.setattr(speeds, "run_python", run)
        return orders

    return play


def trying(*names):
    return [{"trying": name} for name in names]


def test_speeds_are_those_of_the_process(process):
    told = {"rows_per_second": {"one": {"1": 5.0}, "two": {"8": 7.0}}, "others": 0.3}
    orders = process([([*trying("one", "two"), told], 0)])
    assert measure(ORDER, HERE) == EngineSpeeds(HERE, {"one": {1: 5.0}, "two": {8: 7.0}}, others=0.3)
    assert orders[0]["names"] == ["one", "two", "three"]
    assert (orders[0]["seconds"], orders[0]["threads"], orders[0]["device"]) == (speeds.LIMIT, 2, "cpu")


def test_an_engine_that_kills_the_process_is_left_out(process):
    again = [*trying("one", "three"), {"failed": {"three": "no"}}, {"rows_per_second": {"one": {"1": 5.0}}}]
    orders = process([(trying("one", "two"), -6), (again, 0)])
    found = measure(ORDER, HERE)
    assert found.rows_per_second == {"one": {1: 5.0}}
    assert found.failed == {"two": "killed by SIGABRT", "three": "no"}
    assert orders[1]["names"] == ["one", "three"]


def test_nothing_can_be_timed(process):
    process([([], 1)])
    assert measure(ORDER, HERE) == EngineSpeeds(HERE, {})
    process([(trying("one"), -11), (trying("two"), -11), (trying("three"), -9), ([{"rows_per_second": {}}], 0)])
    assert set(measure(ORDER, HERE).failed) == {"one", "two", "three"}


@pytest.fixture
def export(tmp_path, monkeypatch):
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "export"
    folder.mkdir()
    sums = {"model.pdmodel": "1", "model.pdiparams": "2", "model.onnx": "3"}
    dataclasses.replace(MANIFEST, sha256=sums).save(folder / "export.json")
    return folder


MANIFEST = ExportManifest("sequence_classification", (), (), 64, tuple(each.graph for each in CHOICES), 1, "", {})
SPEEDS = EngineSpeeds(HERE, {"paddle fp32": {8: 5.0}, "onnxruntime fp32": {8: 7.0}})


def known(export, threads=2, manifest=MANIFEST):
    return known_speeds(export, manifest, CHOICES, ProcessSetup("cpu", threads, 0, 1))


@pytest.fixture
def measured(monkeypatch):
    """The orders that were measured; each gives the same speeds."""
    orders = []
    monkeypatch.setattr(speeds, "measure", lambda order, here: orders.append(order) or SPEEDS)
    return orders


def test_an_engine_that_hangs_is_left_out(process):
    again = [*trying("one", "three"), {"rows_per_second": {"one": {"1": 5.0}, "three": {"1": 6.0}}}]
    orders = process([(trying("one", "two"), None), (again, 0)])
    found = measure(ORDER, HERE)
    assert (set(found.rows_per_second), found.failed) == ({"one", "three"}, {"two": "no answer"})
    assert orders[1]["names"] == ["one", "three"]


def test_no_engine_is_blamed_where_the_time_was_too_short(process):
    process([([*trying("one", "two"), {"failed": {}}, {"rows_per_second": {}}], 0)])
    assert measure(ORDER, HERE) == EngineSpeeds(HERE, {})


def test_a_process_that_hangs_before_the_first_engine_ends_the_timing(process):
    process([([], None)])
    assert measure(ORDER, HERE) == EngineSpeeds(HERE, {})


def test_what_was_measured_is_kept(export, measured):
    assert known(export) is None
    assert measured_speeds(export, CHOICES, SETUP).origin == "2 threads, timed now"
    assert (known(export).speeds, known(export).origin) == (SPEEDS, "2 threads, timed earlier")
    assert len(measured) == 1 and measured[0].names == ("paddle fp32", "onnxruntime fp32")


def test_nothing_is_known_for_other_threads_and_graphs(export, measured):
    measured_speeds(export, CHOICES, SETUP)
    assert known(export, threads=1) is None
    sums = {"model.pdmodel": "1", "model.pdiparams": "2", "model.onnx": "another"}
    dataclasses.replace(MANIFEST, sha256=sums).save(export / "export.json")
    assert known(export) is None


def test_speeds_of_the_export_hold_on_a_machine_like_the_one_that_made_it(export, measured):
    own = dataclasses.replace(MANIFEST, speeds=SPEEDS)
    assert (known(export, manifest=own).origin, measured) == ("2 threads, timed at export", [])
    assert known(export, threads=1, manifest=own) is None
    other = dataclasses.replace(SPEEDS, conditions=dataclasses.replace(HERE, processor="Intel Xeon"))
    elsewhere = dataclasses.replace(MANIFEST, speeds=other)
    assert known(export, manifest=elsewhere) is None
    expected = usual_speeds(elsewhere, CHOICES, SETUP)
    assert expected.speeds == other and expected.origin == "not timed here yet, but on Intel Xeon, 2 threads"
    other = dataclasses.replace(SPEEDS, conditions=dataclasses.replace(HERE, threads=1))
    expected = usual_speeds(dataclasses.replace(MANIFEST, speeds=other), CHOICES, SETUP)
    assert expected.speeds == other and expected.origin == "not timed here yet, but at export with 1 thread, not 2"
    assert str(dataclasses.replace(HERE, processor="AuthenticAMD AMD EPYC")) == "AMD EPYC, 2 threads"


def test_an_engine_that_was_not_reached_at_export_is_timed_later(export, measured):
    """Until then the figures that exist decide; an engine that failed is not tried again."""
    some = dataclasses.replace(MANIFEST, speeds=EngineSpeeds(HERE, {"paddle fp32": {8: 5.0}}))
    assert known(export, manifest=some) is None
    expected = usual_speeds(some, CHOICES, SETUP)
    assert expected.speeds == some.speeds and expected.origin.startswith("2 threads, timed at export, where")
    measured_speeds(export, CHOICES, SETUP)
    assert known(export, manifest=some).speeds == SPEEDS
    failed = dataclasses.replace(some.speeds, failed={"onnxruntime fp32": "no"})
    assert known(export, manifest=dataclasses.replace(MANIFEST, speeds=failed)).origin == "2 threads, timed at export"


BUSY = dataclasses.replace(SPEEDS, rows_per_second={"paddle fp32": {8: 9.0}, "onnxruntime fp32": {8: 7.0}}, others=0.5)
HOW = ", while other programs took 50% of the processors"


def test_figures_of_a_busy_machine_say_so_and_give_way_to_others(export, measured):
    own = dataclasses.replace(MANIFEST, speeds=BUSY)
    found = known(export, manifest=own)
    assert found.speeds.busy and found.origin_and_load == f"2 threads, timed at export{HOW}"
    elsewhere = dataclasses.replace(BUSY, conditions=dataclasses.replace(HERE, processor="Intel Xeon"))
    there = usual_speeds(dataclasses.replace(MANIFEST, speeds=elsewhere), CHOICES, SETUP)
    assert there.origin_and_load == f"not timed here yet, but on Intel Xeon, 2 threads{HOW}"
    measured_speeds(export, CHOICES, SETUP)  # on a quiet one
    assert known(export, manifest=own).speeds == SPEEDS
    quiet = dataclasses.replace(MANIFEST, speeds=dataclasses.replace(SPEEDS, others=0.1))
    assert known(export, manifest=quiet).origin_and_load == "2 threads, timed at export"


def test_figures_of_a_busier_machine_do_not_replace_earlier_ones(export, monkeypatch):
    for others, kept in ((0.5, 0.5), (0.9, 0.5), (0.3, 0.3), (0.05, 0.05), (0.1, 0.1), (0.4, 0.1)):
        now = dataclasses.replace(SPEEDS, others=others)
        monkeypatch.setattr(speeds, "measure", lambda order, here, now=now: now)
        assert measured_speeds(export, CHOICES, SETUP).speeds == now
        assert known(export).speeds.others == kept


def test_an_export_of_an_older_version_does_not_tell_how_busy_the_machine_was():
    content = {name: value for name, value in SPEEDS.to_json().items() if name != "others"}
    assert EngineSpeeds.from_json(json.loads(json.dumps(content))) == SPEEDS


def test_a_timing_that_was_too_short_for_all_is_kept(export, monkeypatch):
    some = EngineSpeeds(HERE, {"paddle fp32": {8: 5.0}})
    monkeypatch.setattr(speeds, "measure", lambda order, here: some)
    measured_speeds(export, CHOICES, SETUP)
    assert known(export).speeds == some


def test_where_nothing_was_timed_another_network_stands_in(export):
    guessed = usual_speeds(MANIFEST, CHOICES, SETUP)
    assert "another network" in guessed.origin
    assert guessed.speeds.speed("onnxruntime fp32", 1) > guessed.speeds.speed("paddle fp32", 1)
    assert guessed.speeds.speed("onnxruntime fp32", 64) < guessed.speeds.speed("paddle fp32", 64)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows_per_second": [], "failed": {}}', '{"rows_per_second": {}}'])
def test_a_damaged_note_is_not_read(export, measured, tmp_path, content):
    measured_speeds(export, CHOICES, SETUP)
    (file,) = (tmp_path / "cache").rglob("*.json")
    file.write_text(content)
    assert known(export) is None


def test_a_cache_that_cannot_be_written_costs_time_only(export, measured, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert measured_speeds(export, CHOICES, SETUP).speeds == SPEEDS
    assert known(export) is None


def test_nothing_measured_is_not_kept(export, monkeypatch):
    failed = EngineSpeeds(HERE, {}, {"paddle fp32": "no"})
    monkeypatch.setattr(speeds, "measure", lambda order, here: failed)
    assert measured_speeds(export, CHOICES, SETUP).speeds == failed
    assert known(export) is None
