"""`predict` and `eval` of an export, and of a model by way of one, in every engine that this machine has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nlpctl.runtime.cpu import cpu_info

ENGINES = ("paddle", "onnxruntime")


@pytest.fixture(scope="session")
def export(work, base) -> Path:
    done = work.nlpctl("export", base, "-o", "exported", "--format", "paddle,onnx", "--precision", "fp32,int8-dynamic")
    assert done.returncode == 0, done.stderr
    return work / "exported"


@pytest.fixture(scope="session")
def texts(work) -> Path:
    rows = [line.split("\t")[0] for line in (work / "test.tsv").read_text().splitlines()[1:]]
    (work / "texts.txt").write_text("\n".join(rows) + "\n")
    return work / "texts.txt"


@pytest.fixture(scope="session")
def expected(work, base, texts):
    return answers(work.nlpctl("predict", base, texts))


def answers(done):
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 30
    return found


def assert_alike(found, expected, tolerance=1e-4):
    for one, other in zip(found, expected, strict=True):
        assert (one["text"], one["label"]) == (other["text"], other["label"])
        for label, probability in other["probabilities"].items():
            assert one["probabilities"][label] == pytest.approx(probability, abs=tolerance)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_export_answers_as_its_model(work, export, texts, expected, engine):
    done = work.nlpctl("predict", export, texts, "--engine", engine, "--precision", "fp32", "--threads", "1")
    assert f"{engine} fp32" in done.stderr
    assert_alike(answers(done), expected)


def test_a_model_is_exported_for_the_engine(work, base, texts, expected):
    done = work.nlpctl("predict", base, texts, "--engine", "onnxruntime", "--precision", "fp32")
    assert_alike(answers(done), expected)


def test_auto_times_the_engines_once_and_tells_why(work, export, texts, expected):
    first = work.nlpctl("predict", export, texts, "--set", "inference.min_agreement=1")
    second = work.nlpctl("predict", export, texts, "--set", "inference.min_agreement=1")
    (told,) = re.findall(r"auto takes (.*); rows per second, batch size 64, \d+ threads, timed now: (.*)", first.stderr)
    assert {"paddle fp32", "onnxruntime fp32"} <= set(re.findall(r"([a-z]+ [a-z0-9]+(?: \(\w+\))?) [\d,]+", told[1]))
    assert told[1].startswith(told[0])
    assert f"auto takes {told[0]}; rows per second" in second.stderr and "timed earlier" in second.stderr
    assert first.stdout == second.stdout
    assert [each["label"] for each in answers(first)] == [each["label"] for each in expected]


@pytest.mark.skipif(not cpu_info().computes("int8"), reason="this processor has no int8")
def test_int8_is_taken_when_asked_for(work, export, texts):
    done = work.nlpctl("predict", export, texts, "--precision", "int8")
    assert "onnxruntime int8" in done.stderr
    answers(done)


def test_eval_scores_alike(work, base, export):
    scores = []
    for words in ((base,), (export, "--engine", "onnxruntime", "--precision", "fp32")):
        done = work.nlpctl("eval", *words[:1], "test.tsv", *words[1:], "--json")
        assert done.returncode == 0, done.stderr
        scores.append(json.loads(done.stdout)["result"]["metrics"]["test"])
    assert scores[0]["accuracy"] == scores[1]["accuracy"]
