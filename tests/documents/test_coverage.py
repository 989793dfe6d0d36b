"""docs/coverage.md lists every question of docs/faq.md, and the tests that they name exist."""

from __future__ import annotations

import ast
import functools
import re

import pages
import pytest

FAQ = (pages.ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
TABLE = (pages.ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
ROWS = [re.split(r" *(?<!\\)\| *", line)[1:-1] for line in TABLE.splitlines() if re.match(r"\| [QDFGN]\d", line)]
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
STATES = ("proved", "needs a card", "not here", "not about text")


@functools.cache
def functions(path: str) -> set[str]:
    tree = ast.parse((pages.ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing(text: str) -> list[str]:
    """The tests named in `text` that do not exist."""
    named = TEST.findall(text)
    return [
        f"{path}::{name}"
        for path, name in named
        if not (pages.ROOT / path).is_file() or (name and name not in functions(path))
    ]


def questions(page: str) -> list[str]:
    return re.findall(r"^### ([QDFGN][\d.]+) ", page, re.M)


def test_every_question_has_a_row() -> None:
    listed = [row[0].partition(",")[0] for row in ROWS]
    assert list(dict.fromkeys(listed)) == questions(FAQ)
    assert len(questions(FAQ)) > 70


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_tests_that_exist(row: list[str]) -> None:
    """What cannot be proved here says so in the last column."""
    assert len(row) == 5 and row[4].startswith(STATES), row
    assert TEST.search(row[3]), row
    assert not missing(row[3])


@pytest.mark.parametrize("page", ["docs/faq.md", "docs/zh-CN/faq.md"])
def test_every_answer_names_tests_that_exist(page: str) -> None:
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    assert questions(text) == questions(FAQ)
    for part in re.split(r"^### ", text, flags=re.M)[1:]:
        assert TEST.search(part), part.partition("\n")[0]
    assert not missing(text)


def test_every_question_of_the_sources_is_there() -> None:
    """28 of the PaddleNLP FAQ, 6 of the draft, 31 of the framework FAQ (ten in F3), the guide's chapters."""
    counts = {letter: sum(each.startswith(letter) for each in questions(FAQ)) for letter in "QDFGN"}
    assert counts == {"Q": 28, "D": 6, "F": 22, "G": 15, "N": 5}
