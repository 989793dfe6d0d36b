"""The dictionary folder of a lexical analyser."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.data.readers.dictionaries import read_dictionaries, read_tags
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.units import UnitEncoder, tokenizer_of_dictionaries
from nlpctl.errors import UserError


def folder(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.dic").write_text(text, encoding="utf-8")
    return tmp_path


def test_ids_are_those_of_the_files(tmp_path):
    where = folder(tmp_path, word="0\ta\n1\t我\n3\tOOV\n", tag="1\tn-I\n0\tn-B\n2\tO\n", q2b="Ａ\ta\n\u3000\t \n")
    found = read_dictionaries(where)
    assert found.words == ("a", "我", "[unused2]", "OOV")
    assert found.tags == ("n-B", "n-I", "O")
    assert found.unknown == "OOV"
    tokenizer = tokenizer_of_dictionaries(found, lowercase=False)
    assert tokenizer.vocabulary == ("a", "我", "[unused2]", "OOV", "[PAD]", "[SEP]")
    encoder = UnitEncoder(tokenizer)
    assert encoder.encode(["我Ａ\u3000a他"], None, 9)[0].input_ids == [1, 0, 0, 3]
    assert encoder.pad_id == 4


def test_a_folder_may_have_words_only(tmp_path):
    found = read_dictionaries(folder(tmp_path, word="0\ta\n"))
    assert (found.tags, found.replacements, found.unknown) == (None, {}, None)
    assert tokenizer_of_dictionaries(found, lowercase=True).ids("Ab") == [0, 2]  # b is unknown: [UNK] was added


def test_the_lexical_analyser_that_jieba_ships(tmp_path):
    jieba = pytest.importorskip("jieba")
    found = read_dictionaries(Path(jieba.__file__).parent / "lac_small")
    tokenizer = tokenizer_of_dictionaries(found, lowercase=False)
    assert (len(found.words), len(found.tags), tokenizer.unk_token_id) == (20941, 57, 20940)
    assert [found.words[i] for i in tokenizer.ids("我爱 北京")] == list("我爱北京")


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("word", "0\ta\nx\tb\n", 2, "'x' is not an id"),
        ("word", "0\ta\n-1\tb\n", 2, "'-1' is not an id"),
        ("word", "0\ta\n99999999999\tb\n", 2, "is not an id"),
        ("word", f"0\ta\n{'9' * 5000}\tb\n", 2, "is not an id"),
        ("word", "0\ta\n0\tb\n", 2, "the id 0 occurs twice"),
        ("word", "0\ta\n1\ta\n", 2, "'a' occurs twice"),
        ("word", "0\ta\n1 b\n", 2, "1 fields where 2 are expected"),
        ("tag", "0\tB\n\n1\n", 3, "1 fields where 2 are expected"),
        ("q2b", "ＡＢ\tab\n", 1, "not one character each"),
    ],
)
def test_bad_lines_are_told_with_their_place(tmp_path, name, text, line, message):
    where = folder(tmp_path, **{"word": "0\ta\n", name: text})
    with pytest.raises(UserError) as caught:
        read_dictionaries(where)
    (problem,) = caught.value.problems
    assert problem.where == f"{where / name}.dic:{line}"
    assert message in problem.message and problem.hint


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match="no word.dic"):
        read_dictionaries(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        read_dictionaries(tmp_path / "none")
    with pytest.raises(UserError, match="the id 1 is missing"):
        read_tags(folder(tmp_path, tag="0\ta\n2\tb\n") / "tag.dic")
    with pytest.raises(UserError, match="holds no entries"):
        read_tags(folder(tmp_path, tag="") / "tag.dic")
    with pytest.raises(UserError, match="cannot be read"):
        read_tags(tmp_path / "none.dic")


def test_a_tag_dic_is_a_label_file(tmp_path):
    assert LabelSet.from_file(folder(tmp_path, tag="1\tB\n0\tO\n") / "tag.dic").names == ("O", "B")
