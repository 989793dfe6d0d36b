"""Tables as text: aligned in a pipe, and cut to fit the terminal."""

from __future__ import annotations

import re
import sys

import pytest

from nlpctl import console
from nlpctl.report.model import Table
from nlpctl.report.text import fitted, show_table


def test_a_pipe_gets_aligned_text(capsys):
    """Chinese characters are two columns wide."""
    show_table(Table(["label", "f1"], [["好评", 0.5], ["negative", None]], "scores"))
    assert capsys.readouterr().out == "scores\nlabel     f1\n--------  ------\n好评      0.5000\nnegative\n"


def test_a_wide_table_stands_on_its_side_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Where that makes it fit, and only there: no word is broken."""
    names = [f"score_{number}" for number in range(8)]
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has 80 columns
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    def first_line(columns: int, table: Table) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        show_table(table)
        plain = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
        return plain.splitlines()[1].strip("┃ ").replace(" ", "").split("┃")

    scores = Table(["split", *names], [["dev", *[0.5] * 8], ["  95 % interval", *["0.4 to 0.6"] * 8]])
    assert first_line(200, scores) == ["split", *names]
    assert first_line(80, scores) == ["split", "dev", "95%interval"]
    long = Table(["text", "label"], [["x" * 90, "good"]])  # does not fit either way
    assert first_line(80, long) == ["text", "label"]


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
