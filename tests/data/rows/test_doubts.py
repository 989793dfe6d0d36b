"""What each kind of rows counts, holds to be true, and finds odd."""

from __future__ import annotations

import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tag_scheme import TagScheme
from nlpctl.data.rows.task_rows import task_rows

PAIR = ColumnsSection(text="a", text_pair="b", label="same", negative="c")


@pytest.mark.parametrize(
    ("task", "columns", "values", "labels", "passages", "counted"),
    [
        ("sequence_classification", ColumnsSection(), {"text": "x", "label": "pos"}, ("neg", "pos"), {"text": "x"},
         ("pos",)),
        ("multi_label_classification", ColumnsSection(), {"text": "x", "label": "a##b"}, ("a", "a##b", "c"),
         {"text": "x"}, ("a", "a##b")),
        ("text_matching", ColumnsSection(text="a", text_pair="b", label="same"), {"a": "x", "b": "y", "same": 1},
         ("0", "1"), {"a": "x", "b": "y"}, ("1",)),
        ("semantic_indexing", PAIR, {"a": "x", "b": "y", "c": "z", "same": "0"}, (), {"a": "x", "b": "y", "c": "z"},
         ("no match",)),
        ("semantic_indexing", PAIR, {"a": "x", "b": "y", "c": ""}, (), {"a": "x", "b": "y"}, ("match",)),
        ("token_classification", ColumnsSection(),
         {"tokens": ["Ann", "met", "Bo", "Li"], "tags": ["B-PER", "O", "B-PER", "I-PER"]}, ("B-PER", "I-PER", "O"),
         {"text": "Ann met Bo Li"}, ("PER", "PER")),
        ("masked_language_model", ColumnsSection(), {"text": "x"}, (), {"text": "x"}, ()),
        ("question_answering", ColumnsSection(), {"question": "q", "context": "c", "answers": []}, (),
         {"question": "q", "context": "c"}, ("no answer",)),
    ],
)  # fmt: skip
def test_passages_and_counts(task, columns, values, labels, passages, counted) -> None:
    rows = task_rows(task, DataSection(columns=columns))
    labels = LabelSet(labels)
    example = rows.read(values, labels)
    assert rows.passages(example) == passages
    assert rows.label_names(example, labels) == counted
    assert list(rows.doubts(example, labels)) == []
    assert rows.target(example) == rows.target(rows.read(values, labels))


def test_other_truth() -> None:
    rows = task_rows("question_answering", DataSection())
    context = {"question": "q", "context": "one or two"}
    first, second = (
        rows.read({**context, "answers": [{"text": text, "answer_start": start}]}, LabelSet(()))
        for text, start in (("one", 0), ("two", 7))
    )
    assert rows.target(first) != rows.target(second)
    rows, labels = task_rows("token_classification", DataSection()), LabelSet(("B-PER", "I-PER", "O"))
    first, second = (rows.read({"tokens": ["a", "b"], "tags": ["B-PER", tag]}, labels) for tag in ("O", "I-PER"))
    assert rows.target(first) != rows.target(second)


@pytest.mark.parametrize(
    ("marks", "tags", "broken"),
    [
        ("BIO", "O B-X I-X O B-Y B-Y I-Y", None),
        ("BIO", "I-X O", 0),
        ("BIO", "O B-X I-Y", 2),
        ("BIO", "B-X O I-X", 2),
        ("BIOES", "S-X B-X I-X E-X O", None),
        ("BIOES", "O B-X", 2),
        ("BIOES", "B-X O", 1),
        ("BIOES", "B-X S-X", 1),
        ("BIOES", "E-X", 0),
        ("BIOES", "B-X E-X I-X", 2),
        ("BMES", "B-X M-X E-X S-Y", None),
        ("BMES", "O M-X", 1),
    ],
)
def test_where_tags_break_their_scheme(marks, tags, broken) -> None:
    assert TagScheme(marks, "prefix").first_break(tags.split()) == broken
