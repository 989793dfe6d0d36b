"""No output of a command is an input of the same command."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture
def refused(work):
    """The messages of a command that must refuse, and change nothing in its folder `own`."""

    def run(*words: str) -> str:
        kept = {path: path.read_bytes() for path in (work / "own").rglob("*") if path.is_file()}
        done = work.nlpctl(*words)
        assert done.returncode == 2 and "and is not replaced" in done.stderr and "->" in done.stderr, done.stderr
        assert {path: path.read_bytes() for path in (work / "own").rglob("*") if path.is_file()} == kept
        return done.stderr

    yield run
    shutil.rmtree(work / "own")


def test_a_run_is_not_replaced_by_one_that_starts_from_it(work, base, refused):
    shutil.copytree(work / "base", work / "own/run", ignore=shutil.ignore_patterns("checkpoints"))
    words = ("train", "recipe.yaml", "--set", "model.from_scratch=null", "--set", "model.config={}", "--overwrite")
    for source in ("own/run", "own/run/model"):
        told = refused(*words, "--set", f"model.name_or_path={source}", "--output_dir", "own/run")
        assert "own/run/model" in told and "model.name_or_path" in told
    (work / "own/run/logs").mkdir(exist_ok=True)
    shutil.copy(work / "train.tsv", work / "own/run/logs/rows.tsv")
    told = refused("train", "recipe.yaml", "--set", "data.train=own/run/logs/rows.tsv", "--output_dir", "own/run",
                   "--overwrite")  # fmt: skip
    assert "data.train" in told


def test_answers_do_not_replace_what_is_read(work, base, refused):
    """Nor does what is written on the way to them."""
    (work / "own").mkdir()
    for name in ("rows.txt", "out.jsonl.partial"):
        (work / "own" / name).write_text("good\nbad\n")
    told = refused("predict", base, "own/out.jsonl.partial", "--format", "text", "-o", "own/out.jsonl")
    assert "own/out.jsonl.partial: this is an input" in told
    done = work.nlpctl("predict", base, "own/rows.txt", "-o", "own/parts", "--parts", "jsonl")
    assert done.returncode == 0, done.stderr
    part = next((work / "own/parts").glob("*.jsonl")).name
    told = refused("predict", base, f"own/parts/{part}", "-o", "own/parts", "--parts", "jsonl", "--overwrite")
    assert "own/parts: this holds an input" in told
    refused("explain", base, "own/rows.txt", "-o", "own/rows.txt", "--overwrite")
    words = ("data", "augment", "recipe.yaml", "-o", "recipe.yaml", "--method", "delete", "--overwrite")
    assert "recipe.yaml: this is an input (RECIPE)" in refused(*words)
