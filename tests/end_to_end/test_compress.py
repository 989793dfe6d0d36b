"""`nlpctl compress` with the real engines: what it leaves, that it goes on, and that it ends well."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

from nlpctl.checksums import sha256_of
from nlpctl.cli.app import main
from nlpctl.compress import compress, timing
from nlpctl.compress.plan import CompressRequest, parse_strategy
from nlpctl.compress.refusals import refuse_graphs
from nlpctl.compress.steps import StepPool, TimeIsUp
from nlpctl.config.load import load_recipe
from nlpctl.export.strategies import OrtDynamic, Step
from nlpctl.layout import CANDIDATES, EXPORTS
from nlpctl.models.export_folder import read_manifest
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.worker_slots import HERE, WorkerSlots

ROOT = Path(__file__).resolve().parents[2]
# A calibrated graph of every machine: Paddle's where its int8 is native.
CALIBRATED, CANDIDATE = (
    ("ptq", "original+ptq-avg-4x2, paddle int8 (ptq)")
    if cpu_info().computes("int8")
    else ("ort-static", "original+ort-static-4x2, onnxruntime int8 (static)")
)
GRID = f"--strategy ort-dynamic,embeddings,{CALIBRATED} --algo_list avg --batch_size_list 4 --batch_num_list 2".split()
GRID += ["--batch_sizes", "2"]


def sums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def compressed(run: Path, *words: str) -> dict[str, Any]:
    """report.json of a command that succeeds. Its turns are short: nobody looks at its speeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "MIN_PASS", 0.0)
        assert main(["compress", str(run), *words]) == 0
    return json.loads((run / "compress" / "report.json").read_text())


def table(report: dict[str, Any]) -> list[tuple[str, float, float]]:
    """What does not depend on the speed of the machine."""
    return sorted((row["name"], row["score"], row["difference"]) for row in report["rows"])


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = make_run(tmp_path_factory.mktemp("compress"), "sequence_classification")
    files = (*recipe.data.train, *recipe.data.dev)  # known by their sums, as those of a run that was trained
    told = {"state": "finished", "data": {str(file): sha256_of(Path(file)) for file in files}}
    (recipe.run_dir / "manifest.json").write_text(json.dumps(told))
    return recipe.run_dir


def test_a_graph_without_products_is_refused_before_it_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GRU is in fp32 in every engine; the candidates that can be made still are."""
    run = make_run(tmp_path, "lexical_analysis", "bigru", "crf").run_dir
    words = [f"--set=data.{split}={tmp_path / f'{split}.jsonl'}" for split in ("train", "dev")]
    with monkeypatch.context() as patch:
        patch.setattr(compress, "Scorer", None)  # nothing is scored
        assert main(["compress", str(run), "--strategy", "ort-dynamic,ort-static", *words]) == 2
    told = capsys.readouterr().err
    assert "ort-dynamic: nothing in this graph can be int8: it has no product with a weight of 16 columns" in told
    assert "and no LSTM; ONNX Runtime computes a GRU in fp32 only" in told and "ort-static: nothing in this" in told
    assert "Traceback" not in told and not (run / "compress" / "best").exists()
    made = run / "compress"
    recipe = load_recipe(run, (), "apply")
    refused = refuse_graphs(CompressRequest(recipe, str(run), parse_strategy("ort-dynamic,dynabert,bf16"), made))
    assert list(refused) == [f"{CANDIDATES}/original+ort-dynamic"]


@pytest.fixture(scope="session")
def whole(run: Path) -> dict[str, Any]:
    """The report of a command that nobody disturbed."""
    import paddle

    before = sums(run / "model")
    paddle.seed(11)
    expected = paddle.rand([2]).tolist()
    paddle.seed(11)
    report = compressed(run, *GRID)
    assert sums(run / "model") == before
    assert paddle.rand([2]).tolist() == expected and paddle.in_dynamic_mode()
    return report


def begun(told: str) -> list[str]:
    """What a command began to make; the lines of its progress name it again."""
    return [line.partition(":")[0] for line in told.splitlines() if line.startswith("making ")]


def test_the_table_and_the_best(run, whole, capsys):
    ways = {name for name, _, _ in table(whole)}
    assert {"original, paddle fp32", "original, onnxruntime fp32"} <= ways
    assert {"original+ort-dynamic, onnxruntime int8 (dynamic)", CANDIDATE} <= ways
    (failure,) = whole["failures"]  # one candidate cannot be made; the others are there
    assert failure["candidate"] == "original+embeddings" and "no float32 embedding table" in failure["reason"]
    (best,) = [row for row in whole["rows"] if row["name"] == whole["best"]]
    assert whole["last_rounds"] >= 7 and set(whole["baselines"]) == {"2"}
    assert whole["baselines"]["2"].startswith("original, ")
    for row in whole["rows"]:
        (speed,) = row["speeds"]
        assert speed["low"] <= speed["times"] <= speed["high"]  # every row is the fastest of its candidate or untouched
        assert speed["engine"] * speed["precision"] * speed["compression"] == pytest.approx(speed["whole"])
    manifest = read_manifest(run / "compress" / "best")
    assert (manifest.chosen.engine, manifest.chosen.precision) == (best["engine"], best["precision"])
    capsys.readouterr()
    dev = f"data.dev={run.parent / 'dev.jsonl'}"
    assert main(["eval", str(run / "compress" / "best"), "--set", dev, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["metrics"]["dev"]["accuracy"] == best["score"]


def test_the_same_command_makes_nothing_anew(run, whole, capsys):
    capsys.readouterr()
    made = {path: path.stat().st_mtime_ns for path in (run / "compress").glob("*/*") if path.parent.name != "best"}
    again = compressed(run, *GRID)
    told = capsys.readouterr().err
    assert begun(told) == [] and "original+embeddings: " in told  # what the graph refuses is told again
    assert "scoring " not in told and "timed in turns" not in told
    assert again["rows"] == whole["rows"]
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert table(again) == table(whole) and again["best"] == whole["best"]
    assert main(["compress", str(run), *GRID, "--strategy", "embeddings"]) == 2  # all that was asked for failed
    assert "no float32 embedding table" in capsys.readouterr().err
    assert json.loads((run / "compress" / "report.json").read_text())["best"] == whole["best"]


def test_two_workers_make_the_same_files(run, whole, tmp_path, capsys):
    """Scores are kept by the checksums of what was scored: nothing is scored anew."""
    other = shutil.copytree(run, tmp_path / "run")
    _move(other, run)
    shutil.rmtree(other / "compress" / CANDIDATES)
    capsys.readouterr()
    report = compressed(other, *GRID, "--workers", "2")
    told = capsys.readouterr().err
    assert "2 steps at a time" in told and len(begun(told)) == 2 and "scoring " not in told
    assert table(report) == table(whole)
    for folder in (run / "compress" / CANDIDATES).iterdir():
        assert sums(other / "compress" / CANDIDATES / folder.name) == sums(folder)


def test_no_time(run, whole, tmp_path, capsys):
    """Without time for anything new the best of what is there is given."""
    other = shutil.copytree(run, tmp_path / "run")
    _move(other, run)
    for name in (CANDIDATES, "best"):
        shutil.rmtree(other / "compress" / name)
    report = compressed(other, *GRID, "--budget", "1s")
    assert {row["candidate"] for row in report["rows"]} == {"original"}
    assert len(report["failures"]) == 3
    untried = [each for each in report["failures"] if each["candidate"] != "original+embeddings"]
    assert all("not tried: it would take about" in failure["reason"] for failure in untried)
    assert report["best"].startswith("original, ") and read_manifest(other / "compress" / "best").chosen is not None
    assert "longer --budget" in capsys.readouterr().err


def test_another_plan_is_refused(run, whole, tmp_path, capsys):
    other = shutil.copytree(run, tmp_path / "run")
    _move(other, run)
    before = sums(other / "compress" / "best")
    assert main(["compress", str(other), *GRID, "--weight_quantize_type", "abs_max"]) == 2
    assert "made with compression.weight_quantize_type: " in capsys.readouterr().err
    (other / "model" / "manifest.json").unlink()
    labels = other / "model" / "labels.json"
    labels.write_text(labels.read_text() + "\n")
    assert main(["compress", str(other), *GRID]) == 2
    assert "its files have changed" in capsys.readouterr().err
    assert sums(other / "compress" / "best") == before


def _move(copy: Path, run: Path) -> None:
    """A run knows where it lies."""
    for name in ("recipe.yaml", "compress/plan.json"):
        file = copy / name
        file.write_text(file.read_text().replace(f"{run}", f"{copy}"))


KILLS: tuple[tuple[str, Callable[[Path], object], signal.Signals], ...] = (
    ("while the network is exported", lambda folder: list(folder.glob("exports/.staging-*")), signal.SIGKILL),
    ("while it is scored", lambda folder: list(folder.glob("scores/original.*")), signal.SIGKILL),
    ("while a candidate is made", lambda folder: list(folder.glob("candidates/*")), signal.SIGINT),
    ("in the last round", lambda folder: list(folder.glob("scores/last-round.json")), signal.SIGINT),
)


@pytest.mark.slow
def test_a_killed_command_goes_on_to_the_same_table(run, whole, tmp_path):
    """Killed at several points, the last time asked politely; nothing of the first lives makes a difference."""
    other = shutil.copytree(run, tmp_path / "run", ignore=lambda *_: ["compress"])
    _move_recipe(other, run)
    before = sums(other / "model")
    folder = other / "compress"
    command = [sys.executable, "-m", "nlpctl", "compress", str(other), *GRID]
    for told, reached, number in KILLS:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, cwd=ROOT, **pipes, text=True, start_new_session=True)
        while not reached(folder) and process.poll() is None:
            time.sleep(0.02)
        if number == signal.SIGINT:  # a terminal sends it to the whole group
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=300)
        assert process.returncode == (130 if number == signal.SIGINT else -number), f"{told}: {said}"
        assert "Traceback" not in said, said
    assert "run the same command" in said
    report = compressed(other, *GRID)
    assert table(report) == table(whole)
    assert sums(other / "model") == before
    assert not list(folder.rglob(".staging-*"))


def _move_recipe(copy: Path, run: Path) -> None:
    file = copy / "recipe.yaml"
    file.write_text(file.read_text().replace(f"{run}", f"{copy}"))


def test_a_process_that_dies_costs_its_step_alone(run, whole, tmp_path):
    folder = tmp_path / "made"
    shutil.copytree(run / "compress" / EXPORTS, folder / EXPORTS)
    step = Step(CANDIDATES, "original+ort-dynamic", OrtDynamic(), ("exports/original",))
    recipe = load_recipe(run, (), "apply")
    slots = WorkerSlots((recipe.runtime,), False, 1.0, HERE)
    with StepPool(recipe, str(run / "model"), folder, slots, HERE) as pool:
        killer = threading.Thread(target=_kill_when_there, args=(pool,))
        pool.begin(step)
        killer.start()
        assert "its process ended (killed by SIGKILL)" in str(pool.wait().error)
        killer.join()
        assert not (folder / step.folder).exists()
        pool.begin(step)
        assert pool.wait().error is None
        pool.begin(Step(CANDIDATES, "original+late", OrtDynamic(), ("exports/original",)), 0.001)
        late = pool.wait().error
        assert isinstance(late, TimeIsUp) and "was stopped after 0 s" in str(late)
        (temporary,) = folder.glob(".staging-temporary-*")
        (temporary / "left").touch()
    assert sums(folder / step.folder) == sums(run / "compress" / step.folder)
    assert not (folder / CANDIDATES / "original+late").exists() and not temporary.exists()


def _kill_when_there(pool: StepPool) -> None:
    (worker,) = pool._pool._workers
    while worker.process is None or worker.process.pid is None:
        time.sleep(0.01)
    os.kill(worker.process.pid, signal.SIGKILL)
