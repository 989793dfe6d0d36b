"""Findings that were written by hand: what no file can hold, and what would hang, is refused with its line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nlpctl.checksums import sha256_of
from nlpctl.datatools.audit import _report
from nlpctl.datatools.corrections import apply_findings, read_findings
from nlpctl.errors import UserError
from nlpctl.tasks.degenerate import degenerate_reason


def write(folder: Path, kind: str = "tsv", edit: Any = None, **values: Any) -> Path:
    """A ticked finding about the second row of train.tsv."""
    data = folder / "train.tsv"
    if not data.exists():
        data.write_text("text\tlabel\na\tpos\nb\tpos\n", encoding="utf-8")
    digest = sha256_of(data) if data.is_file() else ""
    target = {"file": str(data), "sha256": digest, "row": 1, "format": kind, "header": True, "column": "label"}
    finding = {"kind": "wrong label", "where": "train.tsv:3", "text": "b", "given": "pos", "proposed": "neg"}
    file = folder / "findings.jsonl"
    line = finding | values | {"apply": True, "edit": target | (edit or {})}
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return file


def test_a_right_one_is_applied(tmp_path: Path) -> None:
    apply_findings(write(tmp_path), tmp_path / "out")
    assert (tmp_path / "out" / "train.tsv").read_text(encoding="utf-8") == "text\tlabel\na\tpos\nb\tneg\n"


def test_copies_have_columns_of_their_own(tmp_path: Path) -> None:
    """Spans are called "spans" in one file and "entities" in another."""
    targets = []
    for name, key in (("a.jsonl", "spans"), ("b.jsonl", "entities")):
        row = {"text": "Anna lives in Oslo", key: [{"start": 0, "end": 4, "label": "PER"}]}
        (tmp_path / name).write_text(json.dumps(row) + "\n", encoding="utf-8")
        file = tmp_path / name
        targets.append({"file": str(file), "sha256": sha256_of(file), "row": 0, "format": "spans", "header": False})
        targets[-1] |= {"column": key, "word": 0}
    span = {"start": 0, "end": 4, "text": "Anna"}
    change = {"given": [{**span, "label": "PER"}], "proposed": [{**span, "label": "ORG"}], "rows": 2}
    finding = {"kind": "wrong label", "where": "a.jsonl:1", "text": "Anna", "apply": True, **change}
    line = {**finding, "edit": targets[0], "copies": targets[1:]}
    (tmp_path / "findings.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert apply_findings(tmp_path / "findings.jsonl", tmp_path / "out").changed == 2
    for name, key in (("a.jsonl", "spans"), ("b.jsonl", "entities")):
        assert json.loads((tmp_path / "out" / name).read_text(encoding="utf-8"))[key][0]["label"] == "ORG"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"proposed": "\ud800"}, "proposed holds half a character"),
        ({"proposed": "a\0b"}, "proposed holds the character NUL"),
        ({"proposed": ""}, "proposed is blank"),
        ({"proposed": "\u200b "}, "proposed is blank"),
        ({"proposed": float("nan"), "given": 1, "kind_": "jsonl"}, "neither a text nor a number"),
        ({"proposed": ["a", ["b"]], "given": ["pos"], "kind_": "jsonl"}, "neither a text nor a number"),
        ({"proposed": ["a", ""], "given": ["pos"], "kind_": "jsonl"}, "proposed is blank"),
        ({"proposed": ["O", "\ud800"], "given": ["O", "O"], "kind_": "conll", "edit": {"word": 0}}, "half a character"),
        ({"proposed": ["O", "B\2"], "given": ["O", "O"], "kind_": "joined", "edit": {"word": 0}}, "U\\+0002"),
        ({"edit": {"file": "a\0b"}}, "edit.file is no name of a file"),
        ({"edit": {"file": "\ud800"}}, "edit.file holds half a character"),
        ({"edit": {"several": 3}}, "edit.several is 3, not true or false"),
        ({"where": 3}, "where is 3, not a text"),
        ({"edit": {"format": "parquet"}}, "edit.format is none of tsv, "),
        ({"edit": {"row": -1}}, "edit.row is -1, not 0 or more"),
        ({"rows": 0}, "rows is 0, not a number above 0"),
        ({"comment": "mine"}, "there is no key 'comment'"),
        ({"edit": {"word": True}, "given": ["a"], "proposed": ["b"]}, "edit.word is true, not a whole number"),
    ],
)
def test_what_no_file_can_hold(tmp_path: Path, values: dict, message: str) -> None:
    file = write(tmp_path, values.pop("kind_", "tsv"), values.pop("edit", None), **values)
    with pytest.raises(UserError, match=f"findings.jsonl:1: this is no finding .*{message}"):
        read_findings(file)


def test_a_column_of_several_labels_may_become_empty(tmp_path: Path) -> None:
    apply_findings(write(tmp_path, edit={"several": True}, proposed=""), tmp_path / "out")
    assert (tmp_path / "out" / "train.tsv").read_text(encoding="utf-8").endswith("\nb\t\n")


def test_a_file_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.tsv")
    with pytest.raises(UserError, match="train.tsv is a pipe or a device, not a file"):
        apply_findings(write(tmp_path), tmp_path / "out")
    (tmp_path / "train.tsv").unlink()
    (tmp_path / "train.tsv").mkdir()
    with pytest.raises(UserError, match=r"train.tsv: cannot .*read"):
        apply_findings(write(tmp_path), tmp_path / "out")


@pytest.mark.parametrize("damage", [{"labels": {"a": 5}}, {"labels": [1]}, {"rows": "many"}, {"confusion": 3}])
def test_scores_of_folds_that_are_damaged(tmp_path: Path, damage: dict[str, Any]) -> None:
    """What is whole of them counts, and the score that is told must be."""
    file, whole = tmp_path / "scores.json", {"rows": 10, "accuracy": 0.5, "micro_f1": 0.5, "labels": {}}
    file.write_text(json.dumps(whole | damage), encoding="utf-8")
    report = _report(file, "accuracy")
    assert report.keys() == whole.keys() - damage.keys()
    assert degenerate_reason("sequence_classification", report) is None
    file.write_text(json.dumps(whole | {"accuracy": "good"}), encoding="utf-8")
    with pytest.raises(UserError, match="is damaged: it has no accuracy"):
        _report(file, "accuracy")
