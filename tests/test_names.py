"""Lists of names in messages."""

from __future__ import annotations

import pytest

from nlpctl.names import and_more, counted, nearest_file, whole_number


@pytest.mark.parametrize(
    ("count", "shown"), [(0, ""), (1, "n0"), (2, "n0, n1"), (3, "n0, n1 and 1 more"), (1234, "n0, n1 and 1,232 more")]
)
def test_a_long_list_is_cut(count, shown):
    assert and_more([f"n{number}" for number in range(count)], 2) == shown


def test_one_has_no_plural():
    assert [counted(number, "rows") for number in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert [counted(1, unit) for unit in ("processes", "batches", "queries", "examples", "bad rows")] == [
        "1 process", "1 batch", "1 query", "1 example", "1 bad row"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "files", "near"),
    [
        ("nofile.yaml", ["o.yaml", "reviews.yaml"], None),  # the ending alone is alike
        ("quickstrat.yaml", ["o.yaml", "quickstart.yaml"], "quickstart.yaml"),
        ("train.txt", ["train.jsonl", "train.tsv", "dev.txt"], "train.tsv"),
        ("t", ["tm", "at.tsv"], None),
        ("a.tsv", ["ab.tsv", "a.jsonl"], "a.jsonl"),
    ],
)
def test_files_are_alike_by_more_than_their_endings(name, files, near):
    assert nearest_file(name, files) == near


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("000", 0), ("07", 7), (" 10 ", 10), ("0" * 5000 + "9", 9), ("11", None), ("9" * 5000, None), ("", None),
     (" ", None), ("-1", None), ("+1", None), ("1.0", None), ("1_0", None), ("x0", None), ("\u0663", None),
     ("\u00b2", None)],
)  # fmt: skip
def test_a_number_of_thousands_of_digits_is_none_that_is_meant(text, number):
    assert whole_number(text, 10) == number
