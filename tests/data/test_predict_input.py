"""What predict takes a file for."""

from __future__ import annotations

import gzip
import os

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.passthrough_columns import KEEP_ALL
from nlpctl.data.predict_input import open_input, open_inputs
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError


@pytest.mark.parametrize("text", ["北\tB-LOC\n京\tI-LOC\n", "new B-LOC\r\nyork I-LOC\r\n", "a\tO\nb\tPER-S\n"])
def test_tagged_words_are_not_taken_for_sentences(text, tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(text)
    tagging = task_rows("token_classification", DataSection())
    with pytest.raises(UserError, match=r"test\.txt:1: .* looks like a word and its tag") as caught:
        open_input(tagging, str(path), "auto")
    assert "--format conll" in str(caught.value)
    assert open_input(tagging, str(path), "text").format == "text"
    assert open_input(tagging, str(path), "conll").format == "conll"
    assert open_input(task_rows("sequence_classification", DataSection()), str(path), "auto").format == "text"


@pytest.mark.parametrize(("name", "format"), [("a", "text"), ("a.ndjson", "jsonl"), ("a.ndjson.gz", "jsonl")])
def test_the_format_by_the_ending(name, format, tmp_path):
    rows = task_rows("sequence_classification", DataSection())
    (tmp_path / name).write_text("a\n")
    assert open_input(rows, str(tmp_path / name), "auto").format == format


def test_an_unknown_ending_is_no_plain_text(tmp_path):
    rows = task_rows("sequence_classification", DataSection())
    (tmp_path / "a.odd").write_text("a\n")
    with pytest.raises(UserError, match="the ending '.odd'; known endings: .txt, .parquet, .tsv.*\\n.*--format text"):
        open_input(rows, str(tmp_path / "a.odd"), "auto")
    assert open_input(rows, str(tmp_path / "a.odd"), "text").format == "text"


OBJECT = '{"text": "a"}\n'
REFUSED = r"%s: this line is a JSON object, but %s has a text per line\n.*--format jsonl, or --format text"


@pytest.mark.parametrize(("name", "kind"), [("a.txt", "a .txt file"), ("a", "input without a known ending")])
@pytest.mark.parametrize("head", ["", "\ufeff", " "])
def test_objects_are_not_taken_for_texts(name, kind, head, tmp_path):
    rows = task_rows("sequence_classification", DataSection())
    (tmp_path / name).write_text(head + OBJECT)
    with pytest.raises(UserError, match=REFUSED % (f"/{name}:1", kind)):
        open_input(rows, str(tmp_path / name), "auto")
    assert [row.text for row in open_input(rows, str(tmp_path / name), "jsonl").rows()] == ["a"]
    assert len(list(open_input(rows, str(tmp_path / name), "text").rows())) == 1


@pytest.mark.parametrize("name", ["a.txt", "a"])
@pytest.mark.parametrize(("head", "line"), [("\n \n", 3), ("", 1)], ids=["after blank lines", "long"])
def test_objects_are_told_when_they_are_read(name, head, line, tmp_path):
    """Those that the beginning of the file does not show."""
    (tmp_path / name).write_text(head + OBJECT.replace("a", "a" * 70_000))
    source = open_input(task_rows("sequence_classification", DataSection()), str(tmp_path / name), "auto")
    with pytest.raises(UserError, match=f"{name}:{line}: this line is a JSON object"):
        source.check()


@pytest.mark.parametrize("text", ["{curly} words", "{", '{"text": "a"', '["a"]', '{"text": "a"} b', "a\n" + OBJECT])
def test_what_is_no_object_stays_text(text, tmp_path):
    (tmp_path / "a").write_text(text)
    source = open_input(task_rows("sequence_classification", DataSection()), str(tmp_path / "a"), "auto")
    assert [row.text for row in source.rows()] == text.splitlines()


def test_objects_in_a_pipe(tmp_path):
    """It is not opened before its rows are read, and the first one does not wait for the second."""
    rows = task_rows("sequence_classification", DataSection())
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)
    for text, format in ((OBJECT, "jsonl"), ("{a}\n", "auto"), ("b\n", "auto")):
        os.write(end, text.encode())
        read = open_input(rows, str(tmp_path / "pipe"), format).rows()
        assert next(read).text == text.strip().removeprefix('{"text": "').removesuffix('"}')
        read.close()
    os.write(end, b"\n" + OBJECT.encode())
    read = open_input(rows, str(tmp_path / "pipe"), "auto").rows()
    next(read)
    with pytest.raises(UserError, match=REFUSED % ("/pipe:2", "input without a known ending")):
        next(read)
    os.close(end)


def test_objects_at_a_url():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://objects/a.txt", "w") as stream:
        stream.write(OBJECT)
    source = open_input(task_rows("sequence_classification", DataSection()), "memory://objects/a.txt", "auto")
    with pytest.raises(UserError, match=REFUSED % ("/a.txt:1", "a .txt file")):
        source.check()


def test_what_is_not_read_of_a_folder_is_named(tmp_path, capsys):
    rows, folder = task_rows("sequence_classification", DataSection()), str(tmp_path)
    for name in ("a.txt", "b.txt", "_SUCCESS", ".hidden.log"):
        (tmp_path / name).write_text("a\n")
    for name in ("_temporary", ".git"):
        (tmp_path / name).mkdir()
    assert len(open_inputs(rows, [folder], "auto").files) == 2 and capsys.readouterr().err == ""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.txt").write_text("c\n")
    assert len(open_inputs(rows, [folder], "auto").files) == 2
    below = f"{folder}/**/*.txt"
    assert capsys.readouterr().err == f"{folder}: 2 files are read; not read: sub (a folder: name '{below}')\n"
    assert len(open_inputs(rows, [below], "auto").files) == 3 and capsys.readouterr().err == ""
    (tmp_path / "more").mkdir()
    (tmp_path / "b.txt").unlink()
    (tmp_path / "b.txt").symlink_to("nowhere")
    for name in ("b.log", "e.jsonl.bz2", "f.log", "g.log", "h.log", "i.jsonl.partial"):
        (tmp_path / name).write_text("a\n")
    open_inputs(rows, [folder], "auto")
    assert capsys.readouterr().err == (
        f"{folder}: 1 file is read; not read: b.log, e.jsonl.bz2, f.log, g.log and 2 more (by their endings), "
        f"more, sub (folders: name '{below}'), b.txt (no regular file)\n"
    )
    assert len(open_inputs(rows, [folder], "text").files) == 6
    assert "6 files are read; not read: i.jsonl.partial (by its ending), more, sub" in capsys.readouterr().err


def test_what_is_not_read_of_a_folder_at_a_url_is_named(capsys):
    fsspec = pytest.importorskip("fsspec")
    for name in ("a.jsonl.gz", "b.log", "_SUCCESS", "sub/c.jsonl"):
        with fsspec.open(f"memory://folder/{name}", "wb") as stream:
            stream.write(gzip.compress(OBJECT.encode()))
    source = open_inputs(task_rows("sequence_classification", DataSection()), ["memory://folder"], "auto")
    assert [row.text for row in source.rows()] == ["a"]
    told = "1 file is read; not read: b.log (by its ending), sub (a folder: name 'memory://folder/**/*.gz')"
    assert capsys.readouterr().err == f"memory://folder: {told}\n"


@pytest.mark.parametrize("text", ["", "\n", "Vitamin B-12\nis found in fish\n", "group O\nis common\n", "在北京\n"])
def test_sentences_are_sentences(text, tmp_path):
    path = tmp_path / "test.txt"
    path.write_text(text)
    assert open_input(task_rows("token_classification", DataSection()), str(path), "auto").format == "text"


def test_a_check_counts_the_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": " "}\n{"text": "b"}\n')
    assert (
        open_input(task_rows("sequence_classification", DataSection(on_bad_row="skip")), str(path), "auto").check() == 3
    )
    with pytest.raises(UserError, match="rows.jsonl:2: blank text"):
        open_input(task_rows("sequence_classification", DataSection()), str(path), "auto").check()


def test_what_is_no_text_is_told_by_its_first_line(tmp_path):
    (tmp_path / "sparse.txt").write_bytes(bytes(1 << 20))
    source = open_input(task_rows("sequence_classification", DataSection()), str(tmp_path / "sparse.txt"), "auto")
    with pytest.raises(UserError, match="sparse.txt: this is not a text file"):
        source.refuse_other_encodings()


def test_other_columns_of_parquet_are_not_read(tmp_path):
    """One may hold what Python does not know; it is told where it is wanted."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    far = pa.array([2**62, 0], pa.timestamp("us"))  # beyond the year 9999
    parquet.write_table(pa.table({"text": ["a", "b"], "when": far}), tmp_path / "rows.parquet")
    source = open_input(task_rows("sequence_classification", DataSection()), str(tmp_path / "rows.parquet"), "auto")
    assert [example.text for example in source.rows()] == ["a", "b"]
    with pytest.raises(UserError, match="a value in the rows 1 to 2 cannot be read"):
        list(source.kept_rows(KEEP_ALL))
    parquet.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "twice.parquet")
    source = open_input(task_rows("sequence_classification", DataSection()), str(tmp_path / "twice.parquet"), "auto")
    with pytest.raises(UserError, match="two columns are called 'text'"):
        list(source.rows())
