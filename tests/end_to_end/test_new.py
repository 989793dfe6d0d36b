"""Recipes that `nlpctl new` writes for real data are valid, and train as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

SETS = {
    "bustm": "text_matching",
    "chnsenticorp": "sequence_classification",
    "tnews_fewshot": "sequence_classification",
    "sst2": "sequence_classification",
    "msra_ner": "token_classification",
    "bc5cdr": "token_classification",
    "cmrc2018": "question_answering",
}
QUICK = "bustm"


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SETS if name != QUICK)]
)
def test_real_data(name: str, work, shared_data: Path) -> None:
    recipe = f"new_{name}.yaml"
    made = work.nlpctl("new", shared_data / name, "-o", recipe)
    assert made.returncode == 0 and f"task: {SETS[name]}" in made.stderr, made.stderr
    assert work.nlpctl("recipe", "validate", recipe).stdout == f"ok {recipe}\n"
    few = ("--max_steps", "2", "--set", "data.test=[]", "--output_dir", f"outputs/new_{name}")
    run = work.nlpctl("train", recipe, *few)
    assert run.returncode == 0, run.stderr
    assert (work / "outputs" / f"new_{name}" / "metrics.json").is_file()


@pytest.mark.parametrize("name", [name for name in SETS if name not in ("msra_ner", "bc5cdr")])
def test_the_task_of_real_data(name: str, work, shared_data: Path) -> None:
    """Without training; the sets that take long to read are among the slow ones."""
    made = work.nlpctl("new", shared_data / name, "-o", f"told_{name}.yaml", "--model", "scratch")
    assert made.returncode == 0 and f"task: {SETS[name]}" in made.stderr, made.stderr
