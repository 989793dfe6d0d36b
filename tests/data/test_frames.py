"""DataFrames in place of the files of a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nlpctl
from nlpctl.data.frames import frames_of, with_files, write_frame
from nlpctl.errors import UserError


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"text": ["一", None], 0: [1, 2], "when": pd.to_datetime(["2024-01-01", None])}, index=[7, 9])


def test_a_frame_becomes_a_file_named_by_its_rows(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = write_frame(frame, tmp_path, "train")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows == [{"text": "一", "0": 1, "when": "2024-01-01 00:00:00"}, {"text": None, "0": 2, "when": None}]
    written = path.stat().st_mtime_ns
    assert write_frame(frame.copy(), tmp_path, "train") == path and path.stat().st_mtime_ns == written
    assert write_frame(frame[:1], tmp_path, "train") != path


def test_cells_that_hold_lists(tmp_path: Path) -> None:
    """As pandas gives them for a list column of Parquet; a set has no order."""
    cells = [np.array(["x", "y"]), {"y", "x"}, ["x"]]
    frame = pd.DataFrame({"text": ["a", "b", "\ud83d"], "label": cells, "n": np.array([1, 2, 3])}, dtype=object)
    rows = [json.loads(line) for line in write_frame(frame, tmp_path, "train").read_text().splitlines()]
    assert [row["label"] for row in rows] == [["x", "y"], ["x", "y"], ["x"]]
    assert rows[2] == {"text": "\ud83d", "label": ["x"], "n": 3}


def test_frames_are_found_and_replaced(frame: pd.DataFrame) -> None:
    recipe = {"task": "x", "data": {"train": frame, "dev": "dev.tsv"}}
    keys = {"data.test": frame, "data.max_seq_length": 8}
    found = frames_of(recipe, keys)
    assert set(found) == {"train", "test"}
    told, set_keys = with_files(recipe, keys, {"train": Path("a.jsonl"), "test": None})
    assert told == {"task": "x", "data": {"train": Path("a.jsonl"), "dev": "dev.tsv"}}
    assert set_keys == {"data.test": None, "data.max_seq_length": 8}
    assert recipe["data"]["train"] is frame
    assert frames_of("quickstart", {}) == frames_of({"data": None}, {"data.train": "a.tsv"}) == {}
    with pytest.raises(UserError, match="data.dev: a Series has no columns"):
        frames_of("quickstart", {"data.dev": frame["text"]})


def test_no_file_is_written_beside_a_folder_that_training_refuses(frame: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    recipe = {"task": "sequence_classification", "data": {"train": frame}, "model": {"from_scratch": {}}}
    with pytest.raises(UserError, match="not a run directory"):
        nlpctl.train(recipe, output_dir=str(tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
