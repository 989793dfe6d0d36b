"""Tables as text: aligned in a pipe, and cut to fit the terminal."""

from __future__ import annotations

import sys

import pytest

from nlpctl import console
from nlpctl.report.model import Table
from nlpctl.report.text import fitted, show_table


def test_a_pipe_gets_aligned_text(capsys):
    """Chinese characters are two columns wide."""
    show_table(Table(["label", "f1"], [["好评", 0.5], ["negative", None]], "scores"))
    assert capsys.readouterr().out == "scores\nlabel     f1\n--------  ------\n好评      0.5000\nnegative\n"


def test_texts_are_cut_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["dev.tsv:2", "房间很干净" * 20, "pos", None], ["dev.tsv:31", "short", "neg", "x" * 60]]
    columns = ["row", "text", "expected", "old"]
    table = Table(columns, rows)
    assert fitted(table, range(1, 4)) == table  # not a terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    cut = fitted(table, range(1, 4)).rows
    widths = [max(console.display_width(line[i]) for line in [columns, *cut]) for i in range(4)]
    assert 74 < sum(widths) + 3 * 4 + 1 <= 80
    assert [row[0] for row in cut] == ["dev.tsv:2", "dev.tsv:31"] and cut[1][1] == "short" and cut[0][2] == "pos"
    assert cut[0][1].startswith("房间很干净") and cut[0][1].endswith("…") and cut[1][3].endswith("x…")


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("房间", 4, "房间"), ("房间很", 4, "房…"), ("", 1, ""), ("ab", 1, "…")],
)
def test_a_text_is_cut_by_the_columns_it_takes(text: str, width: int, expected: str) -> None:
    assert console.shortened(text, width) == expected
