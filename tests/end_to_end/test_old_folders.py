"""Folders of an earlier version of nlpctl, finished and killed: this one opens and resumes them, to the same bytes.

`python scripts/net.py folders tests/end_to_end/old_folders.tar.xz`, run with that version, made them. On a machine of
another kind than the one where they were made, bits of weights and scores differ by rounding: there, what is resumed
must end with the same files.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
ARCHIVE = Path(__file__).with_name("old_folders.tar.xz")
sys.path.append(str(SCRIPTS))

import net  # noqa: E402

pytest.importorskip("optuna", reason="the extra sweep is not installed")

QUICK = ("run", "answers")
RESUMED = [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in net.UNFINISHED]


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that was made, and how: made.json."""
    return tmp_path_factory.mktemp("old").resolve()


@pytest.fixture(scope="session")
def made(old: Path) -> dict[str, Any]:
    return net.unpack(ARCHIVE, old)


@pytest.fixture(scope="session")
def here(work, made: dict[str, Any]):
    """`here(folder, line)`: a command that ends well in `folder`; what it says."""

    def run(folder: Path, line: str) -> str:
        ended = work.start(*shlex.split(line.format(H=net.HERE)), folder=folder)
        out, err = ended.communicate(timeout=300)
        assert ended.returncode == 0, err
        return out

    return run


@pytest.mark.parametrize("name", net.OPENED)
def test_a_finished_folder_answers_as_it_did(old, made, here, name):
    result = net.result(here(old / "finished", net.OPENED[name]), old / "finished")
    if made["machine"] == net.machine():
        assert net.known(result, made["answers"][name]) == made["answers"][name]


@pytest.mark.parametrize("name", RESUMED)
def test_a_killed_command_goes_on_to_the_same_bytes(old, made, here, name):
    unfinished = net.UNFINISHED[name]
    here(old / "interrupted", unfinished.words + unfinished.more)
    same_machine = made["machine"] == net.machine()
    assert net.differing(old / "finished", old / "interrupted", unfinished.output, same_machine) == []


def test_a_difference_would_be_found(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name / "out" / "run" / "logs").mkdir(parents=True)
        (tmp_path / name / "out" / "run" / "metrics.json").write_text(f'{{"rows": 4, "seconds": {len(name)}}}')
    one, other = tmp_path / "one", tmp_path / "other"
    assert net.differing(one, other, "out/run") == []
    (other / "out" / "run" / "metrics.json").write_text('{"rows": 5, "more": 1}')
    (other / "out" / ".staging-run-abcd_123").touch()
    (one / "out" / "run" / "recipe.yaml").touch()
    found = ["run/recipe.yaml is missing", ".staging-run-abcd_123 is left behind"]
    assert net.differing(one, other, "out/run", same_machine=False) == found
    assert net.differing(one, other, "out/run") == [*found, "run/metrics.json: differs in .rows"]
