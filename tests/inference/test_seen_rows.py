"""Rows on which members of an ensemble were trained."""

from __future__ import annotations

import json

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.inference.seen_rows import warn_of_seen_rows

ANNOTATED = [{"result": [{"from_name": "x", "value": {"choices": ["a"]}}]}]


@pytest.fixture
def member(tmp_path):
    """`member(train=...)`: the recipe of a run, in a folder of its own."""

    def make(**data):
        folder = tmp_path / "member"
        folder.mkdir()
        content = {"task": "sequence_classification", "model": {"from_scratch": {}}, "data": data}
        (folder / "recipe.yaml").write_text(json.dumps(content))
        (folder / "manifest.json").write_text('{"state": "finished"}')
        return folder

    return make


@pytest.fixture
def scored(tmp_path):
    """Rows and dev examples of an ensemble."""
    (tmp_path / "dev.tsv").write_text("text\tlabel\none\ta\ntwo\tb\n")
    recipe = {"task": "sequence_classification", "model": {"from_scratch": {}}}
    recipe |= {"data": {"train": str(tmp_path / "dev.tsv")}, "training": {"output_dir": "y"}}
    rows = task_rows("sequence_classification", load_recipe(recipe).data)
    return rows, {"dev": read_training_data(rows).train}


def test_rows_without_a_label_were_not_trained_on(member, scored, tmp_path, capsys):
    tasks = [{"data": {"text": "one"}, "annotations": []}, {"data": {"text": "three"}, "annotations": ANNOTATED}]
    (tmp_path / "half.json").write_text(json.dumps(tasks))
    run = member(train=[str(tmp_path / "half.json")])
    warn_of_seen_rows([str(run)], *scored)
    assert "flatters" not in capsys.readouterr().err
    tasks[0]["annotations"] = ANNOTATED
    (tmp_path / "half.json").write_text(json.dumps(tasks))
    warn_of_seen_rows([str(run)], *scored)
    assert "trained on 1 of these 2 rows" in capsys.readouterr().err


def test_of_a_data_set_it_is_not_known(member, scored, capsys):
    warn_of_seen_rows([str(member(dataset="chnsenticorp"))], *scored)
    told = capsys.readouterr().err
    assert "is not known: its rows were not read from files" in told and "flatters" not in told
