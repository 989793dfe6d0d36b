"""What open_predictor takes, and what it says about it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nlpctl.config.schema import InferenceSection
from nlpctl.engines import auto as choose
from nlpctl.engines.auto import open_predictor
from nlpctl.engines.choice import Machine
from nlpctl.engines.speeds import KnownSpeeds, conditions
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import Check, ExportManifest, Graph
from nlpctl.runtime.machine import CpuInfo
from nlpctl.runtime.process import ProcessSetup

SETUP = ProcessSetup("cpu", threads=2, rank=0, world_size=1)
CPU = CpuInfo("", "", ("avx512_vnni", "avx512_bf16"))
PADDLE = Graph("paddle", "fp32", ("a", "b"), checks=(Check("paddle", "bf16", 0.1, 1.0),))
DYNAMIC = Graph("onnx", "int8", ("c",), "dynamic", (Check("onnxruntime", "int8", 0.5, 0.95),))
STATIC = Graph("onnx", "int8", ("d",), "static")
MANIFEST = ExportManifest("sequence_classification", (), (), 64, (PADDLE, DYNAMIC, STATIC), 256, "", {})


HERE = conditions(SETUP)


def speeds_of(figures, failed=()):
    return EngineSpeeds(HERE, {name: {8: speed} for name, speed in figures.items()}, dict(failed))


@pytest.fixture
def taken(monkeypatch):
    """`taken(known, rows=None, **inference)`: what is opened: the name of a choice in place of its engine.

    `known`: the speeds, None where nothing was timed; then `later` is what timing would find.
    """

    def run(known, rows=None, later=None, seconds=0.0, manifest=MANIFEST, **inference):
        machine = Machine(CPU, "cpu", onnxruntime=True, onnxruntime_gpu=False, gpu_bf16=False, tensorrt=False)
        monkeypatch.setattr(choose, "this_machine", lambda setup: machine)
        monkeypatch.setattr(choose, "open_choice", lambda folder, manifest, choice, *rest, **options: choice.name)
        found = None if known is None else KnownSpeeds(known, "2 threads, timed earlier")
        monkeypatch.setattr(choose, "known_speeds", lambda *words: found)
        monkeypatch.setattr(choose, "measured_speeds", lambda *words, gently: KnownSpeeds(later, "timed now"))
        monkeypatch.setattr(choose, "_seconds_per_row", lambda *words: seconds() if callable(seconds) else seconds)
        return open_predictor(Path("export"), manifest, InferenceSection(**inference), SETUP, 8, None, rows)

    return run


def test_the_fastest_is_taken(taken, capsys):
    opened = taken(speeds_of({"paddle fp32": 10.0, "paddle bf16": 1234.0}))
    assert (opened.predictor, opened.find_faster) == ("paddle bf16", None)
    assert taken(speeds_of({"paddle fp32": 1300.0, "paddle bf16": 1234.0})).predictor == "paddle fp32"
    said = capsys.readouterr().err.splitlines()
    size = "rows per second, batch size 8, 2 threads, timed earlier"
    assert said[0] == f"auto takes paddle bf16; {size}: paddle bf16 1,234, paddle fp32 10"
    assert said[1] == "  not onnxruntime int8 (dynamic): it decided 95.00% of the rows like the network"
    assert said[2].startswith("  not onnxruntime int8 (static): it was not compared")
    assert said[3] == f"auto takes paddle fp32; {size}: paddle fp32 1,300, paddle bf16 1,234"


def test_one_that_failed_is_not_taken(taken, capsys):
    assert taken(speeds_of({"paddle bf16": 1.0}, {"paddle fp32": "exit 1"})).predictor == "paddle bf16"
    assert "not paddle fp32: it failed (exit 1)" in capsys.readouterr().err


def test_where_nothing_was_timed_the_usual_one_answers_at_once(taken, capsys):
    opened = taken(None, later=speeds_of({"paddle fp32": 2.0, "paddle bf16": 1.0}))
    assert opened.predictor == "paddle bf16"
    assert "not timed here yet; another network made: paddle bf16" in capsys.readouterr().err
    assert opened.find_faster().predictor == "paddle fp32"
    assert "auto takes paddle fp32" in capsys.readouterr().err
    assert taken(None, later=speeds_of({"paddle bf16": 1.0, "paddle fp32": 0.5})).find_faster() is None
    assert taken(None, later=speeds_of({}, {"paddle bf16": "exit 1"})).find_faster() is None


def test_engines_that_were_timed_on_a_busy_machine_are_timed_anew(taken, capsys):
    """Beside the answers. Until then, and where the machine is busier still, their figures count."""
    busy = dataclasses.replace(speeds_of({"paddle fp32": 2.0, "paddle bf16": 3.0}), others=0.5)
    opened = taken(busy, later=speeds_of({"paddle fp32": 2.0, "paddle bf16": 1.0}))
    assert opened.predictor == "paddle bf16"
    how = "timed earlier, while other programs took 50% of the processors: paddle bf16 3"
    assert how in capsys.readouterr().err
    assert opened.find_faster().predictor == "paddle fp32"
    assert "timed now: paddle fp32 2" in capsys.readouterr().err
    busier = dataclasses.replace(speeds_of({"paddle fp32": 2.0, "paddle bf16": 1.0}), others=0.9)
    assert taken(busy, later=busier).find_faster() is None
    assert how in capsys.readouterr().err
    quiet = dataclasses.replace(busy, others=0.1)
    assert taken(quiet).find_faster is None


def test_long_work_pays_for_timing_first(taken, capsys):
    later = speeds_of({"paddle fp32": 2.0, "paddle bf16": 1.0})
    enough = round(choose.WORTH_TIMING * choose.LIMIT / 0.01)
    long = taken(None, enough, later, seconds=0.01)
    assert (long.predictor, long.find_faster) == ("paddle fp32", None)
    assert taken(None, lambda most: min(most, enough), later, seconds=0.01).predictor == "paddle fp32"
    assert "timing 2 ways to run this export" in capsys.readouterr().err
    short = taken(None, enough - 1, later, seconds=0.01)
    assert short.predictor == "paddle bf16" and short.find_faster is not None
    taken(None, 8, later, seconds=pytest.fail)  # of a single batch not even the time is taken


def test_fewer_rows_than_a_batch_choose_the_engine(taken, capsys):
    figures = {"paddle fp32": {1: 9.0, 8: 10.0}, "paddle bf16": {1: 3.0, 8: 12.0}}
    known = EngineSpeeds(HERE, figures)
    assert taken(known).predictor == taken(known, 800).predictor == "paddle bf16"
    assert taken(known, 1).predictor == taken(known, lambda most: min(most, 1)).predictor == "paddle fp32"
    assert "batch size 1, 2 threads, timed earlier" in capsys.readouterr().err.splitlines()[-3]


def test_what_is_named_is_not_timed_but_doubted_aloud(taken, capsys):
    only = dataclasses.replace(MANIFEST, graphs=(PADDLE, DYNAMIC))
    assert taken(None, manifest=only, precision="int8").predictor == "onnxruntime int8 (dynamic)"
    expected = "warning: onnxruntime int8 (dynamic) decided 95.00% of the rows like the network\n"
    assert capsys.readouterr().err == expected
    less = taken(None, manifest=only, precision="int8", min_agreement=0.9)
    assert less.predictor == "onnxruntime int8 (dynamic)"
    assert taken(None, manifest=only, engine="paddle", precision="bf16").predictor == "paddle bf16"
    assert capsys.readouterr().err == ""


def test_graphs_of_one_precision_are_timed(taken, capsys):
    speeds = speeds_of({"onnxruntime int8 (dynamic)": 1.0, "onnxruntime int8 (static)": 2.0})
    assert taken(speeds, precision="int8").predictor == "onnxruntime int8 (static)"
    said = capsys.readouterr().err
    assert "auto takes onnxruntime int8 (static)" in said
    assert "warning: onnxruntime int8 (static) was not compared with the network when it was exported" in said
