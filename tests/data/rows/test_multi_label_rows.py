"""Rows with any number of labels: lists, text, parents, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.multi_label_rows import (
    MultiLabelExample,
    MultiLabelRows,
    ancestor_ids,
    ancestors,
    depth,
    row_labels,
    tidy,
    with_ancestors,
)
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError

LABELS = LabelSet(("food", "food##fruit", "food##fruit##apple", "staff", "room"))


def read(label, **data):
    rows = MultiLabelRows(DataSection(**data))
    return ExampleReader(rows, LABELS).read(Row("f", 7, {"text": "a", "label": label}))


def test_names_of_levels():
    assert ancestors("a") == () and ancestors("a##b##c") == ("a", "a##b")
    assert depth("a") == 1 and depth("a##b##c") == 3
    assert tidy(" a ## b") == "a##b"
    assert with_ancestors(["b##x##y", "a", "b"]) == ("b##x", "b##x##y", "a", "b")
    assert ancestor_ids(("a##b", "c", "a", "a##b##d")) == ((2,), (), (), (2, 0))


@pytest.mark.parametrize("name", ["a##", "##b", "a####b", "##"])
def test_a_blank_level_is_refused(name):
    with pytest.raises(ValueError, match="bad label: .* empty level"):
        tidy(name)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (["staff", "room"], [3, 4]),
        ([], []),
        (None, []),
        ("", []),
        ("  ", []),
        ("room, staff", [3, 4]),
        ("room", [4]),
        (["room", "room"], [4]),
        (["food##fruit##apple"], [0, 1, 2]),
        ("staff,food ## fruit", [0, 1, 3]),
    ],
)
def test_labels_of_a_row_have_their_parents(value, names):
    assert read(value) == MultiLabelExample("a", None, tuple(names))


def test_the_separator_is_the_recipes():
    assert read("room; staff", label_separator=";").labels == (3, 4)
    assert row_labels("[1, 2]", ",") == ["1", "2"] and row_labels("[a], [b]", ",") == ["[a]", "[b]"]
    assert row_labels('{"choices":["a, b","c"]}', ",") == row_labels("['a, b', 'c']", ",") == ["a, b", "c"]
    assert row_labels("[]", ",") == row_labels('{"choices": []}', ",") == []
    assert row_labels(3, ",") == ["3"] and row_labels([1, True], ",") == ["1", "true"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (["rom"], "unknown label: 'rom'; did you mean 'room'?"),
        (["food##friut"], "unknown label: 'food##friut'; did you mean 'food##fruit'?"),
        ("room,,staff", "blank label: 'room,,staff' has nothing between two separators ',', or at an end"),
        (["room", None], "blank label"),
        (["room", ["staff"]], "bad label: expected text or a number, got list"),
        ({"room": 1}, "bad label: an object without 'choices': the keys are 'room'"),
        ("room##", "bad label: 'room##' has an empty level (levels are joined by ##)"),
    ],
)
def test_what_is_wrong_with_a_label_is_told_with_its_place(value, reason):
    assert read(value) == BadRow("f", 7, reason)


def test_a_row_must_have_the_column_and_predict_needs_none():
    rows = MultiLabelRows(DataSection(columns=ColumnsSection(text="t", label="l")))
    assert rows.required(labelled=True) == ("t", "l") and rows.required(labelled=False) == ("t",)
    assert rows.read({"t": "a"}, None) == MultiLabelExample("a", None, None)
    assert rows.plain_column == "t"


def write(folder: Path, *lines: str) -> DataSection:
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return DataSection(train=(str(folder / "train.jsonl"),))


def test_labels_are_collected_with_their_parents(tmp_path):
    data = write(tmp_path, '{"text": "a", "label": ["b##c", "a"]}', '{"text": "b", "label": []}')
    read_data = read_training_data(MultiLabelRows(data))
    assert read_data.labels.names == ("a", "b", "b##c")
    assert [example.labels for example in read_data.train] == [(0, 1, 2), ()]


def test_given_labels_get_their_parents_too(tmp_path):
    data = write(tmp_path, '{"text": "a", "label": ["b##c"]}', '{"text": "b", "label": "z"}')
    data = DataSection(train=data.train, labels=("z", "b##c"))
    assert read_training_data(MultiLabelRows(data)).labels.names == ("z", "b", "b##c")
    with pytest.raises(UserError, match="parent##child"):
        MultiLabelRows(data).prepare_labels(LabelSet(("a", "b##")))


def test_labels_with_a_sign_of_their_own_between_them_are_told(tmp_path, capsys):
    """Of the comma of Chinese, say; another label with such a sign is one."""
    labels = ("room", "staff", "room,staff", "room，staff", "view；sea", "food##fruit、room", "food##fruit")
    data = write(tmp_path, *(f'{{"text": "a", "label": "{label}"}}' for label in labels))
    assert len(read_training_data(MultiLabelRows(data)).labels) == 7
    told = capsys.readouterr().err
    assert "2 labels are made of other ones with a sign between them" in " ".join(told.split())
    assert "'food##fruit、room', 'room，staff'; rows are split at data.label_separator alone, ','" in told


def test_an_unknown_label_is_told_by_file_and_line(tmp_path):
    data = write(tmp_path, '{"text": "a", "label": ["room"]}', '{"text": "b", "label": ["room", "stafff"]}')
    data = DataSection(train=data.train, labels=("room", "staff"))
    with pytest.raises(UserError, match="train.jsonl:2: unknown label: 'stafff'; did you mean 'staff'"):
        read_training_data(MultiLabelRows(data))


@pytest.mark.parametrize("label", ['["a", "b"]', "[]"])
def test_rows_that_are_all_alike_teach_nothing(tmp_path, label):
    data = write(tmp_path, *[f'{{"text": "x", "label": {label}}}'] * 3)
    data = DataSection(train=data.train, labels=("a", "b"))
    with pytest.raises(UserError, match="all 3 training rows have (no label|the labels a, b)"):
        read_training_data(MultiLabelRows(data))
