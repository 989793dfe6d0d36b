"""documents.py: documents of any content are read as their class says, or refused in one way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from nlpctl.documents import (
    Count,
    DamagedDocument,
    Document,
    Finite,
    MissingDocument,
    Moment,
    convert,
    left_out,
    whole_content,
)
from nlpctl.errors import UserError


@dataclass(frozen=True)
class Part:
    files: tuple[str, ...]
    speeds: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    loss: Finite = 0.0


@dataclass(frozen=True)
class Album(Document):
    """One field of each kind."""

    FORMAT: ClassVar[int | None] = 3
    REPAIR: ClassVar[str] = "make the album again"

    name: str
    parts: tuple[Part, ...] = ()
    kind: Literal["flat", "deep"] | None = None
    pair: tuple[int, str] = (1, "a")
    rows: Count = 0
    whole: bool = True
    begun: Moment | None = left_out()
    sums: Mapping[str, str] = left_out(dict)
    notes: list[str] = field(default_factory=list)
    free: Any = None

    def __post_init__(self) -> None:
        if self.name == "twice":
            raise ValueError("has a name that is taken")


@dataclass(frozen=True)
class Growing(Document):
    state: str
    content: Mapping[str, Any] = whole_content()


def written(folder: Path, content: Any) -> Path:
    file = folder / "album.json"
    file.write_text(content if isinstance(content, str) else json.dumps({"format": 3, **content}), encoding="utf-8")
    return file


def message(file: Path, kind: type[UserError] = DamagedDocument) -> str:
    with pytest.raises(kind) as caught:
        Album.load(file)
    (problem,) = caught.value.problems
    assert problem.where == str(file) and problem.hint
    return problem.message


def test_what_is_saved_is_read_again(tmp_path):
    file, parts = tmp_path / "album.json", (Part(("a", "b"), {8: (1.0, 2.5)}, 0.5), Part(()))
    for album in (Album("x"), Album("é", parts, "deep", (7, "z"), 9, False, "2026-01-02T03:04:05+00:00", {"a": "1"})):
        album.save(file)
        assert Album.load(file) == album and Album.load_if_valid(file) == album


def test_the_format_is_first_and_empty_entries_may_be_left_out(tmp_path):
    Album("x").save(tmp_path / "album.json")
    content = json.loads((tmp_path / "album.json").read_text())
    assert list(content) == ["format", "name", "parts", "kind", "pair", "rows", "whole", "notes", "free"]


def test_entries_of_newer_versions_are_ignored_and_those_of_older_ones_have_defaults(tmp_path):
    assert Album.load(written(tmp_path, {"name": "x", "mood": {"a": [1]}})) == Album("x")


def test_whole_content_is_written_again(tmp_path):
    content = {"state": "running", "new": {"b": 1, "a": None}}
    Growing.from_json(content).save(tmp_path / "a.json")
    read = Growing.load(tmp_path / "a.json")
    assert (read.state, read.content) == ("running", content)
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["state", "new"]


def test_numbers_that_json_does_not_have_are_read(tmp_path):
    part = Album.load(written(tmp_path, {"name": "x", "parts": [{"files": [], "speeds": {"1": [float("inf"), 2]}}]}))
    assert part.parts[0].speeds == {1: (float("inf"), 2.0)} and type(part.parts[0].speeds[1][1]) is float


@pytest.mark.parametrize(
    "content, told",
    [
        ({}, "name is missing"),
        ({"name": 5}, "name is 5, not a text"),
        ({"name": None}, "name is null, not a text"),
        ({"name": "\ud800"}, "name holds half a character"),
        ({"name": "x", "parts": {}}, "parts is a JSON object, not a list"),
        ({"name": "x", "parts": [{"files": []}, 7]}, "parts[1] is 7, not a JSON object"),
        ({"name": "x", "parts": [{"files": ["a", True]}]}, "parts[0].files[1] is true, not a text"),
        ({"name": "x", "parts": [{"files": [], "speeds": {"8": [""]}}]}, 'parts[0].speeds["8"][0] is "", not a number'),
        ({"name": "x", "parts": [{"files": [], "speeds": {"a": 1}}]}, "parts[0].speeds.a is not a whole number"),
        ({"name": "x", "sums": {"a b": 1}}, 'sums["a b"] is 1, not a text'),
        ({"name": "x", "parts": [{"files": [], "loss": float("nan")}]}, "parts[0].loss is nan, not a finite number"),
        ({"name": "x", "parts": [{"files": [], "loss": 10**400}]}, "parts[0].loss int too large to convert to float"),
        ({"name": "x", "kind": "round"}, 'kind is "round", not "flat" or "deep"'),
        ({"name": "x", "pair": [1]}, "pair has 1 entries, not 2"),
        ({"name": "x", "rows": True}, "rows is true, not a whole number"),
        ({"name": "x", "rows": 1.0}, "rows is 1.0, not a whole number"),
        ({"name": "x", "rows": -1}, "rows is -1, not 0 or more"),
        ({"name": "x", "rows": 1 << 80}, "rows is far too large a number"),
        ({"name": "x", "begun": "2026-01-02T03:04:05"}, "begun is a time without a zone"),
        ({"name": "x", "begun": "9999-12-31T23:59:59-14:00"}, "begun is no time"),  # no clock can show it
        ({"name": "x", "sums": {"a": 1}}, "sums.a is 1, not a text"),
        ({"name": ["x" * 9999]}, "name is a list, not a text"),
        ({"name": "x", "kind": "k" * 9999}, f'kind is "{"k" * 40}", not "flat" or "deep"'),
    ],
)  # fmt: skip
def test_a_damaged_document_is_refused_with_the_place(tmp_path, content, told):
    file = written(tmp_path, content)
    assert message(file) == f"is incomplete or damaged ({told})"
    assert Album.load_if_valid(file) is None
    with pytest.raises(DamagedDocument):
        Album.load_if_exists(file)


@pytest.mark.parametrize(
    "content, told",
    [
        ("", "is not valid JSON (Expecting value"),
        ('{"format": 3, "name"', "is not valid JSON (Expecting ':'"),
        ("[" * 200_000, "is not valid JSON (it is nested too deeply)"),
        ('{"format": 3, "free": ' + "[" * 200_000, "is not valid JSON (it is nested too deeply)"),
        ('{"rows": ' + "9" * 9000 + "}", "is not valid JSON (Exceeds the limit"),
        ("[]", "must hold a JSON object"),
        ("{}", 'was not written by nlpctl: it has no "format"'),
        ('{"format": [4]}', "has format a list; this version of nlpctl reads format 3"),
        ('{"format": 4}', "has format 4; this version of nlpctl reads format 3"),
        ('{"format": 3, "name": "twice"}', "has a name that is taken"),
    ],
)
def test_what_is_no_such_document_is_refused(tmp_path, content, told):
    assert message(written(tmp_path, content)).startswith(told)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "album.json"
    file.write_bytes(b'{"format": 3, "name": "\xff"}')
    assert "is not valid JSON ('utf-8' codec" in message(file)


def test_a_folder_a_pipe_and_a_huge_file_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    assert message(tmp_path / "a") == "cannot be read: Is a directory"
    os.mkfifo(tmp_path / "b")
    assert "is a pipe or a device" in message(tmp_path / "b", UserError)
    with (tmp_path / "c").open("wb") as stream:
        stream.truncate(Album.LARGEST + 1)
    assert message(tmp_path / "c") == "is not valid JSON (it has more than 32 MB)"


def test_a_missing_document_is_told_apart(tmp_path):
    file = tmp_path / "album.json"
    with pytest.raises(MissingDocument, match="no album.json in this folder\n  -> make the album again"):
        Album.load(file)
    assert Album.load_if_exists(file) is None and Album.load_if_valid(file) is None


def test_long_lists_and_tables_of_plain_values_are_refused_at_their_place() -> None:
    entries = {f"词{number}": number for number in range(1000)}
    assert convert(entries, Mapping[str, int]) == entries
    for wrong, kind, message in (
        ({**entries, "x": True}, Mapping[str, int], "x is true"),
        ({**entries, "x": 1 << 63}, Mapping[str, int], "x is far too large a number"),
        (["a"] * 999 + ["\ud800"], list[str], r"\[999\] holds half a character"),
        (["\ud83d", "\ude00"], list[str], "holds half a character"),  # the halves are no pair when joined
        ({"x": {"y": ["a", "\ud800"]}}, Mapping[str, Any], r"x.y\[1\] holds half a character"),
        ({"x": {"\ud800": 1}}, Mapping[str, Any], "x holds half a character"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(wrong, kind)
