"""`nlpctl bench` times a model and its export side by side, and says what it cannot time."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
def test_a_model_and_its_export_side_by_side(work, exported):
    words = ("--batch-size", "1,8", "--rows", "24", "--rounds", "2", "--threads", "1", "--precision", "fp32")
    done = work.nlpctl("bench", "base", "timed-export", *words, "--json", "--html", "speed.html")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["failed"] == []
    engines = [each["engine"] for each in result["timed"]]
    assert engines[0] == "dygraph fp32" and {"paddle fp32", "onnxruntime fp32"} <= set(engines)
    for each in result["timed"]:
        assert each["threads"] == 1 and each["peak_mb"] > 50 and each["size_mb"] > 0.05 and each["load_seconds"] > 0
        assert [speed["batch_size"] for speed in each["speeds"]] == [1, 8]
        for speed in each["speeds"]:
            figures = speed["engine"]
            assert 0 < figures["slowest"] <= figures["samples_per_second"] <= figures["fastest"]
            assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"]
            assert figures["rounds"] == 2 and speed["text_samples_per_second"] > 0
    assert result["conditions"]["rows"] == "dev" and set(result["fastest"]) == {"1", "8"}
    page = (work / "speed.html").read_text()
    assert "onnxruntime fp32" in page and "<svg" in page and "Batch size 8" in page


@pytest.mark.slow
def test_rows_of_one_length(work, exported):
    words = ("--length", "16", "--rows", "8", "--rounds", "1", "--batch-size", "4", "--engine", "paddle")
    done = work.nlpctl("bench", "timed-export", *words, "--precision", "fp32", "--threads", "1,2")
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("\n\n")[2]
    assert table.count("paddle fp32") == 2 and "onnxruntime" not in done.stdout  # with one thread and with two
    assert "length 16" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere",), "no such recipe"),
        (("base", "--batch-size", "1,x"), "--batch-size: expected whole numbers"),
        (("base", "--length", "17"), "--length: 17 tokens exceed"),
        (("ernie-3.0-tiny-micro-v2-zh", "--set", "task=semantic_indexing"), "cannot be downloaded"),
        (("base", "--data", "nothing.tsv"), "nothing.tsv: no such file"),
        (("base", "--engine", "paddle"), "nlpctl export"),
        (("base", "--engine", "paddle", "--learning_rate", "3"), "--learning_rate has no effect"),
        (("timed-export", "--set", "data.max_seq_length=99"), "exceed the limit of the export"),
        (("timed-export", "--precision", "int8"), "cannot run the export that way"),
    ],
)
def test_what_cannot_be_timed(work, exported, words, told):
    done = work.nlpctl("bench", *words)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr and "Traceback" not in done.stderr
