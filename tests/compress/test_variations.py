"""Texts made of the words of others."""

from __future__ import annotations

from nlpctl.compress.networks.teacher import LONGEST_FRAGMENT, Variations
from nlpctl.config.schema import GeneratedSection

TEXTS = [tuple(text.split()) for text in ("the big room", "the small room", "a bed in the corner", "very clean")]
NOTHING = {"replace": 0.0, "mask": 0.0, "fragment": 0.0, "cross": 0.0}


def variations(similar=None, mask=None, seed=1, **settings) -> Variations:
    return Variations(TEXTS, GeneratedSection(copies=1, **(NOTHING | settings)), similar or {}, mask, seed)


def test_replaced_by_what_stands_between_the_same_neighbours() -> None:
    made = variations(replace=1.0)
    assert made.whole(("the", "big", "room")) in {("the", "big", "room"), ("the", "small", "room")}
    found = {made.whole(("the", "big", "room"))[1] for _ in range(50)}
    assert found == {"big", "small"}


def test_replaced_by_a_similar_word() -> None:
    made = variations({"bed": ["sofa"], "a": []}, replace=1.0)
    found = {made.whole(("a", "bed", "in", "the", "corner"))[1] for _ in range(20)}
    assert found == {"sofa"}  # nothing else stands between these neighbours


def test_hidden_or_left_out() -> None:
    assert variations(mask="[MASK]").whole(TEXTS[0]) == TEXTS[0]
    hidden = Variations(TEXTS, GeneratedSection(**(NOTHING | {"mask": 1.0})), {}, "[MASK]", 1)
    assert hidden.whole(TEXTS[0]) == ("[MASK]",) * 3
    without = Variations(TEXTS, GeneratedSection(**(NOTHING | {"mask": 1.0})), {}, None, 1)
    assert without.whole(TEXTS[0]) == ()


def test_fragments_are_words_in_a_row() -> None:
    made = variations(fragment=1.0)
    text = tuple("one two three four five six seven eight".split())
    found = {made.whole(text) for _ in range(200)}
    assert {len(words) for words in found} == set(range(1, LONGEST_FRAGMENT + 1))
    assert all(words == text[text.index(words[0]) :][: len(words)] for words in found)


def test_crossed_texts_share_a_word() -> None:
    found = {variations(cross=1.0, seed=seed).whole(TEXTS[0]) for seed in range(60)}
    assert ("the", "corner") in found  # goes on as the third text, from "the"
    assert TEXTS[0] in found


def test_same_seed_same_texts() -> None:
    settings = {"replace": 0.5, "mask": 0.2, "fragment": 0.3, "cross": 0.5}
    one, other, third = (variations(seed=seed, **settings) for seed in (1, 1, 2))
    made = [[each.whole(TEXTS[i % 4]) for i in range(40)] for each in (one, other, third)]
    assert made[0] == made[1] != made[2]
