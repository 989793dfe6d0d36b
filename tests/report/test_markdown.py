"""Reports as Markdown: what is escaped, what is left out, how tables are ruled."""

from __future__ import annotations

import pytest

from nlpctl.report.html import Html
from nlpctl.report.markdown import code, markdown_page, markdown_table, plain
from nlpctl.report.model import BulletList, Code, Figure, KeyFigures, Number, Report, Section, SideBySide, Table


def test_what_users_named_stays_text() -> None:
    assert plain("a|b *c*\n<d>") == r"a\|b \*c\* \<d\>"
    assert code("a`|b") == "`a'&#124;b`"


def test_a_cell_ends_at_no_bar_of_its_text() -> None:
    table = Table(["a|b", "n"], [["x|y", 12345], [plain("x|y"), None], [code("x|y"), 0.12345]])
    assert markdown_table(table).splitlines() == [
        r"| a\|b | n |",
        "| --- | --- |",
        r"| x\|y | 12,345 |",
        r"| x\|y |  |",
        "| `x&#124;y` | 0.1235 |",
    ]


def test_numbers_stand_to_the_right_where_that_is_wanted() -> None:
    table = Table(["name", "speed"], [["a", Number("12")], ["b", None]])
    assert markdown_table(table, aligned=True).splitlines()[1] == "| --- | ---: |"
    assert markdown_table(table, aligned=True, tight=True).splitlines()[1] == "|---|---:|"


def test_a_page_is_blocks_with_an_empty_line_between() -> None:
    sections = [
        Section("", ["First."]),
        Section("Nothing", []),
        Section("Files", [BulletList(["a", "b"]), Code("x = '```'\n\n", "python")]),
    ]
    assert markdown_page(Report("Of a run", "", sections)) == (
        "# Of a run\n\nFirst.\n\n## Files\n\n- a\n- b\n\n````python\nx = '```'\n````\n"
    )


def test_drawings_are_left_out() -> None:
    drawn = Figure(Html("<svg></svg>"))
    beside = SideBySide([drawn, Table(["a"], [["b"]])])
    sections = [Section("Speed", [KeyFigures({"a": 1}), drawn]), Section("s", [beside])]
    assert markdown_page(Report("t", "", sections)) == "# t\n\n## s\n\n| a |\n| --- |\n| b |\n"


def test_what_only_a_page_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="Html has no form in Markdown"):
        markdown_page(Report("t", "", [Section("s", [Html("<form></form>")])]))
