"""What keeps releases and commits tidy: the changelog, the hooks and what they call."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import nlpctl
from nlpctl import console

ROOT = Path(__file__).resolve().parent.parent


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$", text, flags=re.M)
    assert released[0] == nlpctl.__version__


def test_hooks_need_no_network():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}


def test_paths_in_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:nlpctl|tests|docs|scripts)/[\w./-]*\w\.(?:py|md|sh)", text))
    assert len(named) > 5
    assert not {path for path in named if "NAME" not in path and not (ROOT / path).exists()}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("good\n", None),
        ("", None),
        ("no end", "no newline at the end"),
        ("two\n\n", "blank lines at the end"),
        ("blank \nok\n", "text.md:1: blanks"),
        ("a\n<<<<<<< HEAD\n", "text.md:2: a merge conflict marker"),
    ],
)
def test_text_is_checked(tmp_path, text, told):
    (tmp_path / "text.md").write_text(text)
    script = [sys.executable, ROOT / "scripts/check_text.py", "text.md"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == (told is not None) and (told or "") in done.stdout and not done.stderr


def test_yaml_is_checked(tmp_path):
    (tmp_path / "a.yaml").write_text("a: [1\n")
    script = [sys.executable, ROOT / "scripts/check_text.py", "--yaml", "a.yaml"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "a.yaml" in done.stdout and not done.stderr


def test_scripts_use_what_the_console_has():
    """Scripts are not type-checked, and most run only by hand."""
    missing = {
        f"{file.name}: console.{name}"
        for file in sorted((ROOT / "scripts").rglob("*.py"))
        for name in re.findall(r"\bconsole\.(\w+)", file.read_text(encoding="utf-8"))
        if not hasattr(console, name)
    }
    assert not missing
