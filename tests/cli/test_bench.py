"""What `nlpctl bench` says when it is done."""

from __future__ import annotations

import json
from dataclasses import replace

from chinese import assert_chinese, sentences

from nlpctl.cli.app import main
from nlpctl.modeltools import bench
from nlpctl.modeltools.bench import BenchResult, Speed, Timed, bench_page, figures
from nlpctl.report.language import in_language, later


def test_figures_are_told_where_the_page_cannot_be_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\ntraining: {output_dir: run}\n")
    timed = Timed("run", "dygraph fp32", 1, 0.5, 200.0, 1.0, (Speed(1, figures([[0.5, 0.5]], 2), None),))

    def measure(recipes, plan):
        (tmp_path / "file").write_text("")  # in the place of the page's folder
        return BenchResult((timed,), (), {})

    monkeypatch.setattr(bench, "bench", measure)
    words = ["bench", str(tmp_path / "recipe.yaml"), "--json", "--html", str(tmp_path / "file" / "speed.html")]
    assert main(words) == 2
    told = capsys.readouterr()
    printed = json.loads(told.out)
    assert not printed["ok"] and "cannot write here" in printed["error"]["message"]
    assert printed["result"]["timed"][0]["speeds"][0]["engine"]["samples_per_second"] == 2
    assert "cannot write here" in told.err


def test_in_chinese_no_english_sentence_is_left():
    doubt = later("was not compared with the network when it was exported")
    timed = []
    for engine, seconds in (("dygraph fp32", 2.0), ("paddle int8 (ptq)", 0.5), ("paddle bf16", 1.0)):
        speeds = tuple(Speed(size, figures([[seconds], [2 * seconds]], 2), 1.5) for size in (1, 32))
        timed.append(Timed("run", engine, 2, 0.5, 200.0, 1.0, speeds, doubt if "int8" in engine else None))
    of_two_models = [*timed, replace(timed[0], model="export")]
    for candidates in (timed, timed[:1], timed[2:], of_two_models):
        result = BenchResult(tuple(candidates), (("export", "坏"),), {"date": "2026-11-27"})
        with in_language("zh"):
            assert_chinese(bench_page(result))
        assert len(sentences(bench_page(result))) > 5


def test_the_time_left_is_that_of_the_rounds_to_come():
    assert bench._round_line(0, 5, 100.0) == "warmed up, about 1:40 left"
    assert bench._round_line(4, 5, 19.2) == "round 4 of 5, about 0:20 left"
    assert bench._round_line(5, 5, 0.0) == "round 5 of 5"


def test_more_threads_than_any_machine_has(tmp_path, capsys):
    assert main(["bench", str(tmp_path), "--threads", "2,99999"]) == 2
    assert "--threads: 99999 must lie between 1 and 1,024" in capsys.readouterr().err
