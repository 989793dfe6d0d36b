"""What `nlpctl bench` says when it is done."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from chinese import assert_chinese, sentences

from nlpctl import console
from nlpctl.cli.app import main
from nlpctl.modeltools import bench
from nlpctl.modeltools.bench import BenchResult, Speed, Timed, bench_page, figures
from nlpctl.report.language import in_language, later


def test_figures_are_told_where_the_page_cannot_be_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\ntraining: {output_dir: run}\n")
    timed = Timed("run", "dygraph fp32", 1, 0.5, 200.0, 1.0, (Speed(1, figures([[0.5, 0.5]], 1), None),))

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
            assert re.search(r">[0-9.]+ 样本/秒<", bench_page(result))  # beside each bar
        assert len(sentences(bench_page(result))) > 5


class Candidate:
    """One that takes so many seconds, and ten times as many in the warm-up; it notes the time left before each."""

    def __init__(self, seconds, clock, told):
        self.seconds, self.clock, self.told = seconds, clock, told

    def attempt(self, action):
        action()

    def time(self, size, texts, counted):
        self.told.append((console._going_on[-1].left(), self.clock[0]))
        self.clock[0] += self.seconds * size * (1 if counted else 10)


def test_the_time_left_is_that_of_the_turns_to_come(monkeypatch):
    clock, told = [0.0], []
    running = [Candidate(seconds, clock, told) for seconds in (1.0, 7.0)]
    monkeypatch.setattr(console.Progress, "now", lambda self: clock[0])
    bench._take_turns(running, bench.Plan(bench.TimedRows(None, 8, None), (1, 4), rounds=3))
    assert [left for left, _ in told[:8]] == [None] * 8  # the warm-up takes longer, by nobody knows how much
    for left, at in told[8:]:  # the second round is like the first
        assert left == pytest.approx(clock[0] - at)


def test_more_threads_than_any_machine_has(tmp_path, capsys):
    assert main(["bench", str(tmp_path), "--threads", "2,99999"]) == 2
    assert "--threads: 99999 must lie between 1 and 1,024" in capsys.readouterr().err
