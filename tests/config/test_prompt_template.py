"""The template of a prompt: PaddleNLP's notation without its eval."""

from __future__ import annotations

import pytest

from nlpctl.config.prompt_template import mask_length, parse_template


def test_words_texts_and_the_gap():
    parts = parse_template("{'text': 'text'} It was {'mask'}.")
    assert parts == [
        {"text": "text"},
        {"add_space": " ", "hard": "It was"},
        {"add_space": " ", "mask": None, "length": 1},
        {"hard": "."},
    ]
    assert mask_length(parse_template("{'text': 'text'}很{'mask': None, 'length': 2}")) == 2
    pair = parse_template("{'text': 'text'}{'sep'}{'text': 'text_pair', 'token_type': 1, 'truncate': False}{'mask'}")
    assert pair[1:3] == [{"sep": None}, {"text": "text_pair", "token_type": 1, "truncate": False}]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "no {'text': 'text'}"),
        ("It was {'mask'}.", "no {'text': 'text'}"),
        ("{'text': 'text'} It was good.", "no {'mask'}"),
        ("{'text': 'text'} {'mask'}{'mask'}", "2 masks"),
        ("{'text': 'text'} {'mask'", "never closed"),
        ("{'text': 'text'} {mask}", "is not a mapping"),
        ("{'text': 'text'} {__import__('os').system('true')}", "is not a mapping"),
        ("{'text': 'text'} {1: 2}", "is not a mapping"),
        ("{'text': 'text'} {'soft'} {'mask'}", "must have one of the keys"),
        ("{'text': 'text'} {'mask': None, 'size': 2}", "'size' is not supported with 'mask'"),
        ("{'text': 'text'} {'mask': None, 'length': 0}", "1 to 16"),
        ("{'text': 'review'} {'mask'}", "'text' or 'text_pair'"),
        ("{'text': 'text', 'token_type': 3} {'mask'}", "0 or 1"),
        ("{'text': 'text', 'truncate': 1} {'mask'}", "True or False"),
        ("{'text': 'text'} {'hard': ''} {'mask'}", "must be words"),
    ],
)
def test_what_is_wrong_is_said(template, reason):
    with pytest.raises(ValueError, match="(?s)" + reason.replace("{", r"\{").replace("}", r"\}")):
        parse_template(template)
