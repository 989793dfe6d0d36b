"""Files of every format, by split: by their endings, or as data.by_split says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError

ROWS = [("good room", "pos"), ("bad room", "neg")]
LINES = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)


def read(folder: Path, data: dict[str, Any], task: str = "sequence_classification") -> Any:
    (folder / "recipe.yaml").write_text(json.dumps({"task": task, "model": {"from_scratch": {}}, "data": data}))
    recipe = load_recipe(folder / "recipe.yaml")
    return read_training_data(task_rows(recipe.task, recipe.data))


def texts(found: Any) -> list[tuple[str, str]]:
    return [
        [(example.text, found.labels.name(example.label)) for example in split]
        for split in (found.train, found.dev, found.test)
    ]


def test_by_their_endings(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "b.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    (tmp_path / "c.csv").write_text("label,text\n" + "".join(f"{label},{text}\n" for text, label in ROWS))
    (tmp_path / "d.json").write_text(json.dumps([{"text": text, "label": label} for text, label in ROWS]))
    found = read(tmp_path, {"train": ["a.jsonl", "d.json"], "dev": "b.tsv", "test": "c.csv"})
    assert texts(found) == [ROWS + ROWS, ROWS, ROWS]


def test_as_the_recipe_says(tmp_path: Path) -> None:
    """As CoLA has it: the training file without header and with other columns than the test file."""
    (tmp_path / "train.txt").write_text("".join(f"gj04\t{label}\t*\t{text}\n" for text, label in ROWS))
    (tmp_path / "dev.txt").write_text("sentence,judged\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    (tmp_path / "test.jsonl").write_text(LINES)
    by_split = {
        "train": {"format": "tsv", "header": False, "columns": {"text": "3", "label": 1}},
        "dev": {"format": "csv", "columns": {"text": "sentence", "label": "judged"}},
    }
    data = {"train": "train.txt", "dev": "dev.txt", "test": "test.jsonl", "by_split": by_split}
    assert texts(read(tmp_path, data)) == [ROWS, ROWS, ROWS]


def test_taggers_too(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("New\tB-X\nYork\tI-X\n")
    (tmp_path / "dev.data").write_text('{"words": ["York"], "ner": ["B-X"]}\n')
    by_split = {"dev": {"format": "jsonl", "columns": {"tokens": "words", "tags": "ner"}}}
    found = read(tmp_path, {"train": "train.txt", "dev": "dev.data", "by_split": by_split}, "token_classification")
    assert [example.words() for split in (found.train, found.dev) for example in split] == [["New", "York"], ["York"]]


def test_a_column_that_is_missing_is_told_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\na\tx\nb\ty\n")
    data = {"train": "train.tsv", "by_split": {"train": {"columns": {"text": "sentence"}}}}
    with pytest.raises(UserError, match="'sentence'"):
        read(tmp_path, data)


def test_rows_keep_the_names_of_their_file(tmp_path: Path) -> None:
    """So that what is written of them, such as the parts of a split, is read as the file was."""
    (tmp_path / "train.jsonl").write_text('{"sentence": "a", "label": "x"}\n')
    values = {"train": "train.jsonl", "by_split": {"train": {"columns": {"text": "sentence"}}}}
    (tmp_path / "recipe.yaml").write_text(
        json.dumps({"task": "sequence_classification", "model": {"from_scratch": {}}, "data": values})
    )
    recipe = load_recipe(tmp_path / "recipe.yaml")
    (row,) = open_split(task_rows(recipe.task, recipe.data), "train")
    assert row.values == {"sentence": "a", "label": "x", "text": "a"}
