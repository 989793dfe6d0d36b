"""The options and keys of messages, as flags and as arguments of Python."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nlpctl.cli.app import COMMANDS, _load
from nlpctl.cli.field_flags import field_flags
from nlpctl.config.keys import all_keys
from nlpctl.errors import Problem, UserError
from nlpctl.spelling import FLAGS, PYTHON, VARIABLE, option, settings, spelled

ROOT = Path(__file__).resolve().parent.parent

SPELLINGS = [  # the mark-up, in the shell, in Python
    ("@[overwrite]", "--overwrite", "overwrite"),
    ("@[overwrite=true]", "--overwrite", "overwrite=True"),
    ("@[max-rows]", "--max-rows", "max_rows"),
    ("@[budget=2]", "--budget 2", "budget=2"),
    ("@[output=FOLDER]", "-o FOLDER", 'output="FOLDER"'),
    ("@[engine=paddle]", "--engine paddle", 'engine="paddle"'),
    ("@[formats=onnx]", "--format onnx", 'formats=["onnx"]'),
    ("@[runtime.device=cpu]", "--device cpu", 'device="cpu"'),
    ("@[runtime.devices=0,1]", "--devices 0,1", "devices=[0, 1]"),
    ("@[runtime.cache_dir]", "--cache-dir", "cache_dir"),
    ("@[runtime.trust_edits=true]", "--trust-edits", "trust_edits=True"),
    ("@[data.labels=neg,pos]", "--labels neg,pos", 'labels=["neg", "pos"]'),
    ("@[training.learning_rate=3e-5]", "--learning_rate 3e-5", "learning_rate=3e-5"),
    ("@[training.max_steps=N]", "--max_steps N", "max_steps=N"),
    ("@[data.dev=FILE]", "--set data.dev=FILE", 'set={"data.dev": "FILE"}'),
    ("@[data.header=false]", "--set data.header=false", 'set={"data.header": False}'),
    ("@[search.space.a=[1, 2]]", "--set 'search.space.a=[1, 2]'", 'set={"search.space.a": [1, 2]}'),
    ("@[set=task=...]", "--set task=...", 'set={"task": ...}'),
    ("@[set=training.seed=1]", "--set training.seed=1", 'set={"training.seed": 1}'),
]


@pytest.mark.parametrize(("text", "shell", "python"), SPELLINGS)
def test_both_spellings(text: str, shell: str, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spelled(f"use {text}: it helps") == f"use {shell}: it helps"
    monkeypatch.setenv(VARIABLE, PYTHON)
    assert spelled(f"use {text}: it helps") == f"use {python}: it helps"


@pytest.mark.parametrize("text", ["[[a]]", "[a@[B]", "@[]", "mail@[1.2.3.4]", "@[a-z0-9]", "@{name}", "--overwrite"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert spelled(text) == text


@pytest.mark.parametrize("text", ["@[data=" * 50_000, "@[output=" + "[" * 500_000, "@[data." + "a" * 500_000])
def test_a_long_text_of_a_stranger_takes_no_time(text: str) -> None:
    """Seconds of a regular expression that goes back and forth would be hours here."""
    assert spelled(text) == text


def test_several_keys_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"data.map": "a:b,a:c", "training.criterion": "it's:f"}
    assert settings(values) == """--set data.map=a:b,a:c --set 'training.criterion=it'"'"'s:f'"""
    monkeypatch.setenv(VARIABLE, PYTHON)
    assert settings(values) == """set={"data.map": ["a:b", "a:c"], "training.criterion": "it's:f"}"""


def test_a_problem_is_spelled_when_it_is_made() -> None:
    problem = Problem("@[resume=true] is not for this", "@[resume]", "use @[overwrite=true]")
    assert vars(problem) == {"message": "--resume is not for this", "where": "--resume", "hint": "use --overwrite"}
    assert str(UserError("wrong", "@[port]", "use @[port=0]")) == "--port: wrong\n  -> use --port 0"


def marks() -> dict[str, str]:
    """Each name that a text of nlpctl/ marks, with a place."""
    found = {}
    for path in sorted((ROOT / "nlpctl").rglob("*.py")):
        if path != ROOT / "nlpctl" / "spelling.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names = re.findall(r"@\[([a-z][\w.-]*)[=\]]", node.value)
                    found |= {name: f"{path.relative_to(ROOT)}:{node.lineno}" for name in names}
    return found


def options() -> set[str]:
    """Every option of every command, as it is typed."""
    found = set()
    waiting = [_load(command) for command in COMMANDS]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        found |= {each for parameter in command.params for each in getattr(parameter, "opts", ())}
    return found | {f"--{name}" for name in field_flags()}


def test_what_messages_name_exists() -> None:
    """Each marked name is an option of a command, or a key of the recipe."""
    known, keys, marked = options(), {*all_keys(), "set"}, marks()
    assert {"-o", "--overwrite", "--tls-key", "--learning_rate"} <= known
    unknown = {
        name: place
        for name, place in marked.items()
        if name not in keys and not name.startswith("data.columns.") and option(name) not in known
    }
    assert len(marked) > 60
    assert not unknown
    left = {name: place for name, place in marked.items() if "@[" in spelled(f"@[{name}]")}
    assert not left, "add them to spelling._PARAMETERS"
    assert not [key for key in all_keys() if "@[" in spelled(f"@[{key}]")], "add its section to spelling._SECTIONS"


def test_a_process_keeps_the_spelling_of_the_one_that_started_it(tmp_path: Path) -> None:
    code = "from nlpctl.cli.app import main; main(['recipe', 'show']); "
    code += "from nlpctl.spelling import spelled; print(spelled('@[max-rows]'))"
    shell = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"PYTHONPATH": str(ROOT)}
    inherits = ({}, "--max-rows"), ({VARIABLE: FLAGS}, "--max-rows"), ({VARIABLE: PYTHON}, "max_rows")
    for inherited, expected in inherits:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=shell | inherited, cwd=tmp_path)
        assert done.stdout.splitlines()[-1] == expected, done.stderr
