"""The label set: where it comes from, its order, its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.rows import labels as labels_module
from nlpctl.data.rows.labels import LabelSet, known_label, label_name
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.data.training_data import resolve_labels
from nlpctl.errors import UserError


def test_ids_and_names():
    labels = LabelSet(("neg", "pos"))
    assert len(labels) == 2 and list(labels) == ["neg", "pos"]
    assert labels.id("pos") == 1 and labels.name(1) == "pos" and "pos" in labels and "none" not in labels
    assert labels.nearest("POS") == "pos" and labels.nearest("xyz") is None
    with pytest.raises(KeyError):
        labels.id("none")


@pytest.mark.parametrize(
    ("found", "order"),
    [
        (["10", "9", "-1", "9"], ("-1", "9", "10")),
        (["10", "9", "1" * 5000], ("10", "1" * 5000, "9")),  # no numbers: int() takes no such one
        (["10", "9", "1.5"], ("1.5", "10", "9")),
        (["b", "a", "B", "好"], ("B", "a", "b", "好")),
    ],
)
def test_collected_in_order(found, order):
    assert LabelSet.collect(found, "train.tsv").names == order


def test_labels_that_are_written_in_several_ways(capsys):
    names = ["1", "01", "001", "+1", "1e0", "1.", "１.00", "0.5", ".5", "-1", "1" * 400, "v1", "1-1"]
    LabelSet.collect(names, "train.tsv")
    assert capsys.readouterr().err.count("are one number") == 7
    LabelSet.collect(["caf\u00e9", "cafe\u0301"], "train.tsv")
    assert r"'cafe\u0301' and 'caf\xe9' look the same" in capsys.readouterr().err


def test_collect_refuses_too_few_and_too_many(monkeypatch):
    with pytest.raises(UserError, match="train.tsv: only the label 'a' occurs"):
        LabelSet.collect(["a", "a"], "train.tsv")
    with pytest.raises(UserError, match="no label"):
        LabelSet.collect([], "train.tsv")
    monkeypatch.setattr(labels_module, "MAX_COLLECTED", 3)
    with pytest.raises(UserError, match="more than 3 different labels"):
        LabelSet.collect((str(i) for i in range(10**9)), "train.tsv")


def test_from_file(tmp_path: Path):
    path = tmp_path / "labels.txt"
    path.write_bytes(b"\xef\xbb\xbfpos\r\n neg \r\n\xe5\xa5\xbd\r\n\r\n")
    assert LabelSet.from_file(path).names == ("pos", "neg", "好")


def test_from_file_tells_all_problems(tmp_path: Path):
    path = tmp_path / "labels.txt"
    path.write_text("pos\n\nneg\npos \n")
    with pytest.raises(UserError) as caught:
        LabelSet.from_file(path)
    assert [(problem.where, problem.message) for problem in caught.value.problems] == [
        (f"{path}:2", "blank label"),
        (f"{path}:4", f"label 'pos' occurs twice (first at {path}:1)"),
    ]
    assert all(problem.hint for problem in caught.value.problems)
    path.write_bytes(b"pos\nn\xffg\n")
    with pytest.raises(UserError, match=f"{path}:2: not UTF-8"):
        LabelSet.from_file(path)
    path.write_text("pos\n")
    with pytest.raises(UserError, match="at least two"):
        LabelSet.from_file(path)
    with pytest.raises(UserError, match="cannot read the label file"):
        LabelSet.from_file(tmp_path / "none.txt")


def test_from_list():
    assert LabelSet.from_list(("b", "a")).names == ("b", "a")
    wrong = [(("a", "a"), "occurs twice"), (("a", " "), "blank"), (("a",), "at least two"), (("a\nb", "c"), "break")]
    for names, message in wrong:
        with pytest.raises(UserError, match=message) as caught:
            LabelSet.from_list(names)
        assert "data.labels" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "name"), [(" a ", "a"), (1, "1"), (-2, "-2"), (1.5, "1.5"), (True, "true"), (False, "false")]
)
def test_label_names(value, name):
    assert label_name(value) == name


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (" ", "blank label"), ("", "blank label"), (None, "blank label"), (float("nan"), "bad label"),
        ([1], "got list"), ("a\nb", "line break in a label: 'a.nb'"), ("a\r\nb", "line break"),
        ("a\u2028b", "line break"), ('{"choices":["a","b"]}', "several labels: a, b"), ("['a', 'b']", "several labels"),
        ('{"rating": 3}', "bad label: an object without 'choices': the keys are 'rating'"),
    ],
)  # fmt: skip
def test_bad_labels(value, reason):
    with pytest.raises(ValueError, match=reason):
        label_name(value)


def test_resolve(tmp_path: Path):
    train = tmp_path / "train.tsv"
    train.write_text("text\tlabel\na\tpos\nb\tneg\nbroken\nc\t \n")
    names = tmp_path / "labels.txt"
    names.write_text("neutral\npos\nneg\n")

    def resolved(**keys) -> tuple[str, ...]:
        data = DataSection(train=(str(train),), **keys)
        return resolve_labels(TextRows(data), open_split(TextRows(data), "train")).names

    assert resolved() == ("neg", "pos")  # bad rows are passed over here
    assert resolved(labels=("pos", "neg")) == ("pos", "neg")
    assert resolved(labels=str(names)) == ("neutral", "pos", "neg")


def test_a_message_says_how_many_labels_it_shows():
    with pytest.raises(ValueError, match=r"known are a, b$"):
        known_label("好", LabelSet("ab"))
    with pytest.raises(ValueError, match=r"known are a, b, c, d, e, f, g, h, i, j, \.\.\. \(10 of 12 shown\)$"):
        known_label("好", LabelSet("abcdefghijkl"))


def test_labels_that_look_the_same_are_told(capsys):
    assert list(LabelSet.collect(["pos", "neg", "pos\u200b", "neg"], "train.tsv")) == ["neg", "pos", "pos\u200b"]
    assert "train.tsv: the labels 'pos' and 'pos\\u200b' look the same" in capsys.readouterr().err
    LabelSet.collect(["pos", "neg"], "train.tsv")
    assert capsys.readouterr().err == ""


def test_a_cell_may_spell_a_list():
    """As Label Studio, JSON, Python and NumPy write one; what only looks like a list is a label."""
    assert label_name('{"choices": ["a"]}') == label_name({"choices": "a"}) == label_name('["a"]') == "a"
    assert label_name('["\\ud83d\\ude00"]') == "😀"
    for name in ("[其他]", "[1]", "{x}", "['a]", "[", "[]"):
        assert label_name(name) == name
    assert known_label('["a"]', LabelSet(('["a"]', "a"))) == 0  # a model that was trained on it
