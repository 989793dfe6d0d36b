"""Running a command line inside the test's process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nlpctl.cli.app import main
from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import Override, load_recipe
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory


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


@pytest.fixture
def made(tmp_path: Path, recipe: Path) -> Callable[..., RunDirectory]:
    """`made("name", "key=value", dev=0.9)`: the run `name` in tmp_path/outputs, finished with this accuracy."""

    def make(name: str, *settings: str, dev: float | None = None, data: str = "aa", device: str = "cpu"):
        run = RunDirectory(tmp_path / "outputs" / name)
        overrides = [Override(*each.split("=", 1), "--set") for each in settings]
        resolved = load_recipe(recipe, [*overrides, Override("training.output_dir", str(run.path), "--set")])
        facts = {"command": ["/usr/bin/nlpctl", "train", "my.yaml"], "versions": {"paddlepaddle": "2.6.2"}}
        facts |= {"git_commit": None, "seed": resolved.training.seed, "data": {"/data/train.tsv": data}}
        facts |= {"device": device, "processes": 1, "skipped_rows": {}}
        run.begin(facts, dump_recipe(resolved), resume=False, overwrite=False)
        log = EventLog(run.events_file)
        log.append("log", 4, loss=0.5)
        log.append("log", 8, loss=0.25)
        if dev is not None:
            report = {"rows": 10, "accuracy": dev, "macro_f1": dev / 2}
            run.metrics_file.write_text(json.dumps({"dev": report, "test": {**report, "accuracy": dev - 0.125}}))
            with run.recorded():
                pass
        return run

    return make
