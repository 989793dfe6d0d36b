import pytest

from nlpctl.data.tag_scheme import Span
from nlpctl.errors import UserError
from nlpctl.tasks.terms import TermDictionary


def applied(text, entities, types):
    spans = TermDictionary(types).apply(text, [Span(*entity) for entity in entities])
    return [(kind, text[start:end]) for kind, start, end in spans]


@pytest.mark.parametrize(
    ("text", "entities", "types", "expected"),
    [
        ("去北京", [], {"北京": "LOC"}, [("LOC", "北京")]),  # added
        ("去北京", [("ORG", 1, 3)], {"北京": "LOC"}, [("LOC", "北京")]),  # another type
        ("去北京", [("ORG", 1, 2)], {"北京": "LOC"}, [("LOC", "北京")]),  # swallowed
        ("北京大学好", [("ORG", 0, 4)], {"北京": "LOC", "北京大学": "ORG"}, [("ORG", "北京大学")]),  # longest wins
        ("北京大学好", [("ORG", 0, 4)], {"北京": "LOC"}, [("LOC", "北京"), ("ORG", "大学")]),  # cut back
        ("老北京人好", [("X", 0, 4)], {"北京": "LOC"}, [("X", "老"), ("LOC", "北京"), ("X", "人")]),  # on both sides
        ("the New York Times", [("ORG", 4, 18)], {"New York": "LOC"}, [("LOC", "New York"), ("ORG", "Times")]),
        ("USA, US", [], {"US": "LOC"}, [("LOC", "US")]),
        ("us", [("A", 0, 2)], {"US": "LOC"}, [("A", "us")]),
        ("aaa a", [], {"a": "X", "aaa": "Y"}, [("Y", "aaa"), ("X", "a")]),
        ("", [], {"a": "X"}, []),
    ],
)
def test_apply(text, entities, types, expected):
    assert applied(text, entities, types) == expected


def test_the_usa_is_not_the_us():
    assert [tuple(span) for span in TermDictionary({"US": "LOC"}).matches("USA, US")] == [("LOC", 5, 7)]


def test_entities_without_terms_are_left_alone():
    entities = [Span("A", 0, 1), Span("B", 2, 3)]
    assert TermDictionary({"z": "Z"}).apply("a b", entities) == entities


def test_file(tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_bytes("\ufeff北京\tLOC\r\n\n New York \t LOC\n北京\tLOC\n".encode())
    assert TermDictionary.from_file(file).types == {"北京": "LOC", "New York": "LOC"}


def test_bad_lines_are_told_by_number(tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_bytes(b"a\tX\nb X\n\nc\tX\tY\n\tX\nd\t \na\tY\n\xff\tX\n")
    with pytest.raises(UserError) as caught:
        TermDictionary.from_file(file)
    told = {problem.where.removeprefix(str(tmp_path)): problem.message for problem in caught.value.problems[:-1]}
    assert told == {
        "/terms.tsv:2": "expected TERM<TAB>TYPE, got 1 cells",
        "/terms.tsv:4": "expected TERM<TAB>TYPE, got 3 cells",
        "/terms.tsv:5": "the term is blank",
        "/terms.tsv:6": "the term 'd' has no type",
        "/terms.tsv:7": "the term 'a' has the type 'X' above, and 'Y' here",
        "/terms.tsv:8": "not UTF-8: byte 0xff at byte 1 of the line",
    }
    with pytest.raises(UserError, match="cannot read the term dictionary"):
        TermDictionary.from_file(tmp_path / "none.tsv")
