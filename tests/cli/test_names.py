"""Names of files and folders that are not UTF-8 are refused before anything is read or written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nlpctl as package
from nlpctl.cli.predict import FORMATS
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.paths import further_files
from nlpctl.convert.source import walk
from nlpctl.data.predict_input import expand_name
from nlpctl.errors import UserError
from nlpctl.names import is_utf8
from nlpctl.runs.runs import find_runs
from nlpctl.runtime.lock import sole_writer

NAME = os.fsdecode(b"n\xff")
REFUSED = r"n\\udcff.* is not UTF-8"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file of that name."""
    try:
        (tmp_path / f"{NAME}.txt").write_text("a text\n")
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    return tmp_path


def test_what_utf8_can_hold() -> None:
    assert is_utf8("") and is_utf8("评论.tsv") and is_utf8("\U0001f600") and not is_utf8(NAME)


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "run", NAME),
        ("train", NAME),
        ("train", "quickstart", "--output_dir", f"runs/{NAME}"),
        ("train", "quickstart", "--set", f"data.train={NAME}.tsv"),
        ("card", NAME),
        ("sweep", NAME),
        ("export", "run", "-o", NAME),
        ("new", f"{NAME}.tsv"),
        ("ui", NAME),
        (NAME,),
        ("recipe", "show", "quickstart", f"--{NAME}"),
    ],
    ids=lambda words: words[0].encode("ascii", "replace").decode(),
)
def test_an_argument(nlpctl, words: tuple[str, ...]) -> None:
    ended = nlpctl(*words)
    assert ended.code == 2 and len(ended.err.splitlines()) == 2, ended.err
    assert r"n\udcff" in ended.err and ": this argument is not UTF-8\n  -> rename" in ended.err
    told = json.loads(nlpctl(*words, "--json").out.encode("utf-8", "backslashreplace"))
    assert told["exit_code"] == 2 and "is not UTF-8" in told["error"]["message"]


def test_the_current_folder(place: Path) -> None:
    """Help is printed there too."""
    (place / NAME).mkdir()
    env = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parent.parent)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nlpctl", *words]
        return subprocess.run(command, cwd=place / NAME, env=env, capture_output=True, text=True)

    refused = run("recipe", "ls")
    assert refused.returncode == 2 and "n\\udcff: the name of the current folder is not UTF-8" in refused.stderr
    assert run("--version").returncode == run("train", "--help").returncode == 0


def test_paths_that_a_program_names(place: Path) -> None:
    for values, overrides in (
        ({"data": {"train": [str(place / f"{NAME}.txt")]}}, ()),
        ({"task": "sequence_classification"}, [Override("data.train", str(place / NAME), "data.train")]),
    ):
        with pytest.raises(UserError, match=REFUSED) as refused:
            load_recipe(values, overrides)
        assert "data.train" in refused.value.problems[0].where
    with pytest.raises(UserError, match=REFUSED):
        load_recipe(place / NAME)
    with pytest.raises(UserError, match=REFUSED), sole_writer(place / NAME / "export"):
        pass


def test_a_yaml_escape(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text('task: sequence_classification\ndata: {train: train.tsv}\ntraining: {output_dir: "\\udcff"}\n')
    with pytest.raises(UserError, match="is not UTF-8") as refused:
        load_recipe(file)
    assert "recipe.yaml" in refused.value.problems[0].where


def test_names_that_are_found_in_a_folder(place: Path) -> None:
    with pytest.raises(UserError, match=REFUSED):
        expand_name(str(place), None)
    with pytest.raises(UserError, match=REFUSED):
        walk(place)
    values = {"task": "sequence_classification", "model": {"name_or_path": "ernie-3.0-nano-zh"}}
    with pytest.raises(UserError, match=REFUSED):
        further_files(load_recipe({**values, "data": {"dataset": str(place)}}))


def test_runs_of_such_a_name_are_left_out(tmp_path: Path, capsys) -> None:
    """No page can link to them."""
    for name in (NAME, "good"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text('{"format": 1, "state": "finished"}')
    assert [path.name for path in find_runs(tmp_path)] == ["good"] == [path.name for path in find_runs(tmp_path)]
    assert capsys.readouterr().err.count("is left out: its name is not UTF-8; rename it") == 1


def test_the_help_of_predict_names_every_format(run_nlpctl) -> None:
    words = set(re.findall(r"\w+", run_nlpctl("predict", "--help").stdout))
    assert set(FORMATS) <= words
