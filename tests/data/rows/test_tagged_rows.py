import pickle
from dataclasses import dataclass, field

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tagged_rows import TaggedRows, located, put_together
from nlpctl.errors import UserError

LABELS = LabelSet(["B-LOC", "I-LOC", "O"])


@dataclass
class Rows:
    rows: list
    description: str = "train.txt"
    files: tuple = ()
    label_names: None = None
    read: int = field(default=0)

    def __iter__(self):
        return iter(self.rows)


def row(tokens, tags, line=1):
    return Row("train.txt", line, {"tokens": tokens, "tags": tags})


def read(values, labels=LABELS, **data):
    return TaggedRows(DataSection(**data)).read(values, labels)


def test_words_and_tags():
    example = read({"tokens": ["去", "北", "京"], "tags": ["O", "B-LOC", "I-LOC"]})
    assert example.text == "去北京" and example.words() == ["去", "北", "京"] and list(example.tags) == [2, 0, 1]
    assert len(example) == 3 and example.byte_length == 9 and example.words(1, 2) == ["北"]
    assert pickle.loads(pickle.dumps(example)) == example
    assert TaggedRows(DataSection()).input_columns(example) == {"tokens": ["去", "北", "京"], "text": "去北京"}
    assert list(TaggedRows(DataSection()).texts(example)) == ["去 北 京"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["1", "9", "年", "a"], "19年a"),
        (["in", "New York", "."], "in New York ."),
        (["我", "在", "New", "York", "住"], "我在New York住"),
        (["한국어", "를"], "한국어 를"),
        (["ok", " ", "go"], "ok go"),
        ([" ", "\u3000", "x"], " \u3000x"),
        (["Cafe\u0301", "，", "ＯＫ", "！"], "Cafe\u0301，ＯＫ！"),
    ],
)
def test_the_text_of_words(words, text):
    made, bounds = put_together(words)
    assert made == text
    assert [made[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)] == words


def test_a_text_beside_its_words_gives_the_offsets():
    assert list(located(["a", "b"], " a  b\n")) == [1, 2, 4, 5]
    assert located(["a", "c"], "a b c") is None and located(["a"], "a b") is None
    example = read({"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"], "text": "New  York"})
    assert (example.text, list(example.bounds)) == ("New  York", [0, 3, 5, 9])
    other = read({"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"], "text": "something else"})
    assert other.text == "New York"


def test_an_answer_is_about_the_text_that_was_given():
    """Entities were found in another text, put together from the tokens, and the one that was given was lost."""
    rows = TaggedRows(DataSection())
    assert rows.read({"tokens": ["say", "``", "hi"], "text": "say `` hi"}, None).text == "say `` hi"
    with pytest.raises(ValueError, match="tokens are not those of the text: 'text' is not 'tokens' with blanks"):
        rows.read({"tokens": ["say", "``", "hi"], "text": 'say "hi'}, None)


def test_invisible_characters_between_words_change_no_text():
    """Zero-width spaces and byte order marks are of no word. A text with one was put together anew from its words, with
    blanks around every other mark, as no prediction reads it."""
    text = "\ufeff-1\u200b. \u200b好A."
    assert list(located(["-", "1", ".", "好", "A", "."], text)) == [1, 2, 2, 3, 4, 5, 7, 8, 8, 9, 9, 10]
    assert located(["1"], "1\u200bb") is None


def test_plain_text():
    text = "在1949年 ok"
    assert read({"text": text}, None).words() == ["在", "1949", "年", "ok"]
    example = read({"text": text}, None, unit="characters")
    assert example.words() == ["在", "1", "9", "4", "9", "年", "o", "k"] and example.tags is None
    rows = TaggedRows(DataSection())
    assert rows.input_columns(example) == {"text": text}
    assert (rows.required(labelled=False), rows.text_columns()) == ((), ("text",))  # words do as well as a text


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"tokens": "a b", "tags": ["O"]}, "tokens are not a list: got str"),
        ({"tokens": [], "tags": []}, "no tokens"),
        ({"tokens": ["a", "", "b"], "tags": ["O"] * 3}, "empty token: token 2; are two separators glued"),
        ({"tokens": ["a", 3], "tags": ["O"] * 2}, "token is not a string: token 2"),
        ({"tokens": ["a"], "tags": "O"}, "tags are not a list"),
        ({"tokens": ["a", "b"], "tags": ["O"]}, "2 tokens, 1 tags"),
        ({"tokens": ["a", "b"], "tags": ["O", "B-LOK"]}, "unknown label: 'B-LOK'; did you mean 'B-LOC'"),
        ({"tokens": ["a", "b"], "tags": ["O", ""]}, "blank label"),
        ({"tokens": [" ", "\t"], "tags": ["O", "O"]}, "blank text"),
        ({"tokens": ["a\ud800"], "tags": ["O"]}, "not Unicode"),
        ({"text": "\u200b \ufeff"}, "blank text"),
        ({"words": ["a"]}, "missing key 'tokens' or 'text': the keys are 'words'"),
        ({"text": ["a b"], "label": ["O"]}, "text is a list, and there is no 'tokens': a table of texts"),
    ],
)
def test_bad_rows(values, reason):
    with pytest.raises(ValueError) as caught:
        read(values)
    assert reason in str(caught.value)


def test_labels_are_collected_and_their_scheme_checked():
    rows = TaggedRows(DataSection())
    good = [row(["a", "b"], ["B-LOC", "O"]), BadRow("train.txt", 4, "no tag"), row(["c"], ["I-LOC"]), row(["d"], None)]
    assert rows.collect_labels(Rows(good)) == LABELS
    for others, told in (([row(["a"], ["O"])], "no tag but O"), ([row(["a"], None)], "there are no tags")):
        with pytest.raises(UserError, match=told):
            rows.collect_labels(Rows(others))
    with pytest.raises(UserError, match="different styles are mixed") as caught:
        rows.collect_labels(Rows([*good, row(["e"], ["LOC-B"])]))
    assert caught.value.problems[0].where == "train.txt"


def test_check_training(capsys):
    example = read({"tokens": ["去", "年"], "tags": ["O", "O"]})
    rows = TaggedRows(DataSection())
    rows.check_training(ExampleList([example]), LABELS, "train.txt")
    assert "data.unit: characters" in capsys.readouterr().err
    rows.check_training(ExampleList([example, read({"tokens": ["ab"], "tags": ["O"]})]), LABELS, "train.txt")
    TaggedRows(DataSection(unit="characters")).check_training(ExampleList([example]), LABELS, "train.txt")
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match="no entities"):
        rows.check_training(ExampleList([example]), LabelSet(["O"]), "train.txt")
