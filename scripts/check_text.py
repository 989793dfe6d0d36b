"""Checks of text files before a commit; for .pre-commit-config.yaml.

    python scripts/check_text.py FILE...           # final newline, no trailing blanks, no merge conflict markers
    python scripts/check_text.py --yaml FILE...    # valid YAML

Prints FILE:LINE and what is wrong; exits with 1 if anything is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import yaml

MARKS = ("<<<<<<< ", ">>>>>>> ", "||||||| ")


def text_problems(path: Path) -> Iterator[str]:
    """What is wrong with a text file, with the line."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"{path}: not UTF-8: {error}"
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip(" \t\r"):
            yield f"{path}:{number}: blanks or a carriage return at the end of the line"
        if line.startswith(MARKS):
            yield f"{path}:{number}: a merge conflict marker"
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"
    if text.endswith("\n\n"):
        yield f"{path}: blank lines at the end"


def yaml_problems(path: Path) -> Iterator[str]:
    """Why a file cannot be read as YAML."""
    try:
        yaml.compose(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        yield f"{path}: {error}"


def main() -> int:
    """0 where nothing is wrong, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yaml", action="store_true")
    parser.add_argument("files", nargs="*", type=Path)
    wanted = parser.parse_args()
    check = yaml_problems if wanted.yaml else text_problems
    problems = [problem for path in wanted.files for problem in check(path)]
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
