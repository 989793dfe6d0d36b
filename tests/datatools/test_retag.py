"""A sentence's entities among the words of a lexical analyser, and what is counted of it."""

from __future__ import annotations

import pytest

from nlpctl.data.rows.tag_scheme import Span, detect_scheme
from nlpctl.datatools.retag import PLAIN, Changes, merged


@pytest.mark.parametrize(
    ("words", "entities", "expected"),
    [
        # 邓颖超生前: the analyser cuts 邓颖 / 超生 / 前, the data say that 邓颖超 is a person
        (
            [Span("PER", 0, 2), Span("v", 2, 4), Span("f", 4, 5)],
            [Span("PER", 0, 3)],
            [Span("PER", 0, 3), Span("v", 3, 4), Span("f", 4, 5)],
        ),
        # names that the data do not have are plain names
        (
            [Span("LOC", 0, 2), Span("n", 2, 4), Span("ORG", 4, 6), Span("PER", 6, 7), Span("TIME", 7, 8)],
            [],
            [Span("ns", 0, 2), Span("n", 2, 4), Span("nt", 4, 6), Span("nr", 6, 7), Span("TIME", 7, 8)],
        ),
        # a word around an entity falls in two
        ([Span("nz", 0, 4)], [Span("LOC", 1, 3)], [Span("nz", 0, 1), Span("LOC", 1, 3), Span("nz", 3, 4)]),
        # what no word covers stays outside
        ([Span("n", 0, 1)], [], [Span("n", 0, 1)]),
    ],
)
def test_entities_win_and_the_rest_of_a_word_stays_a_word(words, entities, expected):
    assert merged(words, entities, PLAIN) == expected


def test_what_is_counted():
    changes = Changes()
    changes.add([Span("PER", 0, 2), Span("v", 2, 4), Span("LOC", 4, 5)], [Span("PER", 0, 3)], PLAIN)
    changes.add([Span("LOC", 0, 2), Span("n", 2, 3)], [Span("LOC", 0, 2)], PLAIN)
    assert changes.to_json() == {
        "sentences": 2, "changed_sentences": 1, "agreed": 1, "inserted": {"PER": 1}, "cut_words": 2,
        "made_plain": {"LOC": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    "tags", [["n-B", "n-I", "O", "v-B"], ["B-n", "M-n", "E-n", "S-v"], ["B-n", "E-n", "O", "S-v"], ["B", "E", "S"]]
)
def test_spans_are_written_as_the_model_writes_them(tags):
    scheme = detect_scheme([*tags, "I-n"] if "B-n" in tags and "M-n" not in tags else tags, "the tags")
    assert scheme.tags(scheme.entities(tags), len(tags)) == tags
