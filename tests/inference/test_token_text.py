"""Tokens of every kind of tokenizer, as people read them."""

from __future__ import annotations

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.text.units import UnitSettings, UnitTokenizer
from nlpctl.inference.attribution import tokens_of


class Forms:
    def __init__(self, *forms):
        self.forms = forms

    def convert_ids_to_tokens(self, ids):
        return [self.forms[i] for i in ids]


def read(tokenizer, ids, special=()):
    contributions = np.arange(len(ids)) / 8
    return tokens_of(np.array(ids), contributions, tokenizer, special)


def text(tokens):
    return "".join(token.text if token.joined else f" {token.text}" for token in tokens)


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        (("un", "##believ", "##able", "view", "!"), "unbelievable view !"),
        (("房", "间", "wifi", "很", "##好"), "房间wifi很好"),
        (("un", "believ", "Ġroom", "s", "Ġ"), "unbeliev rooms Ġ"),
        (("▁the", "▁ro", "om", "##"), "the room##"),
        (("[UNK]", "a"), "[UNK] a"),
    ],
)
def test_forms_become_text(forms, expected):
    assert text(read(Forms(*forms), range(len(forms)))) == expected


def test_an_unknown_token_is_shown_as_the_text_has_it():
    tokens = tokens_of(np.array([0, 1, 1, 2]), np.zeros(4), Forms("[CLS]", "[UNK]", "[SEP]"), (0, 2), {1: "龘"})
    assert [token.text for token in tokens] == ["龘", "[UNK]"]
    assert [token.to_json() for token in tokens] == [
        {"token": "龘", "contribution": 0.0, "unknown": True}, {"token": "[UNK]", "contribution": 0.0}
    ]  # fmt: skip


def test_special_tokens_are_shown_inside_only():
    tokens = read(Forms("[CLS]", "a", "[SEP]", "b", "[PAD]"), [0, 1, 2, 3, 2, 4], special=(0, 2, 4))
    assert [(token.text, token.contribution) for token in tokens] == [("a", 1 / 8), ("[SEP]", 2 / 8), ("b", 3 / 8)]
    assert read(Forms("[CLS]", "[SEP]"), [0, 1], special=(0, 1)) == []


@pytest.mark.parametrize(("unit", "expected"), [("characters", "ok好"), ("words", "o k好")])
def test_units(unit, expected):
    tokenizer = UnitTokenizer(["[PAD]", "[UNK]", "[SEP]", "o", "k", "好"], UnitSettings(unit))
    assert text(read(tokenizer, [3, 4, 5])) == expected
