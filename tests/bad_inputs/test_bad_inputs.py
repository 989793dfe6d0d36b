"""Everything that a user can get wrong ends with exit code 2 and messages that name the place and the remedy.

The cases are in cases/*.yaml; their form is told in cases/README.md. Each runs its command line in a process
of its own, in a copy of one folder that holds a good recipe, its data and a finished run.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_lines import CommandLines, Ended
from damage import damage, write

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One entry of cases/*.yaml."""

    name: str
    run: str
    errors: tuple[str, ...] = ()  # per message, what must stand in it, in this order, joined by " ... "
    prints: tuple[str, ...] = ()  # of a control: what must stand on stdout
    recipe: str | dict[str, str] | None = None
    files: dict[str, Any] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    stdin: str = ""
    env: dict[str, str] = field(default_factory=dict)
    paddle: bool = False


def load_cases() -> list[Case]:
    return [Case(**entry) for file in sorted(CASES.glob("*.yaml")) for entry in yaml.safe_load(file.read_text("utf-8"))]


ALL = load_cases()
BAD = [case for case in ALL if case.errors]
GOOD = [case for case in ALL if not case.errors]


def prepare(case: Case, folder: Path) -> None:
    if case.recipe is not None:
        write(folder / "recipe.yaml", case.recipe)
    for name, content in case.files.items():
        write(folder / name, content)
    for sentence in case.damage:
        damage(folder, sentence)


def run(case: Case, folder: Path, lines: Callable[[bool], CommandLines]) -> Ended:
    return lines(case.paddle).run(shlex.split(case.run), folder, case.stdin, case.env)


def contents(folder: Path) -> dict[str, str]:
    """Path -> hash of every file below `folder`; folders and links count too."""

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"

    return {str(path.relative_to(folder)): digest(path) for path in folder.rglob("*")}


def blocks(err: str) -> list[str]:
    """The messages on stderr: each begins with `error:`, the remedy follows indented."""
    found: list[str] = []
    for line in err.splitlines():
        if line.startswith("error:"):
            found.append(line)
        elif found and line.startswith("  "):
            found[-1] += f"\n{line}"
    return found


def says(message: str, expected: str) -> bool:
    """Whether the parts of `expected`, which ` ... ` separates, stand in `message` in their order."""
    return re.search(".*".join(re.escape(part) for part in expected.split(" ... ")), message, re.DOTALL) is not None


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_bad_input(case: Case, folder: Path, lines: Callable[[bool], CommandLines]) -> None:
    prepare(case, folder)
    before = contents(folder)
    ended = run(case, folder, lines)
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err and "internal error" not in ended.err, ended.err
    assert ended.out == ""
    assert contents(folder) == before
    assert ended.paddle == case.paddle, "Paddle was imported" if ended.paddle else "Paddle was not needed"
    found = blocks(ended.err)
    assert len(found) == len(case.errors), ended.err
    for message, expected in zip(found, case.errors, strict=True):
        assert says(message, expected), f"expected: {expected}\n{ended.err}"
    assert any("\n  -> " in message for message in found), f"no remedy:\n{ended.err}"


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_control(case: Case, folder: Path, lines: Callable[[bool], CommandLines]) -> None:
    """Inputs that look odd and are right: the cases above cannot pass by failing always."""
    prepare(case, folder)
    ended = run(case, folder, lines)
    assert ended.code == 0, ended.err
    assert not blocks(ended.err)
    missing = [fragment for fragment in case.prints if fragment not in ended.out]
    assert case.prints and not missing, f"not printed: {missing}\n{ended.out}"


def test_the_cases() -> None:
    """There are many, and each names its place and its remedy."""
    names = [case.name for case in ALL]
    assert len(set(names)) == len(names)
    assert len(BAD) >= 55 and len(GOOD) >= 8


@pytest.mark.parametrize("name", ["tabs as indentation", "finished run without --overwrite"])
def test_the_same_from_a_shell(name: str, folder: Path, run_nlpctl: Callable[..., Any]) -> None:
    """The forked processes above behave as `python -m nlpctl` does."""
    (case,) = [case for case in BAD if case.name == name]
    prepare(case, folder)
    before = contents(folder)
    ended = run_nlpctl(*shlex.split(case.run), cwd=folder, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert (ended.returncode, ended.stdout, len(blocks(ended.stderr))) == (2, "", len(case.errors))
    assert contents(folder) == before
