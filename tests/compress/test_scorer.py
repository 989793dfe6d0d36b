"""Candidates scored by the real engines, each in a process of its own."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imported_modules import large_ones
from made_runs import make_run

from nlpctl.compress import scorer as score_candidates
from nlpctl.compress.scorer import Scorer, largest_difference
from nlpctl.compress.timing import Timing
from nlpctl.config.recipe_of import answering_like, recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.inference.evaluate import evaluate
from nlpctl.layout import EXPORT_MANIFEST
from nlpctl.models.export_folder import read_manifest, write_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process

TIMING = Timing(batch_sizes=(1, 4), rows=8, rounds=2)
OWN = '''
import os, pathlib

def half(predict, rows):
    """Half the share of rows that are answered as labelled. Its process dies the second time it is asked."""
    calls = pathlib.Path(__file__).with_suffix(".calls")
    calls.open("a").write("x")
    if calls.stat().st_size == 2:
        os.abort()
    answers = predict(rows)
    return {"half": sum(a["label"] == r["label"] for a, r in zip(answers, rows, strict=True)) / len(rows) / 2, "two": 2}
'''


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = make_run(tmp_path_factory.mktemp("scored"), "sequence_classification")
    data = dataclasses.replace(recipe.data, test=recipe.data.train)
    return dataclasses.replace(recipe, data=data)


@pytest.fixture(scope="session")
def original(run: Recipe) -> Path:
    folder = run.run_dir / "original"
    export(run, find_trained_model(run), ExportRequest(rows=8), output=folder)
    return folder


def candidate(original: Path, folder: Path, *, damage: str | None = None) -> Path:
    """A copy of an export; `damage`: this file has another content, of which the manifest knows."""
    shutil.copytree(original, folder)
    (folder / EXPORT_MANIFEST).unlink()
    if damage is not None:
        (folder / damage).write_bytes(b"no graph")
    write_manifest(folder, read_manifest(original))
    return folder


def nearly(value: Any) -> Any:
    """The confidences of a graph differ from those of its network in the last digits, by the processor."""
    if isinstance(value, dict):
        return {name: nearly(each) for name, each in value.items()}
    if isinstance(value, list):
        return [nearly(each) for each in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


def no_process(*words):
    raise AssertionError("measured again")


def test_paddle_inference_is_timed_without_paddlenlp(run, original, tmp_path):
    scorer = Scorer(run, set_up_process(run), original, tmp_path, TIMING)
    assert scorer._reference_choice.engine == "paddle"
    with scorer._process(original, scorer._reference_choice) as process:
        process.open()
        assert process.ask(large_ones) == {"paddle"}


@pytest.mark.slow
def test_every_way_to_run_an_export(run, original, tmp_path, monkeypatch):
    with Scorer(run, set_up_process(run), original, tmp_path, TIMING) as scorer:
        reference = scorer.reference()
        found = scorer.score(original)
        test = scorer.on_test(reference)
    assert found.failures == () and found.rows[0] == reference
    assert (reference.engine, reference.precision) == ("paddle", "fp32")
    assert (reference.difference, reference.agreement) == (0.0, 1.0)
    assert [(speed.batch_size, speed.times, speed.p50_times) for speed in reference.speeds] == [(1, 1, 1), (4, 1, 1)]
    expected = evaluate(run, ("dev", "test")).metrics
    assert reference.report == nearly(expected["dev"])
    assert reference.score == expected["dev"]["accuracy"] and reference.dev_rows == 40
    assert (test.rows, test.reference, test.agreement) == (20, expected["test"]["accuracy"], 1.0)
    files = read_manifest(original).graphs[0].files
    for row in found.rows[1:]:  # bf16, where the processor computes in it
        assert row.precision == "bf16" and 0 < row.difference < 0.5 and row.agreement > 0.8
    for row in found.rows:
        assert row.peak_mb > 100 and row.seconds > 0 and row.load_seconds > 0
        assert row.size_mb * 1024**2 == sum((original / name).stat().st_size for name in files)
        assert all(speed.samples_per_second > 0 and speed.p50_ms > 0 and speed.times > 0 for speed in row.speeds)
    monkeypatch.setattr(score_candidates, "TimedProcess", no_process)
    with Scorer(run, set_up_process(run), original, tmp_path, TIMING) as again:
        assert again.score(original) == found and again.on_test(reference) == test
    other = dataclasses.replace(run, data=dataclasses.replace(run.data, dev=run.data.train))
    again = Scorer(other, set_up_process(other), original, tmp_path, TIMING)
    with again, pytest.raises(AssertionError, match="again"):
        again.reference()


@pytest.mark.slow
def test_an_engine_that_fails_costs_its_row_only(run, original, tmp_path, monkeypatch):
    """One candidate whose process dies in the middle, and one whose file is no graph."""
    monkeypatch.setattr(score_candidates, "_choices", only_fp32(score_candidates._choices))
    (tmp_path / "own_score.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    compression = dataclasses.replace(run.compression, evaluate="own_score:half")
    recipe = dataclasses.replace(run, compression=compression)
    dies = candidate(original, tmp_path / "dies")
    damaged = candidate(original, tmp_path / "damaged", damage="model.pdmodel")
    with Scorer(recipe, set_up_process(recipe), original, tmp_path / "scores", TIMING) as scorer:
        reference = scorer.reference()
        assert scorer.metric.name == "half"
        accuracy = reference.report["accuracy"]
        assert reference.score == pytest.approx(accuracy / 2) and 0 < accuracy < 1
        (failure,) = scorer.score(dies).failures
        assert (failure.candidate, failure.choice_name) == ("dies", "paddle fp32")
        assert "its process ended (killed by SIGABRT)" in failure.reason
        assert "model.pdmodel" in scorer.score(damaged).failures[0].reason
        assert scorer.reference() == reference
    assert [path.name for path in (tmp_path / "scores").iterdir()] == ["original.paddle-fp32.json"]


def only_fp32(choices):
    """bf16 takes a process more, and says nothing more."""
    return lambda folder, recipe: [choice for choice in choices(folder, recipe) if choice.precision == "fp32"]


def test_what_no_engine_here_runs_is_told(run, original, tmp_path, monkeypatch):
    """Nothing was said, and the row was missing."""
    folder = candidate(original, tmp_path / "onnx")
    manifest = read_manifest(folder)
    graph = dataclasses.replace(manifest.graphs[0], format="onnx", files=("model.pdmodel",))
    write_manifest(folder, dataclasses.replace(manifest, graphs=(graph,)))
    monkeypatch.setattr("nlpctl.engines.choice.is_installed", lambda name: name != "onnxruntime")
    scorer = Scorer(run, set_up_process(run), original, tmp_path / "scores", TIMING)
    with pytest.raises(UserError, match="onnx: no engine here runs it: ONNX Runtime is not installed"):
        scorer.score(folder)
    (folder / "model.pdmodel").write_bytes(b"damaged")
    with pytest.raises(UserError, match=f"was altered .*\n.*delete {folder} and run the same command again"):
        scorer.score(folder)


def test_outputs_of_other_shapes_are_not_compared():
    logits, other = np.zeros((2, 3), np.float32), np.float32([[0, 0, 0.25], [-0.5, 0, 0]])
    assert largest_difference([(logits, logits)], [(logits, other)]) == 0.5
    assert largest_difference([(logits,)], [(np.zeros((2, 4), np.float32),)]) is None
    assert largest_difference([(logits,)], [(logits,), (logits,)]) is None


def test_a_student_reads_text_its_own_way(run, original, tmp_path):
    """Where rows come from is for the recipe to say, how long a text may be for the student."""
    student = candidate(original, tmp_path / "student")
    task = student / "task.json"
    task.write_text(task.read_text().replace('"max_seq_length": 24', '"max_seq_length": 12'))
    recipe = answering_like(run, recipe_of(student))
    assert (recipe.data.max_seq_length, run.data.max_seq_length) == (12, 24)
    assert (recipe.data.dev, recipe.data.columns, recipe.runtime) == (run.data.dev, run.data.columns, run.runtime)
