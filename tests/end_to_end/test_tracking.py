"""`training.report_to: mlflow` and `nlpctl runs send`: nothing is lost, and nothing is sent twice."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from mlflow_server import mlflow_server

INSTALLED = importlib.util.find_spec("mlflow") is not None
needs_mlflow = pytest.mark.skipif(not INSTALLED, reason="mlflow is not installed: pip install '.[mlflow]'")


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Without a proxy, and with no server named."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def server(tmp_path):
    with mlflow_server(tmp_path / "artifacts") as server:
        yield server


def once(run: dict, events: list[dict]) -> bool:
    """Whether the server has the loss of each event, once."""
    sent = Counter((each["key"], each["step"]) for each in run["metrics"])
    names = {"log": "train/loss", "evaluate": "eval/loss"}
    wanted = {(names[each["event"]], each["step"]) for each in events if each["event"] in names}
    return wanted <= set(sent) and set(sent.values()) == {1}


HANGING = """
import time
from pathlib import Path
from nlpctl.runs import tracking

class Hanging:
    def __init__(self, *_):
        print("following", flush=True)
    def send(self, last):
        time.sleep(300 * last)

tracking._Sender, tracking._EVERY, tracking._LAST = Hanging, 0.1, {False: 1.0}
tracking.follow_run(Path())
"""


def test_a_sender_that_hangs_ends_soon_after_a_killed_training():
    starting = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE)"
    parent = subprocess.Popen([sys.executable, "-c", starting, HANGING], stdout=subprocess.PIPE)
    assert parent.stdout.readline() == b"following\n"
    parent.kill()
    parent.communicate(timeout=60)  # the sender has its standard output too


@pytest.mark.skipif(INSTALLED, reason="mlflow is installed")
def test_without_mlflow_nothing_begins(work, base):
    done = work.nlpctl("train", "recipe.yaml", "--report_to", "mlflow", "--output_dir", "untracked")
    assert done.returncode == 2 and "mlflow is not installed" in done.stderr and "nlpctl[mlflow]" in done.stderr
    assert not (work / "untracked").exists()
    done = work.nlpctl("runs", "send", "base")
    assert done.returncode == 2 and "mlflow is not installed" in done.stderr and "nlpctl[mlflow]" in done.stderr


@needs_mlflow
def test_a_training_is_sent(work, monkeypatch, tmp_path):
    """Into a folder, as MLflow keeps runs without a server."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "reviews")
    done = work.nlpctl("train", "recipe.yaml", "--report_to", "mlflow", "--output_dir", "tracked")
    assert done.returncode == 0 and "mlflow: file://" in done.stderr, done.stderr
    (loss,) = (tmp_path / "store").glob("*/*/metrics/train/loss")
    run = loss.parents[2]
    assert "name: reviews" in (run.parent / "meta.yaml").read_text()
    steps = [int(line.split()[2]) for line in loss.read_text().splitlines()]
    assert steps == [each["step"] for each in work.events("tracked") if each["event"] == "log"]
    metrics = json.loads((work / "tracked" / "metrics.json").read_text())
    score = float((run / "metrics" / "test" / "accuracy").read_text().split()[1])
    assert score == metrics["test"]["accuracy"]
    assert (run / "params" / "training.learning_rate").read_text() == "0.01"
    assert len(list((run / "inputs").iterdir())) == 3
    artifacts = {path.name for path in (run / "artifacts").iterdir()}
    assert artifacts == {"report.html", "README.md", "metrics.json", "recipe.yaml"}
    assert not list(Path(work / "tracked").glob("**/events.out*"))


@needs_mlflow
def test_a_server_that_is_away_loses_nothing(work, monkeypatch, server):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = work.nlpctl("train", "recipe.yaml", "--report_to", "mlflow", "--output_dir", "alone")
    assert done.returncode == 0 and "`nlpctl runs send alone` sends the rest" in done.stderr, done.stderr
    done = work.nlpctl("runs", "send", "alone")
    assert done.returncode == 1 and "MLflow did not take the run" in done.stderr

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri.replace("//", "//me:secret@"))
    server.fail_after = 2  # it dies after it has taken the first events
    assert work.nlpctl("runs", "send", "alone").returncode == 1
    server.fail_after = None
    done = work.nlpctl("runs", "send", "alone", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["ended"] and "secret" not in done.stdout + (work / "alone" / "logs" / "mlflow.json").read_text()
    (run,) = server.runs.values()
    assert once(run, work.events("alone")) and run["info"]["status"] == "FINISHED"
    assert {"dev/accuracy", "dev/accuracy_low"} <= {each["key"] for each in run["metrics"]}
    done = work.nlpctl("runs", "send", "alone", "--json")
    assert json.loads(done.stdout)["result"]["events"] == 0 and once(run, work.events("alone"))


@needs_mlflow
def test_a_resumed_run_goes_on_in_the_same_run(work, monkeypatch, server):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    words = ("train", "recipe.yaml", "--output_dir", "halted", "--report_to", "mlflow", *work.stepwise)
    words += ("--logging_steps", "1", "--max_steps", "200")
    checkpoint = work / "halted" / "checkpoints" / "checkpoint-30"
    done = work.end(work.start(*words), checkpoint.exists, signal.SIGTERM)
    assert done.returncode == 130, done.stderr
    done = work.nlpctl("runs", "send", "halted")  # a busy machine leaves the sender no time
    assert done.returncode == 0, done.stderr
    (run,) = server.runs.values()
    assert run["info"]["status"] == "KILLED" and once(run, work.events("halted"))
    done = work.nlpctl("train", "halted", "--resume")
    assert done.returncode == 0, done.stderr
    assert list(server.runs.values()) == [run] and run["info"]["status"] == "FINISHED"
    assert once(run, work.events("halted"))


@needs_mlflow
def test_a_database_is_refused_before_the_training(work, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    done = work.nlpctl("train", "recipe.yaml", "--report_to", "mlflow", "--output_dir", "untracked")
    assert done.returncode == 2 and "mlflow-skinny opens no database" in done.stderr
    assert not (work / "untracked").exists()
