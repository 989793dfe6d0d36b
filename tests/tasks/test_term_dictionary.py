import json

import pytest

from nlpctl.data.rows.tag_scheme import Span
from nlpctl.errors import UserError
from nlpctl.tasks.term_dictionary import TermDictionary


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


TABLE = """term\ttype\tid\talias\tlink
苹果\t植物\tplant_1\t\thttps://a.example/1
苹果\t品牌\tbrand_1\tApple | 苹果公司\thttps://a.example/2
北京\t地点
"""
TREE = [
    {"termid": "plant_1", "term": "苹果", "termtype": "植物", "links": ["https://a.example/1"], "subterms": []},
    {"termid": "brand_1", "term": "苹果", "termtype": "品牌", "alias": ["Apple", "苹果公司"], "links": []},
    {"id": "p", "term": "北京", "type": "地点"},
]


def test_columns_with_ids_links_and_aliases(tmp_path):
    (tmp_path / "terms.tsv").write_text(TABLE)
    terms = TermDictionary.from_file(tmp_path / "terms.tsv")
    text = "苹果和Apple和北京"
    spans = terms.apply(text, [Span("品牌", 3, 8)])
    assert [(span.type, terms.known(text, span)) for span in spans] == [
        ("植物", {"id": "plant_1", "link": "https://a.example/1"}),
        ("品牌", {"term": "苹果", "id": "brand_1", "link": "https://a.example/2"}),
        ("地点", {}),
    ]


@pytest.mark.parametrize("kind", ["tsv", "json lines"])
def test_of_several_types_the_tagger_chooses(tmp_path, kind):
    file = tmp_path / "terms.tsv"  # as it is called next to a model
    file.write_text(TABLE if kind == "tsv" else "\n".join(json.dumps(term, ensure_ascii=False) for term in TREE))
    terms = TermDictionary.from_file(file)
    plant, brand = ("植物", "plant_1"), ("品牌", "brand_1")
    for found, expected in {"品牌": brand, "植物": plant, "人名": plant}.items():
        (span,) = terms.apply("苹果", [Span(found, 0, 2)])
        assert (span.type, terms.known("苹果", span)["id"]) == expected
    assert terms.types["苹果公司"] == "品牌"


def test_bad_terms_of_other_files(tmp_path):
    file = tmp_path / "terms.tsv"
    for text, told in {
        "term\ttype\tweight\n": "1: no such column: 'weight'",
        "term\ttype\ttype\n": "1: a column is named twice",
        "term\ttype\nа\tX\tmore\n": "2: 3 cells, and the header names 2 columns",
        "type\tterm\nX\n": "2: the term is blank",
        '{"term": "a"}\n': "1: the term 'a' has no type",
        '{"term": "a", "type": "X"}\n{"term": "a", "type": 3}\n': "2: term, type, id and each alias must be texts",
        '{"term": "a", "type": "X"}\n[1]\n': "2: not a JSON object",
        '{"term": \n': "1: not JSON",
    }.items():
        file.write_text(text)
        with pytest.raises(UserError) as caught:
            TermDictionary.from_file(file)
        assert f"{file}:{told}" in str(caught.value), text


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
