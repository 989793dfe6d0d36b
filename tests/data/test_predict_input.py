"""What predict takes a file for."""

from __future__ import annotations

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.passthrough_columns import KEEP_ALL
from nlpctl.data.predict_input import open_input
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
