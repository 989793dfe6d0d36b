"""`nlpctl runs send` of a run that is made without training."""

from __future__ import annotations

import json

import pytest
from mlflow_server import mlflow_server

from nlpctl.runs import tracking


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """What the command sets for MLflow's client ends with the test."""
    pytest.importorskip("mlflow", reason="mlflow is not installed: pip install '.[mlflow]'")
    for name, value in {**tracking._CLIENT, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def server(tmp_path, monkeypatch):
    with mlflow_server(tmp_path / "artifacts") as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        yield server


def test_names_that_mlflow_refuses_are_known_again(nlpctl, made, server):
    run = made("indexed", dev=0.5)
    run.metrics_file.write_text(json.dumps({"dev": {"rows": 10, "recall@5": 0.5}}))
    assert nlpctl("runs", "send", run.path).code == 0
    (there,) = server.runs.values()
    del there["tags"][tracking._COMPLETE]  # as if the connection had broken before the end
    assert nlpctl("runs", "send", run.path).code == 0
    assert [each["key"] for each in there["metrics"]].count("dev/recall_5") == 1


@pytest.mark.parametrize("password", ["secret", "my/secret", "my@secret"])
def test_no_password_in_what_went_wrong(nlpctl, made, monkeypatch, password):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{password}@127.0.0.1:9")
    ended = nlpctl("runs", "send", made("away", dev=0.5).path)
    assert ended.code == 1 and "MLflow did not take the run" in ended.err and "secret" not in ended.err
