"""What is made on one release of Paddle is used on the other, both ways.

NLPCTL_OTHER_PYTHON names the interpreter of an environment with the other release, such as
.venv-paddle3/bin/python; scripts/check_release.sh sets it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHER = os.environ.get("NLPCTL_OTHER_PYTHON", "")
pytestmark = pytest.mark.skipif(not OTHER, reason="NLPCTL_OTHER_PYTHON names no interpreter with another Paddle")

Answers = list[dict[str, Any]]
# Engine, precision, and by how much probabilities may differ. On an EPYC with AVX-512 only fp32 by Paddle Inference
# does, by the last of six digits: its oneDNN adds up in another order.
GRAPHS = [(engine, *limit) for engine in ("paddle", "onnxruntime") for limit in (("fp32", 2e-6), ("int8", 1e-3))]


@pytest.fixture(scope="session", params=["made here", "made there"])
def grounds(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The interpreters of the maker and of the user."""
    here, there = sys.executable, OTHER
    return (here, there) if request.param == "made here" else (there, here)


@pytest.fixture(scope="session")
def nlpctl(work) -> Callable[..., str]:
    """`nlpctl(python, *words)`: the command line in that interpreter; returns what it prints."""

    def run(python: str, *words: str | Path, stdin: str = "") -> str:
        done = subprocess.run(
            [python, "-m", "nlpctl", *map(str, words)],
            cwd=work.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{python} {words}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def made(work, grounds: tuple[str, str], nlpctl) -> Path:
    """A run with an export in it, made by the maker alone."""
    maker, run = grounds[0], work / f"by_{'this' if grounds[0] == sys.executable else 'other'}"
    nlpctl(maker, "train", "recipe.yaml", "--output_dir", run, "--num_train_epochs", "3")
    nlpctl(maker, "export", run, "--format", "paddle,onnx", "--precision", "fp32,int8")
    return run


def answers(printed: str) -> Answers:
    found = [json.loads(line) for line in printed.splitlines()]
    assert len(found) == 30
    return found


def largest_difference(one: Answers, other: Answers) -> float:
    """The largest between two probabilities of the same row."""
    pairs = zip(one, other, strict=True)
    return max(abs(a["probabilities"][label] - p) for a, b in pairs for label, p in b["probabilities"].items())


def versions(content: Mapping[str, Any]) -> set[str]:
    return {version for name, version in content["versions"].items() if name.startswith("paddlepaddle")}


def test_the_grounds_differ_and_are_named(grounds, made) -> None:
    code = "from nlpctl.paddle_version import installed_paddle; print(installed_paddle())"
    asked = [subprocess.run([each, "-c", code], cwd=ROOT, capture_output=True, text=True) for each in grounds]
    maker, user = (each.stdout.strip() for each in asked)
    assert maker and user and maker != user
    for file in ("manifest.json", "export/export.json"):
        assert versions(json.loads((made / file).read_text())) == {maker}


def test_a_run_is_scored_and_answers_the_same(work, grounds, made, nlpctl) -> None:
    maker, user = grounds
    scored, again = (json.loads(nlpctl(each, "eval", made, "--json"))["result"] for each in grounds)
    assert again == scored
    asked = ("predict", made, "test.tsv", "--engine", "dygraph")
    assert largest_difference(answers(nlpctl(user, *asked)), answers(nlpctl(maker, *asked))) <= 1e-6


@pytest.mark.parametrize(("engine", "precision", "most"), GRAPHS)
def test_an_export_answers_the_same(request, work, grounds, made, nlpctl, engine, precision, most) -> None:
    if (engine, precision) == ("paddle", "int8"):
        request.getfixturevalue("native_int8")
    asked = ("predict", made / "export", "test.tsv", "--engine", engine, "--precision", precision)
    first, second = (answers(nlpctl(each, *asked)) for each in grounds)
    assert largest_difference(first, second) <= most


def test_a_run_is_continued(work, grounds, made, nlpctl) -> None:
    more = work / f"{made.name}_longer"
    nlpctl(grounds[1], "train", made, "--continue", "1", "--output_dir", more)
    assert json.loads((more / "manifest.json").read_text())["state"] == "finished"


def test_a_model_is_compressed(work, grounds, made, nlpctl) -> None:
    nlpctl(grounds[1], "compress", made, "--strategy", "ptq", "-o", work / f"{made.name}_small")
    assert (work / f"{made.name}_small" / "best" / "export.json").is_file()
