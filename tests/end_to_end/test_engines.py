"""`predict` and `eval` of an export, and of a model by way of one, in every engine that this machine has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_threads_change_no_byte(work, export, texts):
    """So many batches that two threads compute side by side."""
    (work / "many.txt").write_text(texts.read_text() * 25)  # 75 batches
    words = ("predict", export, "many.txt", "--engine", "onnxruntime", "--precision", "fp32", "--batch-size", "10")
    one, two = (work.nlpctl(*words, "--threads", threads) for threads in ("1", "2"))
    assert one.returncode == 0 and len(one.stdout.splitlines()) == 750
    assert one.stdout == two.stdout


def test_a_model_answers_many_rows_in_its_temporary_export(work, base, texts):
    """The export is gone before several batches are computed side by side."""
    (work / "many.txt").write_text(texts.read_text() * 25)
    words = ("predict", base, "many.txt", "--engine", "onnxruntime", "--precision", "fp32", "--batch-size", "10")
    done = work.nlpctl(*words, "--threads", "2")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 750, done.stderr


def test_a_model_is_exported_for_the_engine(work, base, texts, expected):
    done = work.nlpctl("predict", base, texts, "--engine", "onnxruntime", "--precision", "fp32")
    assert_alike(answers(done), expected)


TAKEN = r"auto takes (.*); rows per second, batch size \d+, \d+ threads?, timed at export(?:, while [^:]*)?: (.*)"


def test_auto_takes_what_was_the_fastest_at_export_and_times_nothing(work, export, texts, expected):
    first = work.nlpctl("predict", export, texts, "--set", "inference.min_agreement=1")
    second = work.nlpctl("predict", export, texts, "--set", "inference.min_agreement=1")
    (told,) = re.findall(TAKEN, first.stderr)
    assert {"paddle fp32", "onnxruntime fp32"} <= set(re.findall(r"([a-z]+ [a-z0-9]+(?: \(\w+\))?) [\d,]+", told[1]))
    assert told[1].startswith(told[0]) and re.findall(TAKEN, second.stderr) == [told]
    assert first.stdout == second.stdout
    assert [each["label"] for each in answers(first)] == [each["label"] for each in expected]
    for words, stdin, size in ((("-",), "good\nbad\n", 2), ((texts, "--batch-size", "1"), "", 1)):
        done = work.nlpctl("predict", export, *words, "--set", "inference.min_agreement=1", stdin=stdin)
        assert done.returncode == 0 and f"batch size {size}, " in done.stderr, done.stderr
    speeds = json.loads((export / "export.json").read_text())["speeds"]
    assert {tuple(by_size) for by_size in speeds["rows_per_second"].values()} == {("1", "8", "32", "64")}


def test_an_export_of_another_machine_answers_few_rows_at_once(work, export, texts, expected):
    other = shutil.copytree(export, work / "of-another-machine")
    content = json.loads((other / "export.json").read_text())
    content["speeds"]["conditions"]["processor"] = "Intel Xeon"
    (other / "export.json").write_text(json.dumps(content))
    done = work.nlpctl("predict", other, texts)
    assert "not timed here yet, but on Intel Xeon" in done.stderr and "timing" not in done.stderr
    assert [each["label"] for each in answers(done)] == [each["label"] for each in expected]
    del content["speeds"]  # of an older nlpctl
    (other / "export.json").write_text(json.dumps(content))
    assert "not timed here yet; another network made" in work.nlpctl("predict", other, texts).stderr


IMPORTED = """
import sys
from nlpctl.cli.app import main
code = main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_an_export_is_answered_without_paddlenlp(work, export, texts, expected, engine):
    """In a process of its own: the command lines of the other tests are forked from one that has imported it."""
    words = [sys.executable, "-c", IMPORTED, "predict", str(export), str(texts), "--engine", engine]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([*words, "--precision", "fp32"], cwd=work.folder, env=env, capture_output=True, text=True)
    assert_alike(answers(done), expected)
    imported = set(done.stderr.splitlines()[-1].split())
    assert "nlpctl" in imported and "numpy" in imported
    assert not imported & {"paddlenlp", "transformers", "datasets", "sklearn", "pandas", "jieba", "fastapi"}
    assert ("paddle" in imported, "onnxruntime" in imported) == (engine == "paddle", engine == "onnxruntime")


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
