"""Labels that files write as numbers, and the names of these."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.datatools.convert import convert
from nlpctl.datatools.split import split_data
from nlpctl.errors import UserError
from nlpctl.experiments.series import Series, SeriesRun, read_rows

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]


def recipe_of(folder: Path, task: str, **data: Any) -> Any:
    (folder / "r.yaml").write_text(json.dumps({"task": task, "model": {"from_scratch": {}}, "data": data}))
    return load_recipe(folder / "r.yaml", purpose="apply")


def test_tags_of_hugging_face_get_their_names(tmp_path: Path) -> None:
    rows = [{"tokens": ["Ann", "Lee", "in", "Rome"], "ner_tags": [1, 2, 0, 3]}, {"tokens": ["no"], "ner_tags": [0]}]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "tags.txt").write_text("\n".join(TAGS) + "\n")
    for names in (TAGS, "tags.txt"):
        given = {"train": "train.jsonl", "columns": {"tags": "ner_tags"}, "numbered_labels": names}
        recipe = recipe_of(tmp_path, "token_classification", **given)
        data = read_training_data(task_rows(recipe.task, recipe.data))
        assert data.labels.names == tuple(TAGS) and [list(each.tags) for each in data.train] == [[1, 2, 0, 3], [0]]
        assert (tmp_path / "tags.txt" in data.files) == (names == "tags.txt")
    convert(recipe, tmp_path / "out.jsonl", "doccano")
    told = [json.loads(line)["label"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert told == [[[0, 7, "PER"], [11, 15, "LOC"]], []]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_labels_of_every_kind_of_file(name: str, tmp_path: Path) -> None:
    rows = [("good", 1), ("bad", 0), ("odd", 2), ("negative", -1), ("named", "pos")]
    line = {".tsv": "{}\t{}\n", ".csv": "{},{}\n"}.get(name[1:])
    texts = [json.dumps({"text": text, "label": label}) + "\n" if line is None else line.format(text, label)
             for text, label in (rows if line is None else [("text", "label"), *rows])]  # fmt: skip
    (tmp_path / name).write_text("".join(texts))
    recipe = recipe_of(tmp_path, "sequence_classification", train=name, numbered_labels=["neg", "pos"])
    found = list(open_split(task_rows(recipe.task, recipe.data), "train"))
    assert [row.reason if isinstance(row, BadRow) else row.values["label"] for row in found] == [
        "pos", "neg", "bad label: 2 is outside 0 to 1 (data.numbered_labels)",
        "bad label: -1 is outside 0 to 1 (data.numbered_labels)", "pos",
    ]  # fmt: skip


def test_labels_of_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def rows():\n    yield {'text': 'a', 'label': 1}\n    yield {'text': 'b', 'label': 0}\n"
    (tmp_path / "own_numbers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    recipe = recipe_of(tmp_path, "sequence_classification", reader="own_numbers:rows", numbered_labels=["neg", "pos"])
    data = read_training_data(task_rows(recipe.task, recipe.data))
    assert data.labels.names == ("neg", "pos") and [row.label for row in data.train] == [1, 0]


def test_lists_of_labels(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": [2, 0]}\n{"text": "y", "label": []}\n')
    recipe = recipe_of(tmp_path, "multi_label_classification", train="a.jsonl", numbered_labels=["c", "b", "a"])
    data = read_training_data(task_rows(recipe.task, recipe.data))
    assert data.labels.names == ("c", "b", "a") and [row.labels for row in data.train] == [(0, 2), ()]


def test_tags_without_names_are_told_how_to_name_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "tags": [0, 1]}\n')
    recipe = recipe_of(tmp_path, "token_classification", train="a.jsonl")
    with pytest.raises(UserError, match="the tags are numbers: '0', '1'.*\n.*data.numbered_labels") as told:
        read_training_data(task_rows(recipe.task, recipe.data))
    assert "a.jsonl:1" in told.value.problems[0].where


def test_the_names_are_checked(tmp_path: Path) -> None:
    for names, message in ((["a", "a"], "repeats"), (["a"], "fewer than two"), ("none.txt", "there is no file")):
        recipe_of(tmp_path, "sequence_classification", train="r.yaml", numbered_labels=names)
        with pytest.raises(UserError, match=f"data.numbered_labels.*{message}"):
            load_recipe(tmp_path / "r.yaml")


NUMBERS = [1, 0, 0, 1, 1, 0]  # called "0", "1", "1", ... : a second naming would swap them


def numbered_file(folder: Path, name: str) -> None:
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate(NUMBERS)]
    if name.endswith(".xlsx"):
        import openpyxl

        book = openpyxl.Workbook()
        for row in [("text", "label"), *(tuple(row.values()) for row in rows)]:
            book.active.append(row)
        book.save(folder / name)
    else:
        (folder / name).write_text(json.dumps(rows))


def labels_by_text(recipe: Any) -> dict[str, str]:
    return {row.values["text"]: row.values["label"] for row in open_split(task_rows(recipe.task, recipe.data), "train")}


RIGHT = {f"text {i}": "10"[label] for i, label in enumerate(NUMBERS)}


@pytest.mark.parametrize("name", ["a.json", "a.xlsx"])
def test_what_is_written_for_the_same_recipe_keeps_its_numbers(name: str, tmp_path: Path) -> None:
    numbered_file(tmp_path, name)
    recipe = recipe_of(tmp_path, "sequence_classification", train=name, numbered_labels=["1", "0"])
    assert labels_by_text(recipe) == RIGHT
    made = split_data(recipe, tmp_path / "parts", {"dev": 2, "test": 0})
    convert(recipe, tmp_path / "out.jsonl", "jsonl")
    files = [str(file) for file in made.files.values()]
    member = SeriesRun("fold-1", 1, (0, 1, 4))
    fold = Series(recipe, read_rows(recipe), tmp_path / "folds", [member], False).member_recipe(member)
    assert labels_by_text(fold) == {f"text {i}": RIGHT[f"text {i}"] for i in member.rows or ()}
    for written in (files, "out.jsonl"):
        again = recipe_of(tmp_path, "sequence_classification", train=written, numbered_labels=["1", "0"])
        assert labels_by_text(again) == RIGHT


@pytest.mark.parametrize("own", [{"reader": "numbered_rows:rows"}, {"train": "a.json", "map": ["numbered_rows:same"]}])
def test_folds_of_rows_that_a_function_gives_keep_their_names(
    own: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered_file(tmp_path, "a.json")
    code = f"""import json\ndef rows():\n    yield from json.load(open({str(tmp_path / "a.json")!r}))
def same(row):\n    return row\n"""
    (tmp_path / "numbered_rows.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numbered_rows", raising=False)
    recipe = recipe_of(tmp_path, "sequence_classification", numbered_labels=["1", "0"], **own)
    member = SeriesRun("fold-1", 1, (0, 1, 4))
    fold = Series(recipe, read_rows(recipe), tmp_path / "folds", [member], False).member_recipe(member)
    assert labels_by_text(fold) == {f"text {i}": RIGHT[f"text {i}"] for i in member.rows or ()}
    made = split_data(recipe, tmp_path / "parts", {"dev": 2, "test": 0})
    again = {"map": own["map"]} if "map" in own else {}
    for part in made.files.values():
        of_part = recipe_of(tmp_path, "sequence_classification", train=str(part), numbered_labels=["1", "0"], **again)
        assert labels_by_text(of_part).items() <= RIGHT.items()


def test_what_is_written_keeps_the_columns_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"a": f"a{i}", "b": f"b{i}", "label": i % 2} for i in range(6)]))
    given: dict[str, Any] = {"columns": {"text": "a", "text_pair": "b"}}
    given["by_split"] = {"train": {"columns": {"text": "b", "text_pair": "a"}}}
    recipe = recipe_of(tmp_path, "sequence_classification", train="a.json", **given)
    made = split_data(recipe, tmp_path / "parts", {"dev": 2, "test": 0})
    assert all(row["a"][0] == "a" and row["b"][0] == "b" for row in json.loads(made.files["train"].read_text()))
    convert(recipe, tmp_path / "out.jsonl", "jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert all(row["a"][0] == "a" and row["b"][0] == "b" for row in lines)
