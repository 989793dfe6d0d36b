"""Pairs of texts: for text matching with two labels, for semantic indexing with or without."""

from __future__ import annotations

import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleList, ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.matching_rows import MatchingRows, is_match
from nlpctl.data.rows.retrieval_rows import RetrievalExample, RetrievalRows
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError

PAIR = ColumnsSection(text="a", text_pair="b", label="l")
NONE = LabelSet(())


# -- text matching


@pytest.mark.parametrize("names", [("1", "0"), ("true", "false"), ("no", "yes"), ("No", "Yes"), ("0", "1")])
def test_the_second_label_is_the_match(names):
    settled = MatchingRows(DataSection(columns=PAIR)).prepare_labels(LabelSet(names))
    assert [is_match(name) for name in settled] == [False, True]


def test_given_labels_keep_their_order():
    rows = MatchingRows(DataSection(columns=PAIR, labels=("same", "different")))
    assert rows.prepare_labels(LabelSet(("same", "different"))).names == ("same", "different")


def test_nobody_guesses_which_label_is_the_match():
    with pytest.raises(UserError, match=r"which of the labels 'match' and 'no_match' means.*\n.*data.labels: \["):
        MatchingRows(DataSection(columns=PAIR)).prepare_labels(LabelSet(("match", "no_match")))


@pytest.mark.parametrize("names", [("0", "1", "2"), ("0", "1", "2", "3")])
def test_two_labels_and_no_more(names):
    with pytest.raises(UserError, match=f"two labels, found {len(names)}: 0, 1, 2"):
        MatchingRows(DataSection(columns=PAIR)).prepare_labels(LabelSet(names))


@pytest.mark.parametrize("rows", [MatchingRows, RetrievalRows])
def test_the_second_text_needs_a_column(rows):
    with pytest.raises(UserError, match="needs the column of the second text"):
        rows(DataSection()).required(labelled=True)


def test_matching_reads_labels_from_a_file(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text('{"a": "x", "b": "y", "l": 1}\n{"a": "x", "b": "z", "l": "0"}\n')
    data = read_training_data(MatchingRows(DataSection(train=(str(file),), columns=PAIR)))
    assert data.labels.names == ("0", "1") and [example.label for example in data.train] == [1, 0]


# -- semantic indexing


def read(labels=NONE, columns=PAIR, **values):
    return ExampleReader(RetrievalRows(DataSection(columns=columns)), labels).read(Row("f", 3, values))


def test_a_pair_matches_unless_its_label_says_otherwise():
    assert read(a="q", b="t") == RetrievalExample("q", "t", None, True)
    assert read(a="q", b="t", l="1").matches and read(a="q", b="t", l=True).matches
    assert not read(a="q", b="t", l="0").matches and not read(a="q", b="t", l=0).matches


def test_a_label_column_that_is_named_must_be_there(tmp_path):
    """Misspelt, it would make matches of all pairs."""
    (tmp_path / "train.jsonl").write_text('{"a": "q", "b": "t", "similar": 0}\n{"a": "q", "b": "u", "similar": 1}\n')
    for name, told in (("similar", None), ("simlar", "missing key 'simlar'"), ("label", None)):
        columns = ColumnsSection(text="a", text_pair="b", label=name)
        rows = RetrievalRows(DataSection(train=(str(tmp_path / "train.jsonl"),), columns=columns))
        if told is None:
            matches = [example.matches for example in read_training_data(rows).train]
            assert matches == ([False, True] if name == "similar" else [True, True])
        else:
            with pytest.raises(UserError, match=told):
                read_training_data(rows)


def test_a_label_that_says_neither_is_a_bad_row():
    assert read(a="q", b="t", l="2") == BadRow("f", 3, "bad label: '2'; a pair is 1 (the texts match) or 0")
    assert read(a="q", b="t", l="").reason == "blank label"


def test_hard_negatives_may_be_missing():
    columns = ColumnsSection(text="a", text_pair="b", negative="n")
    assert read(columns=columns, a="q", b="t", n="x").negative == "x"
    assert read(columns=columns, a="q", b="t", n="").negative is None
    assert read(columns=columns, a="q", b="t", n=None).negative is None
    assert read(columns=columns, a="q", b="t", n=3).reason == "negative text is not a string: got int"
    rows = RetrievalRows(DataSection(columns=columns))
    assert rows.required(labelled=True) == ("a", "b", "n") and rows.required(labelled=False) == ("a",)


def test_vectors_are_made_of_single_texts():
    rows = RetrievalRows(DataSection(columns=PAIR))
    assert read(labels=None, a="q") == RetrievalExample("q", None, None, True)
    assert rows.plain_column == "a" and rows.input_columns(read(labels=None, a="q")) == {"a": "q"}
    assert list(rows.texts(RetrievalExample("a", "b", "c", True))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([("q", "t", False), ("r", "u", False)], "none of the 2 training pairs matches"),
        ([("q", "t", True), ("r", "t", True)], "all 2 training rows have the same second text"),
    ],
)
def test_what_teaches_nothing_is_refused(examples, message):
    rows = RetrievalRows(DataSection(columns=PAIR))
    examples = ExampleList(RetrievalExample(text, pair, None, matches) for text, pair, matches in examples)
    with pytest.raises(UserError, match=message):
        rows.check_training(examples, NONE, "train.jsonl")
