"""data.map and data.filter: functions of the user's own over rows."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.config.user_code import code_sums
from nlpctl.data.open_split import open_split
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError

CODE = """
    import numpy as np

    def joined(row):
        return {"text": row["title"] + " " + row["body"], "label": row["stars"]}

    def upper(row):
        row["text"] = row["text"].upper()
        return row

    def three_stars_out(row):
        return row["label"] != "3"

    def by_numpy(row):
        return np.asarray(row["label"] != "3")[()]

    def fails(row):
        return {"text": row["title"], "label": row["starz"]}

    def nothing(row):
        pass

    def never(row):
        return False

    def number(row):
        return 1

    def two(row, index):
        return row

    def text_only(row):
        return {"text": row["title"]}
"""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TextRows over a file of three rows, with functions of CODE as data.map and data.filter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "row_code", raising=False)
    (tmp_path / "row_code.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "a.tsv").write_text("title\tbody\tstars\ngood\tbed\t5\nso\tso\t3\nbad\tview\t1\n")

    def make(map: tuple[str, ...] = (), filter: tuple[str, ...] = (), **more) -> TextRows:
        named = {"map": tuple(f"row_code:{name}" for name in map), "filter": tuple(f"row_code:{f}" for f in filter)}
        return TextRows(DataSection(**{"train": (str(tmp_path / "a.tsv"),), **named, **more}))

    return make


def test_maps_in_order_then_filters(rows, tmp_path):
    source = open_split(rows(("joined", "upper"), ("three_stars_out",)), "train")
    found = [(row.line, row.values) for row in source]
    assert found == [(2, {"text": "GOOD BED", "label": "5"}), (4, {"text": "BAD VIEW", "label": "1"})]
    assert [(row.line, row.values) for row in source] == found
    assert source.files == (tmp_path / "a.tsv",) and source.description == str(tmp_path / "a.tsv")


def test_training_data_are_those_that_are_left(rows):
    data = read_training_data(rows(("joined",), ("by_numpy",)))
    assert data.labels.names == ("1", "5") and [example.text for example in data.train] == ["good bed", "bad view"]


def test_a_filter_alone_leaves_the_columns_to_the_task(rows):
    given = rows(filter=("three_stars_out",), columns=ColumnsSection(text="title", label="stars"))
    found = list(open_split(given, "train"))
    assert [row.reason.split(":")[0] for row in found] == ["data.filter failed"] * 3  # it reads row["label"]
    assert "KeyError: 'label'" in found[0].reason and "row_code.py:" in found[0].reason


def test_a_function_that_fails_makes_a_bad_row(rows, tmp_path):
    given = rows(("fails",))
    first = next(iter(open_split(given, "train")))
    assert isinstance(first, BadRow) and first.where == f"{tmp_path}/a.tsv:2" and first.kind == "data.map failed"
    with pytest.raises(UserError, match=r"row_code:fails: KeyError: 'starz' \(.*row_code.py:\d+\)"):
        read_training_data(given)


def test_what_the_task_needs_must_be_there_afterwards(rows):
    with pytest.raises(UserError, match="missing key 'label': the keys are 'text'"):
        read_training_data(rows(("text_only",)))


@pytest.mark.parametrize(
    ("map", "filter", "key", "told"),
    [
        (("nothing",), (), "data.map", "row_code:nothing returned NoneType at .*a.tsv:2"),
        (("joined",), ("number",), "data.filter", "row_code:number returned int at .*a.tsv:2"),
        (("joined",), ("never",), "data.filter", "all 3 rows of .* are left out"),
        (("two",), (), "data.map", r"called as two\(row\), but is defined as two\(row, index\)"),
        (("joind",), (), "data.map", "has no 'joind' .did you mean 'joined'"),
    ],
)
def test_mistakes_name_the_key(rows, map, filter, key, told):
    with pytest.raises(UserError, match=told) as caught:
        list(open_split(rows(map, filter), "train"))
    assert caught.value.problems[0].where == key and caught.value.problems[0].hint


def test_sums_follow_the_source(rows, tmp_path, monkeypatch):
    from nlpctl.config.load import load_recipe

    rows()
    (tmp_path / "r.yaml").write_text("task: sequence_classification\ndata: {train: a.tsv, map: row_code:joined}\n")
    recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
    before = code_sums(recipe)
    assert list(before) == ["data.map"] and len(before["data.map"]["row_code:joined"]) == 64
    assert "row_code" not in sys.modules  # found, not run
    with (tmp_path / "row_code.py").open("a") as file:
        file.write("# changed\n")
    assert code_sums(recipe) != before


@pytest.mark.parametrize("label, cells", [("label", [{"0": "came;saw"}]), ("1", [{"0": "came", "1": "saw"}])])
def test_the_columns_of_the_recipe_tell_what_separates_the_cells(tmp_path, label, cells):
    """Though data.map may make others, and none of them is required."""
    (tmp_path / "train.csv").write_text("came;saw\n")
    columns = ColumnsSection(text="0", label=label)
    data = DataSection(train=(str(tmp_path / "train.csv"),), columns=columns, header=False, map=("row_code:upper",))
    assert [row.values for row in open_split(TextRows(data), "train").source] == cells
