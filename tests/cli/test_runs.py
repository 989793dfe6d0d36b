"""`nlpctl runs ...`, on run directories as training leaves them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from nlpctl.runs.runs import differences, open_run, paired
from nlpctl.runtime.event_log import EventLog
from nlpctl.tasks.tallies import class_columns, make_tallies, save_tallies
from nlpctl.ui.pages import compare_page

ROOT = Path(__file__).resolve().parents[2]


def cells(out: str) -> list[list[str]]:
    """The rows of a plain table, cut at double blanks."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in out.splitlines()[2:]]


def test_ls(nlpctl, made, tmp_path):
    made("first", dev=0.75)
    made("deep/second", dev=0.875)
    third = made("third")
    (tmp_path / "outputs" / "first" / "model").mkdir()
    ended = nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "dev")
    assert ended.code == 0 and ended.err == ""
    rows = cells(ended.out)
    assert [row[0] for row in rows] == ["deep/second", "first", "third"]
    assert rows[0][1:5] == ["finished", "sequence_classification", "ernie (new)", "8"]
    assert rows[0][-3:] == ["accuracy", "0.8750", "0.7500"]
    assert rows[2][1] == "running" and rows[2][-1] == "accuracy"  # it has no scores

    manifest = third.read_manifest().content
    third.manifest_file.write_text(json.dumps({**manifest, "pid": 2**30}))
    listed = json.loads(nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "name", "--json").out)["result"]
    assert [(each["run"].rpartition("/")[2], each["state"]) for each in listed] == [
        ("second", "finished"), ("first", "finished"), ("third", "killed")
    ]  # fmt: skip
    third.manifest_file.write_text(json.dumps({**manifest, "pid": 2**30, "host": "elsewhere"}))
    listed = json.loads(nlpctl("runs", "ls", tmp_path / "outputs", "--json").out)["result"]
    assert {each["state"] for each in listed} == {"finished", "running"}  # nobody here can know


@pytest.mark.parametrize("resumed", [{"at": "noon", "was": "killed"}, {"was": "killed"}, {"at": "2026-11-27T15:04Z"}])
def test_a_resumption_that_is_none_is_damage(nlpctl, made, resumed):
    run = made("one", dev=0.75)
    manifest = json.loads(run.manifest_file.read_text())
    run.manifest_file.write_text(json.dumps({**manifest, "resumed": [resumed]}))
    ended = nlpctl("runs", "show", run.path)
    assert ended.code == 0 and "damaged: manifest.json" in ended.out and "missing or wrong: resumed" in ended.err


def test_runs_that_are_links_are_listed(nlpctl, made, tmp_path):
    """As one that was moved to another disk; a link that leads round is not followed."""
    made("here", dev=0.75)
    made("moved", dev=0.875)
    (tmp_path / "outputs" / "moved").rename(tmp_path / "elsewhere")
    (tmp_path / "outputs" / "moved").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "outputs" / "round").symlink_to(tmp_path / "outputs")
    (tmp_path / "outputs" / "latest").symlink_to(tmp_path / "outputs" / "here")  # which is listed anyway
    ended = nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "dev")
    assert [row[0] for row in cells(ended.out)] == ["moved", "here"]


def test_less_of_some_scores_is_better(nlpctl, made, tmp_path):
    for name, perplexity in (("worse", 40.0), ("better", 8.0)):
        run = made(name, "task=masked_language_model")
        run.metrics_file.write_text(json.dumps({"dev": {"perplexity": perplexity}}))
    rows = cells(nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "dev").out)
    assert [(row[0], row[-2], row[-1]) for row in rows] == [
        ("better", "perplexity", "8.0000"), ("worse", "perplexity", "40.0000")
    ]  # fmt: skip


def test_less_is_better_where_the_recipe_says_so(nlpctl, made, tmp_path):
    """Of a score of one's own, whose name does not tell."""
    own = ["evaluation_strategy=epoch", "save_strategy=epoch", "load_best_model_at_end=true", "greater_is_better=false"]
    own += ["compute_metrics=mine:scores", "metric_for_best_model=errors"]
    for name, errors in (("worse", 0.25), ("better", 0.125)):
        run = made(name, *(f"training.{each}" for each in own), f"data.dev={tmp_path}/train.tsv")
        run.metrics_file.write_text(json.dumps({"dev": {"accuracy": 0.5, "compute_metrics": {"errors": errors}}}))
        for step in (4, 8):
            EventLog(run.events_file).append("evaluate", step, eval_errors=errors, eval_accuracy=0.5)
    rows = cells(nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "dev").out)
    assert [(row[0], *row[-2:]) for row in rows] == [("better", "errors", "0.1250"), ("worse", "errors", "0.2500")]
    assert nlpctl("report", run.path).code == 0
    assert 'aria-label="errors on dev over step"' in run.report_file.read_text(encoding="utf-8")


def test_a_score_of_ones_own_is_not_compared_by_the_rows_of_the_task(made):
    runs = [made(name, dev=0.5) for name in ("one", "two")]
    for run in runs:
        run.metrics_file.write_text(json.dumps({"dev": {"accuracy": 0.5, "compute_metrics": {"accuracy": 1.0}}}))
        right = np.array([True, False])
        columns = class_columns(np.array([0, 1]), np.zeros(2, int), 2)
        save_tallies(run.tallies_file("dev"), make_tallies("classes", ("a", "b"), columns, right, ("x", "y")))
    (pair,) = paired(*(open_run(run.path) for run in runs)).values()
    assert pair.scores.keys() == {"macro_f1", "micro_f1", "weighted_f1"}


def test_ls_marks_what_it_cannot_read(nlpctl, made, tmp_path):
    made("good", dev=0.5)
    made("broken").manifest_file.write_text("{")
    made("unread").recipe_file.write_text("task: [")
    ended = nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "name")
    assert ended.code == 0
    rows = [row[:2] for row in cells(ended.out)]
    assert rows == [["broken", "damaged: manifest.json"], ["good", "finished"], ["unread", "damaged: recipe.yaml"]]
    assert "broken/manifest.json: cannot be read" in ended.err and "unread/recipe.yaml: the recipe" in ended.err
    listed = json.loads(nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "name", "--json").out)["result"]
    assert [(each["state"], each["damaged"]) for each in listed] == [
        ("damaged", ["manifest.json"]), ("finished", []), ("damaged", ["recipe.yaml"])
    ]  # fmt: skip
    (tmp_path / "empty").mkdir()
    assert nlpctl("runs", "ls", tmp_path / "empty") == (0, "", f"no runs in {tmp_path / 'empty'}\n")


def test_show(nlpctl, made):
    run = made("one", dev=0.75)
    EventLog(run.events_file).append("out_of_memory", 5, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    ended = nlpctl("runs", "show", run.path)
    assert ended.code == 0, ended.err
    for told in ("state:           finished", "command:         nlpctl train my.yaml", "last loss:       0.25",
                 "seed:            3", "data:            /data/train.tsv", "out of memory"):  # fmt: skip
        assert told in ended.out
    assert "per_device_train_batch_size: 4" in ended.out and "0.6250" in ended.out
    shown = json.loads(nlpctl("runs", "show", run.path, "--json").out)["result"]
    assert shown["metrics"]["dev"]["accuracy"] == 0.75 and shown["manifest"]["seed"] == 3
    run.update_manifest(command=["nlpctl", "train", "my recipe.yaml"])
    assert "nlpctl train 'my recipe.yaml'" in nlpctl("runs", "show", run.path).out
    assert [each["event"] for each in shown["incidents"]] == ["out_of_memory"]


def test_diff(nlpctl, made):
    one = made("one", dev=0.75)
    two = made("two", "training.learning_rate=0.5", "training.seed=9", "model.config.x=1", dev=0.875, data="bb")
    metrics = json.loads(two.metrics_file.read_text())
    two.metrics_file.write_text(json.dumps(metrics | {"dev": metrics["dev"] | {"rows": 9}}))
    ended = nlpctl("runs", "diff", one.path, two.path)
    assert ended.code == 0, ended.err
    rows = {row[0]: row[1:] for row in (line.split() for line in ended.out.splitlines()) if row}
    assert rows["training.learning_rate"] == ["5e-05", "0.5"] and rows["training.seed"] == ["3", "9"]
    assert rows["/data/train.tsv"] == ["sha256", "aa", "sha256", "bb"] and rows["model.config.x"] == ["1"]
    assert rows["dev.accuracy"] == ["0.7500", "0.8750", "+0.1250"] and rows["dev.macro_f1"][2] == "+0.0625"
    assert "no scores yet" not in ended.out
    assert "output_dir" not in ended.out and "dev.rows" not in ended.out and "device" not in ended.out
    assert f"nlpctl eval {two.path} --against {one.path}" in ended.err + ended.out  # older runs hold no tallies
    found = json.loads(nlpctl("runs", "diff", one.path, two.path, "--json").out)["result"]
    assert found["differences"]["recipe"]["training.seed"] == {str(one.path): 3, str(two.path): 9}
    assert found["differences"]["recipe"]["model.config.x"] == {str(one.path): None, str(two.path): 1}


def test_diff_tells_what_is_not_finished_and_values_as_they_were_set(nlpctl, made):
    one = made("one", "training.num_train_epochs=20", dev=0.75)
    two = made("two", "training.num_train_epochs=6.5")
    out = nlpctl("runs", "diff", one.path, two.path).out
    assert ["training.num_train_epochs", "20", "6.5"] in [line.split() for line in out.splitlines()]
    assert f"{two.path}: running, so there are no scores yet." in out and f"{one.path}:" not in out
    found = json.loads(nlpctl("runs", "diff", one.path, two.path, "--json").out)["result"]
    assert found["states"] == {str(one.path): "finished", str(two.path): "running"}


def test_a_page_tells_what_differs_as_the_command_does(nlpctl, made):
    """A rate of 0.00005 is not 0.0000 there, nor is a seed 1,234."""
    one, two = made("one", dev=0.75), made("two", "training.learning_rate=3e-05", "training.seed=1234", dev=0.875)
    found = differences([open_run(run.path) for run in (one, two)])
    page = compare_page(["one", "two"], found, {})
    lines = (re.findall("<td[^>]*>([^<]*)<", line) for line in page.split("<tr>"))
    rows = {line[0]: line[1:] for line in lines if line}
    assert rows["training.learning_rate"] == ["5e-05", "3e-05"] and rows["training.seed"] == ["3", "1234"]
    assert rows["dev.accuracy"] == ["0.7500", "0.8750", "+0.1250"]


def test_diff_of_what_is_the_same_and_of_three(nlpctl, made):
    one, two, three = made("a/run", dev=0.5), made("b/run", dev=0.5), made("c/run", device="gpu")
    *unpaired, same = nlpctl("runs", "diff", one.path, two.path).out.splitlines()
    assert same == "the same: recipe, environment, data, scores"
    assert [line.split(",")[0] for line in unpaired] == ["dev: no paired comparison", "test: no paired comparison"]
    out = nlpctl("runs", "diff", one.path, two.path, three.path).out
    heads = [line.split() for line in out.splitlines()]
    assert ["environment", "a/run", "b/run", "c/run"] in heads and ["device", "cpu", "cpu", "gpu"] in heads
    assert ["scores", "a/run", "b/run", "c/run"] in heads and "change" not in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ls", "nowhere"), "nowhere: there is no such folder"),
        (("ls", ".", "--sort", "deb"), "(did you mean 'dev'?)"),
        (("show", "outputs/on"), "did you mean outputs/one?"),
        (("diff", "outputs/one"), "name two run directories"),
        (("diff", "outputs/one", "outputs"), "outputs: there is no run here"),
    ],
)
def test_refused(nlpctl, made, tmp_path, monkeypatch, words, told):
    made("one", dev=0.5)
    monkeypatch.chdir(tmp_path)
    ended = nlpctl("runs", *words)
    assert ended.code == 2 and told in ended.err and "\n  -> " in ended.err and ended.out == ""


def test_needs_neither_paddle_nor_numpy(run_nlpctl, made):
    """Answers at once, also where Paddle is not installed."""
    run = made("one", dev=0.5)
    (run.path / "paddle.py").write_text("raise ImportError('not wanted')\n")
    (run.path / "numpy.py").write_text("raise ImportError('not wanted')\n")
    ended = run_nlpctl("runs", "show", run.path, env={"PYTHONPATH": f"{run.path}{os.pathsep}{ROOT}"})
    assert ended.returncode == 0, ended.stderr


def test_a_finished_run_has_all_its_steps(nlpctl, made, tmp_path):
    """The last log may be of an earlier step; early stopping ends at an evaluation, which is an event."""
    strategies = ("training.evaluation_strategy=epoch", "training.save_strategy=epoch")
    stopping = ("early_stopping.patience=2", "training.load_best_model_at_end=true", *strategies)
    stopping += (f"data.dev={tmp_path / 'train.tsv'}",)
    for name, settings in (("whole", ()), ("stopped", stopping), ("unfinished", ())):
        run = made(name, *settings, dev=None if name == "unfinished" else 0.5)
        manifest = json.loads(run.manifest_file.read_text())
        run.manifest_file.write_text(json.dumps({**manifest, "steps": {"total": 14}}))
    listed = json.loads(nlpctl("runs", "ls", tmp_path / "outputs", "--sort", "name", "--json").out)["result"]
    steps = {Path(each["run"]).name: each["step"] for each in listed}
    assert steps == {"stopped": 8, "unfinished": 8, "whole": 14}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("python:multilingual_e5/small/model", "multilingual_e5/small/model"),
        (f"hf:BAAI/bge-small-zh-v1.5@{'abc0123' * 6}", "BAAI/bge-small-zh-v1.5@abc0123"),
        ("hf:BAAI/bge-small-zh-v1.5", "BAAI/bge-small-zh-v1.5"),
        ("/data/outputs/reviews/model", "reviews"),
        ("/data/outputs/reviews/export", "reviews"),
        ("/data/encoders/rbt3", "rbt3"),
        ("ernie-3.0-nano-zh", "ernie-3.0-nano-zh"),
    ],
)
def test_a_model_is_named_so_that_others_are_told_from_it(made, name, shown):
    run = made("run", dev=0.5)
    file = run.path / "recipe.yaml"
    file.write_text(re.sub(r"^model:\n(  .*\n)+", f"model:\n  name_or_path: {name}\n", file.read_text(), flags=re.M))
    assert open_run(run.path).model == shown
