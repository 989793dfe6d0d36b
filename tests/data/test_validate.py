"""What `nlpctl recipe validate` reads of the data files: their columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.validate import column_problems
from nlpctl.errors import Problem

REVIEWS = [
    {"id": str(i), "stars": i % 5, "title": f"title {i}", "review": f"the food was cold again, {i}"} for i in range(9)
]


@pytest.fixture
def problems(tmp_path: Path) -> Callable[..., list[Problem]]:
    """`problems(data, **files)`: those of a recipe with this section data, and these rows (or texts) as its files."""

    def found(data: str, task: str = "sequence_classification", **files: str | list) -> list[Problem]:
        for name, rows in files.items():
            text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / name.replace("_", ".")).write_text(text, encoding="utf-8")
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(f"task: {task}\nmodel: {{from_scratch: {{}}}}\ndata:\n{data}\n", encoding="utf-8")
        return column_problems(load_recipe(recipe))

    return found


def test_a_key_that_is_not_there_is_one_message_with_the_columns_of_text(problems) -> None:
    [found] = problems("  {train: a.jsonl, dev: b.jsonl, columns: {label: stars}}", a_jsonl=REVIEWS, b_jsonl=REVIEWS)
    assert found.where.endswith("recipe.yaml")  # the name is the default
    assert "data.columns.text: no column 'text' in" in found.message
    assert "a.jsonl" in found.message and "b.jsonl" in found.message
    assert "the columns are 'id', 'stars', 'title', 'review'" in found.message
    assert found.hint == "set data.columns.text: review (review, title hold text, the longest first)"


def test_the_place_is_the_line_that_names_the_column(problems) -> None:
    table = "text\tlabel\nabc\t1\n"
    [found] = problems("  train: a.tsv\n  columns:\n    label: lable", a_tsv=table)
    assert found.where.endswith("recipe.yaml:6")
    assert "no column 'lable' in" in found.message and "(did you mean 'label'?)" in found.message
    assert found.hint == "set data.columns.label to one of them"


def test_a_split_with_names_of_its_own(problems) -> None:
    data = "  train: a.tsv\n  dev: b.tsv\n  by_split: {dev: {columns: {text: sentence}}}"
    a, b = "text\tlabel\nabc\t1\n", "satz\tlabel\nabc\t1\n"
    [found] = problems(data, a_tsv=a, b_tsv=b)
    assert "data.by_split.dev.columns.text: no column 'sentence' in" in found.message and "b.tsv" in found.message
    assert not problems(data, a_tsv=a, b_tsv=b.replace("satz", "sentence"))


def test_a_table_separated_otherwise(problems) -> None:
    [found] = problems("  train: a.tsv", a_tsv="text,label\nabc,1\n")
    assert "--set data.format=csv" in found.hint


@pytest.mark.parametrize(
    ("data", "files"),
    [
        (
            "  train: a.jsonl",
            {"a_jsonl": [{"text": "a", "label": 1}, {"text": "b"}]},
        ),  # a bad row is no matter of columns
        ("  {train: a.jsonl, on_bad_row: skip}", {"a_jsonl": [{"other": 1}, {"text": "b", "label": 1}]}),
        ("  {train: a.jsonl, map: somewhere:else}", {"a_jsonl": [{"other": 1}]}),
        ("  {train: a.tsv, header: false, columns: {text: '0', label: '1'}}", {"a_tsv": "abc\t1\n"}),
    ],
)
def test_what_may_be_right_is_not_refused(problems, data: str, files: dict) -> None:
    assert not problems(data, **files)


def test_a_file_without_rows_or_of_an_unknown_format(problems) -> None:
    found = problems("  {train: a.tsv, dev: b.xyz}", a_tsv="text\tlabel\n", b_xyz="abc\n")
    assert [each.message for each in found][0].startswith("the file holds no rows")
    assert "known endings" in found[1].message


def test_other_formats_are_read_by_their_own_rules(problems) -> None:
    assert not problems("  train: a.conll", task="token_classification", a_conll="a B-X\nb O\n\nc O\n")
