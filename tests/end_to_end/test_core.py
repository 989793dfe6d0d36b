"""What `pip install nlpctl` brings answers an export, and says which extra the rest needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from core_environment import ROOT, make_core, start_core
from service import listening, post

PADDLE = "pip install 'nlpctl[cpu]' (with an NVIDIA card nlpctl[gpu], with Paddle 3.1 nlpctl[paddle3])"


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    return make_core(tmp_path_factory.mktemp("core") / "venv")


@pytest.fixture(scope="module")
def run(core, work):
    def run(*words, stdin=""):
        process = start_core(core, *words, folder=work.folder)
        out, err = process.communicate(stdin, timeout=300)
        return process.returncode, out, err

    return run


def test_an_export_is_answered_and_scored(work, run, exported):
    words = ("predict", "timed-export", "test.tsv", "--engine", "onnxruntime", "--precision", "fp32")
    code, answers, err = run(*words)
    assert code == 0, err
    everything = work.nlpctl(*words)
    assert answers == everything.stdout and answers.count("\n") == 30
    code, out, err = run("eval", "timed-export", "test.tsv", "--json", *words[3:])
    assert code == 0, err
    scores = json.loads(out)
    assert scores == json.loads(work.nlpctl("eval", "timed-export", "test.tsv", "--json", *words[3:]).stdout)


def test_an_export_is_served(core, work, exported):
    process = start_core(core, "serve", "timed-export", "--port", "0", folder=work.folder)
    try:
        url, _ = listening(process)
        status, answer = post(url, {"text": "the room was good"})
        assert status == 200 and answer["label"] in ("neg", "pos")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_every_task_is_imported_without_paddle(core, tmp_path):
    code = "from nlpctl.config.tasks import known_tasks, load_class\nfor task in known_tasks(): load_class(task.task)"
    done = subprocess.run([core, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_data_are_looked_at_and_the_doctor_is_content(run):
    code, out, err = run("data", "inspect", "recipe.yaml")
    assert code == 0 and "tokens are estimated" in err, err
    code, out, err = run("doctor")
    assert code == 0 and "failure" not in out, out
    assert "paddle package: none, so exports are answered and nothing is trained" in out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("predict", "base", "test.tsv"), f"{PADDLE}, or give an export of the model, which ONNX Runtime answers"),
        (("predict", "timed-export", "test.tsv", "--engine", "paddle"), f"{PADDLE}, or use --engine onnxruntime"),
        (("train", "recipe.yaml", "--overwrite"), PADDLE),
        (("predict", "timed-export", "rows.parquet"), "pip install 'nlpctl[parquet]'"),
    ],
)
def test_what_an_extra_is_needed_for(work, run, exported, words, hint):
    (work / "rows.parquet").write_bytes(b"PAR1")
    code, _, err = run(*words)
    assert code == 2
    assert err.splitlines()[-1].strip() == f"-> {hint}", err


def built(folder: Path, file: str) -> tuple[Path, float]:
    """The environment that the lines of a Containerfile make, below `folder` and without a container; its MB."""
    lines = (ROOT / "examples/container" / file).read_text()
    sources = re.findall(r"^COPY (?!--from)(.*) (/src\S*)$", lines, re.MULTILINE)
    for names, place in sources:
        for name in names.split():
            path = folder / place.lstrip("/") / ("" if place.endswith("/") else ".")
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, path, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                path.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, path)
    arguments = os.environ | dict(re.findall(r"^ARG (\w+)=(\w+)$", lines, re.MULTILINE))
    for command in re.findall(r"^RUN (?!apt-get)(.*)$", lines, re.MULTILINE):  # this machine has what that installs
        command = command.replace("/opt/", f"{folder}/opt/").replace("/src", f"{folder}/src")
        command = re.sub(r"^python ", f"{sys.executable} ", command)
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, env=arguments)
    place = folder / "opt" / "nlpctl"
    return place / "bin" / "nlpctl", sum(file.lstat().st_size for file in place.rglob("*")) / 1e6


@pytest.mark.slow
def test_the_container_that_serves(tmp_path, work, exported):
    """How large it is, and how soon it answers."""
    command, size = built(tmp_path, "serve.Containerfile")
    words = [command, "predict", "timed-export", "-"]
    began = time.monotonic()
    done = subprocess.run(words, input="the room was good\n", cwd=work.folder, capture_output=True, text=True)
    print(f"{size:.0f} MB, first answer after {time.monotonic() - began:.2f} s")
    assert done.returncode == 0 and '"label"' in done.stdout, done.stderr
    assert size < 450


@pytest.mark.slow
def test_the_container_that_trains(tmp_path, work):
    """How large it is, and that it trains, exports and compresses."""
    command, size = built(tmp_path, "train.Containerfile")
    print(f"{size:.0f} MB")
    for words in (
        ("train", "recipe.yaml", "--set", "training.output_dir=contained"),
        ("export", "contained", "-o", "contained-export"),
        ("compress", "contained", "-o", "contained-small", "--strategy", "ort-dynamic", "--max-drop", "100"),
    ):
        done = subprocess.run([command, *words], cwd=work.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert size < 2500
