"""A format of input is its reader and an entry of INPUT_FORMATS: all that reads and writes rows goes by these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from nlpctl.config.input_formats import ENDINGS, INPUT_FORMATS, OF_DATA, InputFormat
from nlpctl.config.schema import ColumnsSection, DataFormat, DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.partition import read_split_rows
from nlpctl.data.predict_input import open_input
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.records import Records
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.datatools.file_sniffer import preview_file

TEXT = "text=good,label=1\nnothing\ntext=bad,label=0\n"


def pair_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """key=value,key=value"""
    for number, raw in lines:
        pairs = [pair.partition("=") for pair in raw.decode().split(",")]
        if all(sign for _, sign, _ in pairs):
            yield Row(source, number, {key: value for key, _, value in pairs})
        else:
            yield BadRow(source, number, "no pair")


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(INPUT_FORMATS, "pairs", InputFormat("pairs", f"{__name__}:pair_rows", "keys", (".pairs",)))
    monkeypatch.setitem(ENDINGS, ".pairs", "pairs")
    (tmp_path / "a.pairs").write_text(TEXT)
    return tmp_path / "a.pairs"


def test_the_recipe_takes_the_formats_of_the_table() -> None:
    assert get_args(DataFormat) == ("auto", *OF_DATA)
    assert set(OF_DATA) == INPUT_FORMATS.keys() - {"parquet"}


def test_a_new_format_is_read_and_previewed(pairs: Path) -> None:
    first, bad, last = read_rows(pairs, "pairs", True, ("text", "label"))
    assert (first.line, first.values) == (1, {"text": "good", "label": "1"})
    assert (bad.line, bad.reason) == (2, "no pair")
    assert last.values["text"] == "bad"
    preview = preview_file(pairs)
    assert (preview.format, [column.name for column in preview.columns]) == ("pairs", ["text", "label"])


def test_a_new_format_is_a_split_an_input_and_is_copied(pairs: Path) -> None:
    data = DataSection(train=(str(pairs),), on_bad_row="skip", columns=ColumnsSection(), labels=("0", "1"))
    rows = task_rows("sequence_classification", data)
    source = open_split(rows, "train")
    read = read_split_rows(source, rows, LabelSet.from_list(["0", "1"], where="here"))
    records = Records(source, read.rows, read.starts)
    assert (records.suffix, records.content([1])) == (".jsonl", b'{"text": "bad", "label": "0"}\n')
    predicted = open_input(rows, str(pairs), "auto")
    assert predicted.format == "pairs"
    assert predicted.check() == 3
    (kept, *_) = [kept for _, kept in predicted.kept_rows(None)]
    assert kept["label"] == "1"  # rows with keys of their own are repeated whole
