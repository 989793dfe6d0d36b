"""scripts/retag_lexical.py: a sentence's entities among the words of a lexical analyser."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nlpctl.data.tag_scheme import Span

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from retag_lexical import entities, merge, read_sentences  # noqa: E402


def test_entities_win_and_the_rest_of_a_word_stays_a_word() -> None:
    # 邓颖超生前: the analyser cuts 邓颖 / 超生 / 前, the data say that 邓颖超 is a person
    words = [Span("PER", 0, 2), Span("v", 2, 4), Span("f", 4, 5)]
    assert merge(words, [Span("PER", 0, 3)], 5) == ["PER-B", "PER-I", "PER-I", "v-B", "f-B"]


def test_names_that_the_data_do_not_have_are_plain_names() -> None:
    words = [Span("LOC", 0, 2), Span("n", 2, 4), Span("ORG", 4, 6), Span("PER", 6, 7), Span("TIME", 7, 8)]
    expected = ["ns-B", "ns-I", "n-B", "n-I", "nt-B", "nt-I", "nr-B", "TIME-B"]
    assert merge(words, [], 8) == expected


def test_a_word_around_an_entity_falls_in_two() -> None:
    assert merge([Span("nz", 0, 4)], [Span("LOC", 1, 3)], 4) == ["nz-B", "LOC-B", "LOC-I", "nz-B"]


def test_what_no_word_covers_is_outside() -> None:
    assert merge([Span("n", 0, 1), Span("O", 1, 2)], [], 3) == ["n-B", "O", "O"]


@pytest.mark.parametrize("tags", [["B-PER", "I-PER", "O", "B-LOC"], ["PER-B", "PER-I", "O", "LOC-B"]])
def test_entities_of_either_style(tags: list[str]) -> None:
    assert entities(tags) == [Span("PER", 0, 2), Span("LOC", 3, 4)] and entities(["O", "O"]) == []


def test_sentences_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("中\tB-LOC\n国\tI-LOC\n\n好\tO\n\n", encoding="utf-8")
    assert read_sentences(tmp_path / "a.txt") == [(["中", "国"], ["B-LOC", "I-LOC"]), (["好"], ["O"])]
