"""Files and reader functions as sources of rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nlpctl.config.schema import DataSection, SplitsSection
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.errors import UserError


@pytest.fixture
def reader_file(tmp_path: Path, monkeypatch):
    """Write a module beside the recipe, in the current directory; every test has its own module name."""
    monkeypatch.chdir(tmp_path)
    written = []

    def write(name: str, body: str) -> None:
        (tmp_path / f"{name}.py").write_text(body)
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def test_files_one_after_the_other_and_again(tmp_path: Path):
    for name in ("a.tsv", "b.jsonl"):
        content = "text\tlabel\nx\t1\n" if name == "a.tsv" else '{"text": "y", "label": 2}\n'
        (tmp_path / name).write_text(content)
    files = (tmp_path / "a.tsv", tmp_path / "b.jsonl")
    source = open_split(TextRows(DataSection(train=tuple(map(str, files)))), "train")
    expected = [Row(str(files[0]), 2, {"text": "x", "label": "1"}), Row(str(files[1]), 1, {"text": "y", "label": 2})]
    assert list(source) == expected and list(source) == expected
    assert source.files == files and source.description == f"{files[0]}, {files[1]}" and source.label_names is None


def test_labels_may_be_absent_where_not_wanted(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("text\nx\n")
    data = DataSection(test=(str(tmp_path / "a.tsv"),))
    assert [row.values for row in open_split(TextRows(data), "test", labelled=False)] == [{"text": "x"}]
    with pytest.raises(UserError, match="no column 'label'"):
        list(open_split(TextRows(data), "test"))


def test_missing_files_are_all_told(tmp_path: Path):
    (tmp_path / "train.tsv").write_text("text\tlabel\nx\t1\n")
    wrong = (str(tmp_path / "trian.tsv"), str(tmp_path / "none" / "a.tsv"), str(tmp_path))
    with pytest.raises(UserError) as caught:
        open_split(TextRows(DataSection(train=wrong)), "train")
    first, second, third = map(str, caught.value.problems)
    assert "data.train" in first and f"did you mean {tmp_path}/train.tsv?" in first
    assert f"there is no folder {tmp_path}/none" in second and "is a folder, not a file" in third


def test_format_is_checked_on_opening(tmp_path: Path):
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(UserError, match="known endings"):
        open_split(TextRows(DataSection(train=(str(tmp_path / "a.txt"),))), "train")


def test_which_splits_there_are():
    files = DataSection(train=("a.tsv",), dev=("b.tsv",))
    assert [has_split(files, split) for split in ("train", "dev", "test")] == [True, True, False]
    named = DataSection(dataset="chnsenticorp", splits=SplitsSection(test=None))
    assert [has_split(named, split) for split in ("train", "dev", "test")] == [True, True, False]
    bare = DataSection(reader="m:f")
    assert [has_split(bare, split) for split in ("train", "dev", "test")] == [True, False, False]
    with_files = DataSection(reader="m:f", dev=("b.x",))
    assert [has_split(with_files, split) for split in ("train", "dev", "test")] == [False, True, False]
    with pytest.raises(UserError, match="names no test data"):
        open_split(TextRows(files), "test")


def test_reader_with_files(reader_file):
    body = "def rows(path):\n    for c in open(path).read():\n        yield {'text': c, 'label': 1}\n"
    reader_file("my_reader_a", body)
    Path("one.x").write_text("ab")
    Path("two.x").write_text("c")
    before = list(sys.path)
    source = open_split(TextRows(DataSection(reader="my_reader_a:rows", train=("one.x", "two.x"))), "train")
    rows = list(source)
    assert [(row.source, row.line, row.values["text"]) for row in rows] == [
        ("my_reader_a:rows(one.x)", 1, "a"), ("my_reader_a:rows(one.x)", 2, "b"), ("my_reader_a:rows(two.x)", 1, "c"),
    ]  # fmt: skip
    assert list(source) == rows and source.files == (Path("one.x"), Path("two.x"))
    assert sys.path == before


def test_reader_without_files_and_missing_key(reader_file):
    reader_file("my_reader_b", "def rows():\n    return [{'text': 'a', 'label': 1}, {'text': 'b'}]\n")
    first, second = open_split(TextRows(DataSection(reader="my_reader_b:rows")), "train")
    assert first == Row("my_reader_b:rows()", 1, {"text": "a", "label": 1})
    assert isinstance(second, BadRow) and second.line == 2 and second.kind == "missing key 'label'"


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("my_reader_c", "", ["data.reader", "does not name a function", "package.module:function"]),
        ("my_reader_d:", "", ["does not name a function"]),
        ("no_such_module_at_all:rows", "", ["cannot import 'no_such_module_at_all'", "current directory"]),
        ("my_reader_e:rows", "import no_such_thing\n", ["cannot import", "no_such_thing", "my_reader_e.py:1"]),
        ("my_reader_f:rows", "def rows(:\n", ["cannot import", "SyntaxError"]),
        ("my_reader_g:rows", "def row(): pass\n", ["has no 'rows'", "did you mean 'row'"]),
        ("my_reader_h:rows", "rows = 3\n", ["is not a function"]),
        ("my_reader_i:rows", "def rows(path): pass\n", ["failed when called", "TypeError", "path"]),
        ("my_reader_j:rows", "def rows(): pass\n", ["failed when called", "'NoneType' object is not iterable"]),
        ("my_reader_k:rows", "def rows():\n    yield {'text': 'a', 'label': 1}\n    yield 'b'\n",
         ["my_reader_k:rows()", "row 2 is of type str, not a dict"]),
        ("my_reader_l:rows", "def rows():\n    yield {'text': 'a', 'label': 1}\n    yield 1 / 0\n",
         ["failed at row 2: ZeroDivisionError: division by zero", "my_reader_l.py:3"]),
        ("my_reader_m:rows", "def rows():\n    return []\n", ["yields no rows"]),
    ],
)  # fmt: skip
def test_reader_failures(reader_file, name, body, says):
    reader_file(name.split(":")[0], body) if body else None
    with pytest.raises(UserError) as caught:
        list(open_split(TextRows(DataSection(reader=name)), "train"))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for part in says:
        assert part in str(caught.value), str(caught.value)
