"""Rows to examples, and what becomes of bad rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, load_examples, scan_examples
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample, TextRows
from nlpctl.errors import UserError

LABELS = LabelSet(("neg", "pos"))


SINGLE = ColumnsSection()


def read(want_labels=True, columns=SINGLE, **values):
    reader = ExampleReader(TextRows(DataSection(columns=columns)), LABELS if want_labels else None)
    return reader.read(Row("f", 7, values))


def test_single_sentence():
    assert read(text=" 好 \t", label=" pos") == TextExample(" 好 \t", None, 1)
    assert read(want_labels=False, text="a") == TextExample("a", None, None)


def test_pair_and_other_columns():
    columns = ColumnsSection(text="0", text_pair="1", label="2")
    assert read(columns=columns, **{"0": "a", "1": "b", "2": "neg"}) == TextExample("a", "b", 0)


def test_numbers_are_labels_but_not_text():
    reader = ExampleReader(TextRows(DataSection()), LabelSet(("0", "1")))
    assert reader.read(Row("f", 1, {"text": "a", "label": 1})).label == 1
    assert reader.read(Row("f", 1, {"text": 5, "label": 1})).reason == "text is not a string: got int"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"text": "", "label": "pos"}, "blank text"),
        ({"text": " \u3000\t", "label": "pos"}, "blank text"),
        ({"text": None, "label": "pos"}, "text is not a string: got NoneType"),
        ({"text": ["a"], "label": "pos"}, "text is not a string: got list"),
        ({"text": "ab\ud800", "label": "pos"}, "text is not Unicode: half a surrogate pair, U+D800, at character 3"),
        ({"text": "a", "label": "Poss"}, "unknown label: 'Poss'; did you mean 'pos'?"),
        ({"text": "a", "label": "好"}, "unknown label: '好'; known are neg, pos"),
        ({"text": "a", "label": ""}, "blank label"),
        ({"text": "a", "label": {}}, "bad label: an object without 'choices': the keys are none"),
    ],
)
def test_bad_values(values, reason):
    assert read(**values) == BadRow("f", 7, reason)


@pytest.mark.parametrize("text", ["\u200b", "\ufeff \u3000", "\u200e\u200f", "\ufffd"])
def test_a_text_without_anything_that_is_seen_is_blank(text):
    assert read(text=text, label="pos") == BadRow("f", 7, "blank text")
    assert not isinstance(read(text=f"{text}!", label="pos"), BadRow)


def test_bad_second_sentence():
    columns = ColumnsSection(text_pair="other")
    assert read(columns=columns, text="a", other=" ", label="pos") == BadRow("f", 7, "blank second text")


def bad(n: int, kind: str = "blank text") -> list[BadRow]:
    return [BadRow("f.tsv", i, kind) for i in range(2, 2 + n)]


def test_log_error_lists_all_and_the_total():
    log = BadRowLog("error")
    for row in bad(3):
        log.add(row)
    with pytest.raises(UserError) as caught:
        log.finish()
    lines = str(caught.value).splitlines()
    assert lines[:3] == [f"f.tsv:{i}: blank text" for i in (2, 3, 4)]
    assert lines[3] == "3 bad rows in all" and "--set data.on_bad_row=skip" in lines[4] and "GB18030" not in lines[4]


def test_log_error_stops_at_the_tenth():
    log = BadRowLog("error")
    rows = bad(11)
    for row in rows[:9]:
        log.add(row)
    with pytest.raises(UserError) as caught:
        log.add(rows[9])
    assert str(caught.value).count("f.tsv:") == 10 and "stopped at the tenth" in str(caught.value)


def test_log_error_hints_at_the_encoding():
    log = BadRowLog("error")
    log.add(BadRow("f", 2, "not UTF-8: byte 0xb7 at byte 1 of the line"))
    with pytest.raises(UserError, match="GB18030"):
        log.finish()


def test_log_skip_counts_by_kind():
    log = BadRowLog("skip")
    for row in bad(11) + [BadRow("f.tsv", 90 + i, f"unknown label: 'x{i}'; known are a") for i in range(3)]:
        log.add(row)
    log.finish()
    summary = log.summary()
    assert summary["total"] == 14 and summary["kinds"] == {"blank text": 11, "unknown label": 3}
    assert len(summary["first"]) == 10 and summary["first"][0] == "f.tsv:2: blank text"


def test_log_without_bad_rows():
    log = BadRowLog("error")
    log.finish()
    assert log.summary() == {"policy": "error", "total": 0, "kinds": {}, "first": []}


def data_of(tmp_path: Path, content: str, **keys) -> DataSection:
    path = tmp_path / "train.tsv"
    path.write_text(content)
    return DataSection(train=(str(path),), **keys)


def test_load(tmp_path: Path):
    data = data_of(tmp_path, "text\tlabel\na\tpos\n\nbroken\nbb好\tneg\n c\tneg\n")
    reader = ExampleReader(TextRows(data), LABELS)
    log = BadRowLog("skip")
    examples = load_examples(open_split(TextRows(data), "train"), reader, log)
    assert list(examples) == [TextExample("a", None, 1), TextExample("bb好", None, 0), TextExample(" c", None, 0)]
    assert len(examples) == 3 and examples[np.int64(1)] == TextExample("bb好", None, 0)
    lengths = examples.lengths()
    assert lengths.dtype == np.int64 and lengths.tolist() == [1, 5, 2]
    assert log.summary()["first"] == [
        f"{tmp_path}/train.tsv:4: wrong column count: expected 2 as on line 1, got 1"
    ]
    assert scan_examples(open_split(TextRows(data), "train"), reader, BadRowLog("skip")) == 3
    for take in (load_examples, scan_examples):
        with pytest.raises(UserError, match="train.tsv:4: wrong column count"):
            take(open_split(TextRows(data), "train"), reader, BadRowLog("error"))


def test_load_pairs_without_labels(tmp_path: Path):
    data = data_of(tmp_path, "text\tother\na\tbcd\n", columns=ColumnsSection(text_pair="other"))
    examples = load_examples(
        open_split(TextRows(data), "train", labelled=False), ExampleReader(TextRows(data), None), BadRowLog("error")
    )
    assert list(examples) == [TextExample("a", "bcd", None)] and examples.lengths().tolist() == [4]


def test_load_refuses_a_file_of_bad_rows(tmp_path: Path):
    data = data_of(tmp_path, "text\tlabel\n \tpos\nb\tnone\n")
    for take in (load_examples, scan_examples):
        with pytest.raises(UserError) as caught:
            take(open_split(TextRows(data), "train"), ExampleReader(TextRows(data), LABELS), BadRowLog("skip"))
        assert "no row is usable; 2 bad rows: blank text (1), unknown label (1)" in str(caught.value)


def test_two_labels_needed(tmp_path: Path):
    for content, fine in (("a\tpos\nb\tneg\n", True), ("a\tpos\nb\tpos\n", False)):
        data = data_of(tmp_path, "text\tlabel\n" + content)
        rows = TextRows(data)
        examples = load_examples(open_split(rows, "train"), ExampleReader(rows, LABELS), BadRowLog("error"))
        if fine:
            rows.check_training(examples, LABELS, "train.tsv")
        else:
            with pytest.raises(UserError, match="all 2 training rows have the label 'pos'"):
                rows.check_training(examples, LABELS, "train.tsv")


def test_a_key_that_every_row_lacks_is_told_once():
    log = BadRowLog("error")
    rows = [*bad(9, "missing key 'text': the keys are 'review'"), BadRow("f.tsv", 20, "blank text")]
    with pytest.raises(UserError) as caught:
        for row in rows:
            log.add(row)
    first, second, third = caught.value.problems
    assert (first.where, first.message) == ("f.tsv:2", f"{rows[0].reason} (and 8 more rows like it)")
    assert second.where == "f.tsv:20" and "stopped at the tenth" in third.message
