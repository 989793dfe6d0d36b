"""Running a command line inside the test's process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nlpctl.cli.app import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def nlpctl(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run `nlpctl WORDS...`; give its exit code, stdout and stderr."""

    def run(*words: str | Path) -> Ended:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe that is right in every way."""
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\n", encoding="utf-8")
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "# A test.\ntask: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n"
        "training:\n  seed: 3\n  output_dir: /tmp/nlpctl-run\n",
        encoding="utf-8",
    )
    return path
