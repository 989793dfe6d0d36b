import io

import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.data.readers.conll import conll_rows, joined_rows
from nlpctl.data.readers.lines import numbered_lines
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row, Sentence
from nlpctl.data.rows.tagged_rows import TaggedRows
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError

BOTH = ("tokens", "tags")


def conll(text, required=BOTH):
    raw = text if isinstance(text, bytes) else text.encode()
    return list(conll_rows(numbered_lines(io.BytesIO(raw), "f"), "f", ReadRequest("conll", required=required)))


def joined(text, header, required):
    lines = numbered_lines(io.BytesIO(text.encode()), "f")
    return list(joined_rows(lines, "f", ReadRequest("joined", header, required)))


def row(line, tokens, tags):
    return Row("f", line, {"tokens": tokens, "tags": tags})


def test_sentences_are_separated_by_blank_lines_and_the_last_needs_none():
    first, second = row(1, ["北", "京"], ["B-LOC", "I-LOC"]), row(5, ["a"], ["O"])
    text = "北\tB-LOC\n京\tI-LOC\n\n  \na\tO"
    assert conll(text.replace("\n\n  \n", "\n\t \n\u3000\n")) == [first, second]
    assert conll(text) == [first, second]
    assert conll(text + "\n\n\n") == [first, second]
    assert conll(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()) == [first, second]


def test_columns_by_tab_or_blanks_the_tag_last():
    assert conll("EU NNP  I-NP B-ORG\nrejects VBZ I-VP O\n") == [row(1, ["EU", "rejects"], ["B-ORG", "O"])]
    assert conll("-DOCSTART- -X- O O\n\nEU\tNNP\tB-ORG\n") == [row(3, ["EU"], ["B-ORG"])]
    assert conll(" \tO\nNew York\tB-LOC\n#\tO\n") == [row(1, [" ", "New York", "#"], ["O", "B-LOC", "O"])]


def test_comments_before_a_sentence_are_no_words():
    comments = "# newdoc id = mf9\n# newpar\n# text =\n# sent_id = 3\r\n# id 5f-12\tdomain=train\n"
    text = comments + "EU\tB-ORG\n# a = b\n\n# NN O\n# O\n"
    words = [["EU", "#"], ["#", "#"]]
    assert [each.values["tokens"] for each in conll(text.replace("# a = b", "#\tO"))] == words
    assert [each.values["tokens"] for each in conll("#id O\na O\n\n#\t= = O\n")] == [["#id", "a"], ["#"]]


def test_white_space_beyond_ascii_parts_no_columns():
    assert conll("a\u00a0b O\n\u3000 B-X") == [row(1, ["a\u00a0b", "\u3000"], ["O", "B-X"])]


def test_columns_of_another_name_are_told(tmp_path):
    """A CoNLL file has no names; data.columns may still have been given some."""
    (tmp_path / "train.conll").write_text("a O\nb B-X\n")
    for columns in (ColumnsSection(tags="ner"), ColumnsSection(tokens="words")):
        with pytest.raises(UserError, match="missing key '(ner|words)'.*the keys are 'tokens', 'tags'"):
            read_training_data(TaggedRows(DataSection(train=(str(tmp_path / "train.conll"),), columns=columns)))


def test_a_bad_line_spoils_its_sentence_only_and_is_named():
    rows = conll("a\tO\nb\nc\n\nd\tO\n\n\tO\n\nf\tX\tO\n\ng\tO")
    assert [type(item) for item in rows] == [BadRow, Sentence, BadRow, Sentence, Sentence]
    assert rows[0] == BadRow("f", 2, "no tag: the line holds 'b' only")
    assert rows[2] == BadRow("f", 7, "no word: the line begins with a tab")
    assert conll("a\tO\nb\t\n") == [BadRow("f", 2, "no tag: the line holds 'b' only")]
    broken = conll(b"a\tO\n\xff\tO\n\nb\tO\n")
    assert [item.line for item in broken] == [2, 4] and broken[0].kind == "not UTF-8"


def test_words_without_tags_are_for_predict():
    assert conll("a\n\u3000\nb\n", ()) == [Row("f", 1, {"tokens": ["a", "\u3000", "b"]})]
    assert conll("a\nb\n", ()) == [Row("f", 1, {"tokens": ["a", "b"]})]
    assert conll("a\nb\n") == [BadRow("f", 1, "no tag: the line holds 'a' only")]
    assert conll("a\tO\n", ()) == [row(1, ["a"], ["O"])]


def test_a_joined_file_is_told_from_a_conll_file():
    with pytest.raises(UserError, match="data.format: joined"):
        conll("a\002b\tO\002O\n")


def test_joined_with_and_without_header():
    line = "1\0022\t \002x\n"
    expected = {"text": ["1", "2"], "label": [" ", "x"]}
    assert joined("text\tlabel\n" + line, True, ("text", "label")) == [Row("f", 2, expected)]
    expected = {"0": ["1", "2"], "1": [" ", "x"]}
    assert joined(line, False, ("0", "1")) == [Row("f", 1, expected)]
    with pytest.raises(UserError, match="no column 'tokens'"):
        joined(line, False, BOTH)
    assert joined("tokens\ttags\na\n", True, BOTH)[0].kind == "wrong column count"
