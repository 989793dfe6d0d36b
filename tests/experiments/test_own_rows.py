"""What commands that write or name rows make of data.map and data.filter."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import resolve_labels
from nlpctl.datatools.audit import _Auditor, _targets
from nlpctl.datatools.corrections import Edit, corrected
from nlpctl.errors import UserError
from nlpctl.experiments.held_out import HeldOutProbabilities, read_lines
from nlpctl.experiments.series import Series, SeriesRun, read_rows
from tests.datatools.test_inspect import CASES, conll, jsonl, recipe_for, tagged

CODE = """
NAMES = {"pos": "good", "neg": "bad"}

def same(row):
    return row

def named(row):
    return {**row, "label": NAMES.get(row["label"], row["label"])}

def shorter(row):
    return {**row, "text": row["text"][4:]}

def spans(row):
    tags = ["O"] * len(row["text"])
    for start, end, kind in row["label"]:
        tags[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return {**row, "tokens": list(row["text"]), "tags": tags}

def in_place(row):
    row["tags"][0] = "B-LOC"
    return row

def wanted(row):
    return "noisy" not in str(row)
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The names of data.map and data.filter as settings."""
    (tmp_path / "own_rows.py").write_text(CODE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def make(map: str | None = None, filter: str | None = None) -> list[tuple[str, str]]:
        given = (("data.map", map), ("data.filter", filter))
        return [(key, f"own_rows:{name}") for key, name in given if name is not None]

    return make


def examples_of(recipe: Any, split: str) -> list[Any]:
    rows = task_rows(recipe.task, recipe.data)
    reader = ExampleReader(rows, resolve_labels(rows, open_split(rows, "train")))
    return [reader.read(row) for row in open_split(rows, split)]


def assert_a_run_reads_what_the_recipe_reads(recipe: Any, folder: Path) -> None:
    rows = read_rows(recipe)
    every = SeriesRun("fold-1", 1, tuple(range(len(rows))))
    own = Series(recipe, rows, folder, [every], False).member_recipe(every)
    assert not own.data.map and not own.data.filter and own.data.train != recipe.data.train
    for split in ("train", "dev"):
        expected, found = examples_of(recipe, split), examples_of(own, split)
        assert expected and [str(each) for each in found] == [str(each) for each in expected]


@pytest.mark.parametrize("names", [("same", None), (None, "wanted"), ("same", "wanted")])
@pytest.mark.parametrize("case", CASES)
def test_a_fold_reads_the_rows_of_one_run(case: str, names: Any, tmp_path: Path, functions: Any) -> None:
    recipe = recipe_for(case, tmp_path, *functions(*names))
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, dev=recipe.data.train))
    assert_a_run_reads_what_the_recipe_reads(recipe, tmp_path / "folds")


def test_a_fold_does_not_take_mapped_rows_for_doccanos(tmp_path: Path, functions: Any) -> None:
    """The recipe says that the file is plain jsonl, whose spans its own function reads."""
    rows = [{"text": "Anna lives in Rome", "label": [[0, 4, "PER"], [14, 18, "LOC"]]}] * 3
    (tmp_path / "all.jsonl").write_text(jsonl(rows), encoding="utf-8")
    (tmp_path / "r.yaml").write_text(
        "task: token_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\n"
        "data: {train: all.jsonl, dev: all.jsonl, format: jsonl, map: own_rows:spans}\n",
    )
    recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
    assert_a_run_reads_what_the_recipe_reads(recipe, tmp_path / "folds")


@pytest.mark.parametrize("names", [(None, "wanted"), ("shorter", "wanted")])
@pytest.mark.parametrize("case", ["tsv", "csv with quotes", "lines of Windows", "json"])
def test_labels_that_a_map_leaves_alone_are_corrected(case: str, names: Any, tmp_path: Path, functions: Any) -> None:
    recipe = recipe_for(case, tmp_path, *functions(*names))
    rows = read_rows(recipe)
    assert len(rows) == 54
    file = Path(recipe.data.train[0])
    chosen, target = rows.read.unmapped[1], list(_targets(rows, False))[1]  # the second row of the file is left out
    edit = Edit(target.column, chosen.values["label"], "other")
    content = corrected(file, target.sha256, target.format, target.header, {target.row: [edit]})
    file.write_bytes(content)
    plain = list(open_split(task_rows(recipe.task, dataclasses.replace(recipe.data, map=(), filter=())), "train"))
    found = [row for row in plain if row.values["label"] == "other"]
    assert len(plain) == 60 and [row.values["text"] for row in found] == [chosen.values["text"]]


def test_bad_rows_of_a_json_document_on_one_line_count(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "x"}, {"text": "b"}, {"text": "c", "label": "x"}, {"text": "d", "label": "x"}]
    (tmp_path / "all.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "r.yaml").write_text(
        "task: sequence_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\n"
        "data: {train: all.json, labels: [x, y], on_bad_row: skip}\n",
    )
    read = read_rows(load_recipe(tmp_path / "r.yaml", purpose="apply"))
    assert [target.row for target in _targets(read, False)] == [0, 2, 3]


def test_contradictions_on_one_line_are_those_rows(tmp_path: Path) -> None:
    texts = ["a dark room", "clean beds here", "clean beds here", "noisy streets all night"]
    rows = [{"text": text, "label": "y" if i == 2 else "x"} for i, text in enumerate(texts)]
    (tmp_path / "all.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "r.yaml").write_text(
        "task: sequence_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\n"
        "data: {train: all.json, labels: [x, y]}\n",
    )
    recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
    read = read_rows(recipe)
    shares = HeldOutProbabilities(np.array([[0.9, 0.1]] * 4, np.float32), np.arange(1, 5))
    lines = [{"where": f"{tmp_path}/all.json:1"} for _ in rows]
    found = [finding for _, finding in _Auditor(recipe, read, shares, lines)._conflicts()]
    assert [(each.edit.row, each.text, each.given, each.proposed) for each in found] == [(2, texts[2], "y", "x")]


def test_labels_that_a_map_makes_are_not(tmp_path: Path, functions: Any) -> None:
    """They are not called in the file what the audit calls them."""
    assert set(_targets(read_rows(recipe_for("tsv", tmp_path, *functions("named"))), False)) == {None}


def test_a_map_that_changes_lists_in_place_does_not_change_the_row_before(tmp_path: Path, functions: Any) -> None:
    rows = read_rows(recipe_for("tagged jsonl", tmp_path, *functions("in_place")))
    assert {row.values["tags"][0] for row in rows.read.rows} == {"B-LOC"}
    assert [dict(row.values) for row in rows.read.unmapped] == [tagged(i) for i in range(60)]
    assert set(_targets(rows, False)) == {None}


def test_a_filter_alone_keeps_the_lines_of_words(tmp_path: Path, functions: Any) -> None:
    recipe = recipe_for("conll", tmp_path, *functions(None, "wanted"))
    row = read_rows(recipe).read.rows[1]
    assert row.line_of(2) == row.line + 2
    lines = "".join(conll(tagged(i)) for i in range(60)).split("\n")
    assert lines[row.line_of(2) - 1].split("\t")[0] == row.values["tokens"][2]
    assert json.dumps(row.values["tokens"]) != json.dumps(tagged(1)["tokens"])  # it is left out


def test_predictions_without_end_do_not_take_all_memory(tmp_path):
    file = tmp_path / "predictions.jsonl"
    file.write_text('{"fold": 0}\n')
    with file.open("r+b") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UserError, match="predictions.jsonl:2: the line is longer than 16 MiB\n  -> train the folds"):
        read_lines(file)
