"""Units, their vocabulary and their encoder."""

from __future__ import annotations

import pickle

import pytest

from nlpctl.data.text.units import (
    PAD,
    SEP,
    UNK,
    UnitEncoder,
    UnitSettings,
    UnitTokenizer,
    build_unit_vocabulary,
    split_units,
)
from nlpctl.errors import UserError


def tokenizer(vocabulary="ab酒店", **settings):
    return UnitTokenizer([PAD, UNK, SEP, *vocabulary], UnitSettings(**settings))


def test_characters_are_units_and_white_space_is_none():
    assert split_units("a b\u3000酒\n店👍", "characters") == ["a", "b", "酒", "店", "👍"]


def test_words_are_those_of_jieba():
    assert split_units("这家酒店 很 good！", "words") == ["这家", "酒店", "很", "good", "！"]


def test_ids_unknown_units_and_case():
    units = tokenizer()
    assert units.ids("A酒x店") == [3, 5, units.unk_token_id, 6]
    assert tokenizer(lowercase=False).ids("Aa") == [1, 3]
    assert tokenizer("aA").ids("aA") == [3, 4]  # as it is written, before lower case
    assert tokenizer(replacements={"Ａ": "a"}).ids("Ａ") == [3]


@pytest.mark.parametrize("unit", ["characters", "words"])
def test_no_text_becomes_padding(unit):
    units = tokenizer(["[", "PAD", "]"], unit=unit)
    encoder = UnitEncoder(units)
    rows = encoder.encode([PAD, f"a{PAD}b", " ", SEP], None, 20)
    assert all(row.input_ids and units.pad_token_id not in row.input_ids for row in rows)
    assert all(ids and units.pad_token_id not in ids for ids in encoder.pieces([PAD, SEP, " ", "酒"]))


def test_rows_are_cut_and_pairs_have_a_separator():
    encoder = UnitEncoder(tokenizer())
    assert [row.input_ids for row in encoder.encode(["abab", "a"], None, 3)] == [[3, 4, 3], [3]]
    assert encoder.encode(["aaaa"], ["bbbb"], 6)[0].input_ids == [3, 3, 2, 4, 4, 4]
    assert encoder.encode(["a"], ["bbbbbb"], 6)[0].input_ids == [3, 2, 4, 4, 4, 4]
    assert encoder.encode(["a"], ["b"], 9)[0].token_type_ids == []
    assert [row.truncated for row in encoder.encode(["abab", "aba", "a"], None, 3)] == [True, False, False]
    assert [row.truncated for row in encoder.encode(["ab", "ab"], ["ab", "a"], 4)] == [True, False]


def test_pieces_of_words():
    assert UnitEncoder(tokenizer()).pieces(["酒店", "ab", "x", " "]) == [[5, 6], [3, 4], [1], [1]]
    assert UnitEncoder(tokenizer(["酒店"], unit="words")).pieces(["酒店", "酒"]) == [[3], [1]]


def test_starts_say_where_the_two_parts_begin():
    encoder = UnitEncoder(tokenizer())
    assembled = encoder.assemble([3, 4], [5, 6]).input_ids
    first, second = encoder.starts(2, pair=True)
    assert (assembled[first], assembled[second]) == (3, 5)
    assert encoder.starts(2, pair=False) == (0, None)
    assert encoder.forms(assembled) == ["a", "b", SEP, "酒", "店"]


def test_the_vocabulary_has_frequent_units_first():
    texts = ["好好好 bB\u2028", "好酒", "酒A"]
    assert build_unit_vocabulary(texts, "characters", 100, 2, True) == [PAD, UNK, SEP, "好", "b", "酒"]
    assert build_unit_vocabulary(texts, "characters", 4, 1, True) == [PAD, UNK, SEP, "好"]
    with pytest.raises(UserError, match="no entries besides"):
        build_unit_vocabulary(texts, "characters", 3, 1, True)
    with pytest.raises(UserError, match="no entries besides"):
        build_unit_vocabulary(texts, "characters", 100, 9, True)


def test_files_and_pickles_keep_everything(tmp_path):
    import json

    saved = tokenizer(["\x85", "\u200b", "酒店"], unit="words", lowercase=False, replacements={"Ａ": "a"})
    saved.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    loaded = UnitTokenizer.load(tmp_path, config)
    assert (loaded.vocabulary, loaded.settings) == (saved.vocabulary, saved.settings)
    encoder = pickle.loads(pickle.dumps(UnitEncoder(saved)))
    assert encoder.encode(["酒店a"], None, 9) == UnitEncoder(saved).encode(["酒店a"], None, 9)


def test_a_damaged_vocabulary_is_refused():
    with pytest.raises(ValueError, match="'a' is in the vocabulary twice"):
        tokenizer("aba")
    with pytest.raises(ValueError, match=r"\[SEP\] is not in the vocabulary"):
        UnitTokenizer([PAD, UNK], UnitSettings())
