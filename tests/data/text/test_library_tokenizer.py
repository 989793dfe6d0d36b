"""Tokenizers of a tokenizer.json: ids of the library, exact places of pieces, special tokens, bad files."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import pickle
import random
import struct
import unicodedata

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from nlpctl.data.text.library_tokenizer import (
    LibraryEncoder,
    LibraryTokenizer,
    doubts,
    read_library_tokenizer,
    read_word_pieces,
)
from nlpctl.data.text.masking import CorpusTokens, WholeWords
from nlpctl.data.text.piece_spans import read_pieces
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.word_spans import is_blank, is_mark, word_spans
from nlpctl.errors import UserError
from tests.helpers.library_tokenizers import (
    CORPUS,
    KINDS,
    SETTINGS,
    SPECIALS,
    bytes_bpe,
    fallback_bpe,
    gemma_bpe,
    unigram,
    with_sentencepiece_model,
    written,
)

NASTY = (
    *"abcxyzABC 019 \t\n.,!?'-_[]#@中国酒店房间，。！？～￥ßıéèñ▁Ġ",
    *"\u0301\u0327\u200b\u200d\ufeff\u00ad\u3000\u00a0\x00\ufffd\ud800\U0001f600\U00020000\u1112\u1161\u11abｶﾞ①ﬁ㎏",
    *("👍🏽", "👨‍👩‍👧", "<mask>", "</s>", "foxes"),
)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def made(request, tmp_path_factory):
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the trainers' threads would outlive them
    library = request.param()
    folder = written(tmp_path_factory.mktemp("kinds") / request.param.__name__, library)
    return library, build_encoder(read_library_tokenizer(folder))


def random_texts(count: int, longest: int = 25) -> list[str]:
    chance = random.Random(3)
    return ["".join(chance.choices(NASTY, k=chance.randint(0, longest))) for _ in range(count)]


def plain(texts):
    """Without what spells special tokens, which the library would take for them, and without half characters."""
    return [text.replace("<mask>", "").replace("</s>", "").replace("\ud800", "\ufffd") for text in texts]


def test_ids_are_those_of_the_library(made):
    library, encoder = made
    texts = plain([*CORPUS, *random_texts(300)])
    pairs = texts[::-1]
    for got, text in zip(encoder.encode(texts, None, 10_000), texts, strict=True):
        row = library.encode(text)
        assert (got.input_ids, got.token_type_ids, got.truncated) == (row.ids, row.type_ids, False), text
    for length in (10_000, 12):
        library.enable_truncation(length)
        for got, text, pair in zip(encoder.encode(texts, pairs, length), texts, pairs, strict=True):
            row = library.encode(text, pair)
            assert (got.input_ids, got.token_type_ids) == (row.ids, row.type_ids), (text, pair)
            assert got.truncated is bool(row.overflowing)
        library.no_truncation()


def test_a_text_on_the_left_is_cut_where_the_model_wants_it(tmp_path):
    encoder = LibraryEncoder(read_library_tokenizer(written(tmp_path, bytes_bpe(), truncation_side="left")))
    (row,) = encoder.encode(["hello fine world"], None, 3)
    assert row.truncated and row.input_ids[1:-1] == encoder.tokenizer.ids("hello fine world")[-1:]


def test_tokenizer_json_may_say_too_that_a_text_is_cut_on_the_left(tmp_path):
    library = bytes_bpe()
    library.enable_truncation(7, direction="left")
    assert read_library_tokenizer(written(tmp_path / "left", library)).truncation_side == "left"
    told = written(tmp_path / "told", library, truncation_side="right")
    assert read_library_tokenizer(told).truncation_side == "right"
    (tmp_path / "left" / "task.json").write_text("{}")  # of nlpctl, which trained it with texts that end earlier
    assert read_library_tokenizer(tmp_path / "left").truncation_side == "right"


def test_a_class_with_a_name_goes_by_tokenizer_config(tmp_path):
    """As Transformers does: it makes these parts of the tokenizer anew."""
    settings = {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True}
    roberta = read_library_tokenizer(written(tmp_path / "roberta", bytes_bpe(), **settings))
    assert roberta.ids("fox") == roberta.inside(" fox") != roberta.inside("fox")
    content, settings = bert()
    content["added_tokens"].append(added(17, "new york"))
    for name, value, text, pieces in (
        ("do_lower_case", False, "Hello", ["Hello"]),
        ("strip_accents", False, "café", ["café"]),
        ("tokenize_chinese_chars", False, "中国", ["中国"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(content))
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, name: value}))
        tokenizer = read_library_tokenizer(folder)
        assert tokenizer.tokenize(text) == pieces
        tokenizer.save_pretrained(folder)
        assert read_library_tokenizer(folder).tokenize(text) == pieces
        (folder / "tokenizer.json").write_text(json.dumps(content))
        (folder / "task.json").write_text("{}")  # of nlpctl, which trained it as tokenizer.json reads
        assert read_library_tokenizer(folder).tokenize(text) != pieces


@pytest.mark.parametrize(
    ("name", "model_type", "cased"),
    [
        *((name, "bert", True) for name in ("BertTokenizer", "ElectraTokenizerFast", "DistilBertTokenizer")),
        *((name, "ernie", True) for name in ("MPNetTokenizer", "MobileBertTokenizerFast", "FunnelTokenizer")),
        *((name, "bert", False) for name in ("PreTrainedTokenizerFast", "TokenizersBackend", "MyTokenizer")),
        *((name, "convbert", False) for name in ("ConvBertTokenizer", "ConvBertTokenizerFast", "ErnieTokenizer")),
        *((None, model_type, True) for model_type in ("bert", "electra", "ernie", "convbert", "mpnet")),
        *((None, model_type, False) for model_type in ("nezha", "modernbert", "roberta", None, 3)),
        ("BertTokenizer", "modernbert", False),
    ],
)
def test_the_classes_that_make_the_case_anew(tmp_path, name, model_type, cased):
    """As Transformers 5.24 reads such folders; another class takes the file as it is."""
    content, settings = bert()
    content["added_tokens"].append(added(17, "new york"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    told = {key: value for key, value in settings.items() if key != "tokenizer_class"} | {"do_lower_case": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(told | ({"tokenizer_class": name} if name else {})))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    tokenizer = read_library_tokenizer(tmp_path)
    assert tokenizer.tokenize("Hello") == (["Hello"] if cased else ["hello"])
    if name is None:  # which config.json may name as well
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "tokenizer_class": "MyTokenizer"}))
        assert read_library_tokenizer(tmp_path).tokenize("Hello") == ["hello"]


@pytest.mark.parametrize(
    ("name", "model_type", "blank"),
    [
        *((name, "roberta", True) for name in ("RobertaTokenizer", "GPT2TokenizerFast", "LongformerTokenizer", None)),
        *((name, "roberta", False) for name in ("PreTrainedTokenizerFast", "MyTokenizer")),
        *((name, "modernbert", False) for name in ("RobertaTokenizerFast", None)),
    ],
)
def test_the_classes_that_make_the_blank_anew(tmp_path, name, model_type, blank):
    settings = {"add_prefix_space": True} | ({"tokenizer_class": name} if name else {})
    folder = written(tmp_path / "made", bytes_bpe(), **settings)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    tokenizer = read_library_tokenizer(folder)
    assert tokenizer.ids("fox") == tokenizer.inside(" fox" if blank else "fox")


def test_a_part_in_a_sequence_goes_by_tokenizer_config_too(tmp_path):
    content, settings = bert()
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, content["normalizer"]]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "do_lower_case": False}))
    assert read_library_tokenizer(tmp_path).tokenize("Ｈello") == ["Hello"]
    content = json.loads(bytes_bpe().to_str())
    digits = {"type": "Digits", "individual_digits": True}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, content["pre_tokenizer"]]}
    told = {**SETTINGS, "tokenizer_class": "RobertaTokenizer"}
    for blank in (True, False):
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**told, "add_prefix_space": blank}))
        tokenizer = read_library_tokenizer(tmp_path)
        assert tokenizer.begins_words is blank
        tokenizer.save_pretrained(tmp_path)
        assert read_library_tokenizer(tmp_path).begins_words is blank


@pytest.mark.parametrize("name", ["XLMRobertaTokenizer", "CamembertTokenizerFast", "AlbertTokenizer"])
def test_the_blank_before_a_unigram_model_goes_by_tokenizer_config_too(name, tmp_path):
    for blank in (True, False):
        folder = written(tmp_path, unigram(), tokenizer_class=name, add_prefix_space=blank)
        assert read_library_tokenizer(folder).begins_words is blank


@pytest.mark.parametrize(
    ("name", "told", "key"),
    [
        ("AlbertTokenizer", {"do_lower_case": False}, "do_lower_case is false"),
        ("AlbertTokenizer", {"keep_accents": False}, "keep_accents is false"),
        ("BertTokenizer", {"strip_accents": True}, "strip_accents is true"),
        ("BertTokenizer", {"strip_accents": False, "do_lower_case": True}, None),
        ("PreTrainedTokenizerFast", {"do_lower_case": False}, None),
    ],
)
def test_settings_that_contradict_tokenizer_json_are_told(name, told, key, tmp_path):
    """Where there is no part of which they could be a setting."""
    folder = written(tmp_path, unigram(), tokenizer_class=name, **told)
    found = list(doubts(read_library_tokenizer(folder), folder))
    assert [each.partition(",")[0] for each in found] == ([] if key is None else [key])


def test_a_copy_of_a_tokenizer_says_how_it_reads(tmp_path):
    """Also of a model that nlpctl trained, whose tokenizer_config.json says something else: an export has no task."""
    content, settings = bert()
    content["added_tokens"].append(added(17, "new york"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    told = {"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | told))
    (tmp_path / "task.json").write_text("{}")
    (tmp_path / "export").mkdir()
    read_library_tokenizer(tmp_path).save_pretrained(tmp_path / "export")
    read = read_library_tokenizer(tmp_path / "export")
    assert read.tokenize("Hello Café 中国") == ["hello", "cafe", "中", "国"]


def test_what_spells_a_special_token_is_text(made):
    _, encoder = made
    special = set(encoder.tokenizer.all_special_ids) - {encoder.tokenizer.unk_token_id}
    for text in ("<mask>", "fine</s><s> bed <mask>food <pad>", "<mask><mask>", "<unk> x"):
        ids = encoder.tokenizer.ids(text)
        assert ids and not special.intersection(ids)
        (row,) = encoder.encode([text], None, 100)
        assert row.input_ids == encoder.assemble(ids).input_ids


def test_what_stands_around_texts_is_special_whatever_the_settings_name(tmp_path):
    tokenizer = read_library_tokenizer(written(tmp_path, bytes_bpe(), cls_token="<mask>", sep_token="<mask>"))
    assert set(tokenizer.all_special_ids) == {0, 1, 2, 3, 4}
    assert not {0, 2} & set(tokenizer.ids("</s><s>"))


def test_spans_are_exact_or_coarse_never_wrong(made):
    """A piece, but for blanks and what stands for bytes, is in the normalised form of its span; spans only rise, and
    nothing but blanks lies between them."""
    library, encoder = made

    def normal(text):
        text = library.normalizer.normalize_str(text.replace("\ud800", "\ufffd")) if library.normalizer else text
        letters = unicodedata.normalize("NFKD", text.translate({ord(sign): "" for sign in "▁ﾞﾟ"}))
        return "".join(letter for letter in letters if not unicodedata.category(letter).startswith("M"))

    exact = 0
    for text in [*CORPUS, *random_texts(400)]:
        ids, spans = encoder.located(text)
        assert len(ids) == len(spans)
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(one[0] <= two[0] and one[1] <= two[1] for one, two in zip(spans, spans[1:], strict=False))
        covered = {i for span in spans for i in range(*span)}
        left = [text[i] for i in range(len(text)) if i not in covered and not is_blank(text[i])]
        assert spans == [] or set(left) <= set("▁\ufffd\u0301\u0327"), (text, left)
        for form, (start, end) in zip(encoder.forms(ids), spans, strict=True):
            assert not is_blank(text[start]) and not is_blank(text[end - 1])
            bare = form.removeprefix("@@").replace(encoder.tokenizer.blank, "")
            of_bytes = encoder.tokenizer.blank == "Ġ" and any("~" < character < "\u2000" for character in bare)
            if bare and not form.startswith("<") and not of_bytes and not is_blank(bare[0]):
                assert normal(bare) in normal(text[start:end]), (text, form, text[start:end])
                exact += normal(bare) == normal(text[start:end])
    assert exact > 1000


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("fine ﬁne", ["fine", "ﬁne"]),
        ("  fine\u3000Ｆｉｎｅ，", ["fine", "Ｆｉｎｅ", "，"]),
        ("cafe\u0301 fine", ["cafe\u0301", "fine"]),
        ("酒店hello", ["酒店", "hello"]),
        ("fine\u200bfine", ["fine", "fine"]),
        (" \t\n", []),
    ],
)
def test_places_of_words(text, places, tmp_path_factory):
    vocabulary = [*SPECIALS, "▁", *"▁fine fine ▁cafe\u0301 ▁café 酒店 ▁酒店 hello ▁hello ， ,".split()]
    library = Tokenizer(models.Unigram([(piece, -1.0 - len(piece) / 9) for piece in vocabulary], 3, False))
    library.normalizer = normalizers.Sequence(
        [normalizers.Replace("\u200b", " "), normalizers.NFKC(), normalizers.Lowercase()]
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    encoder = LibraryEncoder(read_library_tokenizer(written(tmp_path_factory.mktemp("words"), library)))
    pieces = read_pieces(text, encoder)
    found = [text[start:end] for start, end in pieces.spans]
    assert list(dict.fromkeys(found)) == list(dict.fromkeys(places)), encoder.forms(pieces.ids)
    assert pieces.ids.dtype == pieces.spans.dtype == "int32"


def test_a_run_of_marks_is_looked_at_once(tmp_path, monkeypatch):
    """Pieces of bytes are within one character, of which each asks for the whole."""
    encoder = LibraryEncoder(read_library_tokenizer(written(tmp_path, bytes_bpe())))
    text = "fine a" + 4000 * "\u0301" + " dog"
    looked = []
    for name, was in (("is_blank", is_blank), ("is_mark", is_mark)):
        counting = functools.partial(lambda was, character: looked.append(character) or was(character), was)
        monkeypatch.setattr(f"nlpctl.data.text.library_tokenizer.{name}", counting)
    ids, spans = encoder.located(text)
    assert set(spans) == {(0, 4), (5, 4006), (4007, 4010)} and len(ids) > 4000
    assert len(looked) < 10 * len(text)


def test_words_of_tagged_text_have_the_form_that_they_have_in_it(made):
    """Every word has pieces of its own; together they are those of the whole text where no piece spans two words."""
    library, encoder = made
    for text in ("hello, quick fox's 300酒店 房间 WiFi很快", "fine food"):
        words = encoder.pieces_in(text, word_spans(text))
        assert all(words) and len(words) == len(word_spans(text))
    whole = library.encode(text, add_special_tokens=False)
    pieces = [id for id, form in zip(whole.ids, whole.tokens, strict=True) if form != encoder.tokenizer.blank]
    assert [id for word in words for id in word] == pieces
    alone, inside = encoder.pieces_in("the.the", [(0, 3), (4, 7)])
    begins = encoder.tokenizer.convert_ids_to_tokens([alone[0], inside[0]])
    if encoder.tokenizer.begins_words:
        assert begins[0].startswith("▁") and not begins[1].startswith("▁")
    assert encoder.pieces_in("a\u200b", [(1, 2)])[0]


def test_saved_and_pickled_it_is_the_same(made, tmp_path):
    _, encoder = made
    grown = encoder.tokenizer.with_tokens(["格利泽", "fox trot"])
    assert len(grown) == len(encoder.tokenizer) + 2 and grown.get_added_vocab()["fox trot"] == len(grown) - 1
    texts = ["在格利泽看见fox trot <mask>", *random_texts(50)]
    expected = LibraryEncoder(grown).encode(texts, texts[::-1], 20)
    assert grown.convert_ids_to_tokens(grown.ids("a fox trot")).count("fox trot") == 1
    grown.save_pretrained(tmp_path)
    for again in (read_library_tokenizer(tmp_path), pickle.loads(pickle.dumps(grown))):
        assert LibraryEncoder(again).encode(texts, texts[::-1], 20) == expected
    assert pickle.loads(pickle.dumps(LibraryEncoder(grown))).encode(texts, texts[::-1], 20) == expected
    assert not {"vocab_file", "auto_map"} & json.loads((tmp_path / "tokenizer_config.json").read_text()).keys()


@pytest.mark.parametrize("before", [True, False])
def test_the_blank_before_a_text_is_that_of_tokenizer_json(before, tmp_path):
    """Transformers goes by tokenizer_config.json."""
    library = bytes_bpe()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=before)
    tokenizer = read_library_tokenizer(written(tmp_path / "there", library, add_prefix_space=not before))
    tokenizer.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["add_prefix_space"] is before
    assert tokenizer.ids("fox") == library.encode("fox", add_special_tokens=False).ids


def test_line_breaks_and_tags_of_gemma_are_pieces_of_text(tmp_path):
    """They are added tokens, as those of model.add_tokens. A text without a blank before it has pieces of its own."""
    encoder = LibraryEncoder(read_library_tokenizer(written(tmp_path, gemma_bpe())))
    tokenizer = encoder.tokenizer
    assert tokenizer.tokenize("a\n\n<table> the") == ["a", "\n\n", "<table>", "▁the"]
    assert not tokenizer.begins_words and not {*tokenizer.ids("\n\n<table>")} & {*tokenizer.all_special_ids}
    assert tokenizer.tokenize("龘") == ["<0xE9>", "<0xBE>", "<0x98>"]
    assert tokenizer.text_of(tokenizer.ids(" the fox\n龘")) == "the fox\n龘"
    ids, spans = encoder.located("a\n\n<table>  the")
    assert dict(zip(encoder.forms(ids), spans, strict=True))["▁the"] == (12, 15)
    assert encoder.pieces_in("a the", [(2, 5)]) == [tokenizer.ids(" the")]


def test_encoding_starts_no_threads(made):
    """A worker is forked from a process that has encoded: threads would be lost in it, and their locks stay taken."""
    _, encoder = made
    before = len(os.listdir("/proc/self/task"))
    encoder.encode(CORPUS * 20, CORPUS * 20, 64)
    encoder.pieces_in(CORPUS[0], word_spans(CORPUS[0]))
    assert len(os.listdir("/proc/self/task")) == before


@pytest.mark.parametrize("kind", [unigram, bytes_bpe, fallback_bpe, gemma_bpe])
def test_without_the_pieces_that_no_text_has(kind, tmp_path):
    """Texts that have the others are read as before, added tokens and all; other texts from smaller pieces."""
    tokenizer = read_library_tokenizer(written(tmp_path, kind())).with_tokens(["格利泽", "fox trot"])
    texts = [CORPUS[0], "a fox trot, the 酒店 格利泽", "quick bed"]
    wanted = {id for text in texts for id in tokenizer.ids(text)}
    small, rows = tokenizer.reduced(wanted)
    assert len(small) == len(rows) < len(tokenizer) and wanted < set(rows)
    assert small.convert_ids_to_tokens(range(len(small))) == tokenizer.convert_ids_to_tokens(rows)
    for text in texts:
        assert [rows[id] for id in small.ids(text)] == tokenizer.ids(text)
    (row,) = LibraryEncoder(small).encode(["the bed"], ["fox"], 30)
    (before,) = LibraryEncoder(tokenizer).encode(["the bed"], ["fox"], 30)
    assert [rows[id] for id in row.input_ids if rows[id] < 3] == [id for id in before.input_ids if id < 3]
    small.save_pretrained(tmp_path)
    assert read_library_tokenizer(tmp_path).ids(texts[0]) == small.ids(texts[0])


def test_a_bpe_with_a_mark_of_what_goes_on_can_be_reduced():
    """Joining two pieces takes the mark off the second one."""
    pieces = ["[PAD]", "[UNK]", "a", "b", "##b", "ab", "##c", "abc", "c", "x"]
    made = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, [("a", "##b"), ("ab", "##c")],
                                unk_token="[UNK]", continuing_subword_prefix="##"))  # fmt: skip
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    # A token that no template uses, of a piece that goes.
    made.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[("x", 9)])
    tokenizer = LibraryTokenizer(made.to_str(), {"pad_token": "[PAD]"}, "folder")
    assert tokenizer.tokenize("abc ab") == ["abc", "ab"]
    small, rows = tokenizer.reduced(set(tokenizer.ids("abc ab")))
    assert small.tokenize("abc ab x") == ["abc", "ab", "[UNK]"]
    assert [pieces[row] for row in rows] == ["[PAD]", "[UNK]", "a", "##b", "ab", "##c", "abc"]


def test_masks_and_whole_words(made):
    _, encoder = made
    tokens = CorpusTokens(encoder, None, 30)
    (window,) = tokens.around_masks("the quick <mask> of the dog")
    assert window.ids[window.masks[0]] == encoder.tokenizer.mask_token_id
    before = encoder.tokenizer.ids("the quick" if encoder.tokenizer.strips_before("<mask>") else "the quick ")
    assert window.ids[: window.masks[0]].tolist() == before
    (window,) = CorpusTokens(encoder, WholeWords(None), 200).windows("这家酒店的房间 quick foxes")
    numbers = window.words.tolist()
    assert numbers == sorted(numbers) and set(numbers) == set(range(numbers[-1] + 1)) and len(set(numbers)) >= 3
    assert window.ids.tolist() == encoder.tokenizer.ids("这家酒店的房间 quick foxes")


@pytest.mark.parametrize(
    ("tokenizer_class", "names", "typed"),
    [("XLMRobertaTokenizerFast", None, False), ("BertTokenizerFast", None, True), ("RobertaTokenizer", None, False),
     ("PreTrainedTokenizerFast", ["input_ids", "attention_mask"], False), (None, None, True)],
)  # fmt: skip
def test_token_types_are_given_where_the_network_was_trained_with_them(tokenizer_class, names, typed, tmp_path):
    folder = written(tmp_path, fallback_bpe(), tokenizer_class=tokenizer_class, model_input_names=names)
    encoder = LibraryEncoder(read_library_tokenizer(folder))
    (row,) = encoder.encode(["fine"], ["bed"], 20)
    assert encoder.uses_token_types is typed and bool(row.token_type_ids) is typed


def test_special_tokens_that_no_file_names(tmp_path):
    """Those around a text are in its template, the others have the usual names."""
    folder = written(tmp_path, unigram())
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = read_library_tokenizer(folder)
    assert (tokenizer.cls_token, tokenizer.sep_token, tokenizer.pad_token, tokenizer.unk_token) == (
        "<s>", "</s>", "<pad>", "<unk>")  # fmt: skip
    assert tokenizer.mask_token_id == 4 and sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]


def test_padding_that_stands_around_texts(tmp_path):
    """The networks take it for padding wherever it stands."""
    folder = written(tmp_path, unigram())
    (folder / "tokenizer_config.json").write_text('{"pad_token": "</s>"}')
    with pytest.raises(UserError, match="tokenizer_config.json: pads with </s>, which also stands around every text"):
        read_library_tokenizer(folder)
    for name, use in (("unk", "stands for what is unknown"), ("mask", "is the mask")):
        (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": f"<{name}>"}))
        with pytest.raises(UserError, match=f"pads with <{name}>, which also {use}"):
            read_library_tokenizer(folder).check_unknown()  # a model of nlpctl has learned it so


def test_what_is_unknown_is_no_padding(tmp_path):
    """Where no file names a token for it, and the model needs none."""
    content = json.loads(bytes_bpe().to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary.update({"x_unk": vocabulary.pop("<unk>"), "x_mask": vocabulary.pop("<mask>")})
    content["added_tokens"] = [each for each in content["added_tokens"] if each["content"] in vocabulary]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>"}')
    tokenizer = read_library_tokenizer(tmp_path)
    assert (tokenizer.unk_token, tokenizer.pad_token) == ("</s>", "<pad>")


# -- bad files --------------------------------------------------------------------------------------------------------


def changed(change):
    """A tokenizer.json with a change made to its content."""
    content = json.loads(unigram().to_str())
    change(content)
    return json.dumps(content)


LONG = {"pattern": {"String": "a"}, "content": "b" * 100_000}
STRANGE = [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
NINE = {"X": {"id": "X", "ids": [9999], "tokens": ["X"]}} | {
    token: {"id": token, "ids": [id], "tokens": [token]} for token, id in (("<s>", 0), ("</s>", 2))
}


def long_table(length):
    """A normaliser that makes an a `length` letters, as sentencepiece writes tables: a trie, and what it points to."""
    units = [0] * 1200
    units[0] = 256 << 10
    units[256 ^ 97] = 97 | 1 << 8 | 512 << 10
    trie = struct.pack(f"<{len(units)}I", *units)
    table = struct.pack("<I", len(trie)) + trie + b"b" * length + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def alternating():
    """Every blank becomes one character, and that four words with three blanks."""
    both = [{"type": "Replace", "pattern": {"String": " "}, "content": "\ufdfa"}, {"type": "NFKC"}]
    return {"type": "Sequence", "normalizers": both * 3}


def bytes_of_bytes():
    """Bytes become characters of two bytes, which again become characters."""
    part = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [part] * 7}


def doubled(content):
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    content["normalizer"] = {"type": "Sequence", "normalizers": [double] * 40}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "tokenizer.json: is not valid JSON"),
        ("[]", "must hold a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "model.type is 'None', an unknown kind of tokenizer"),
        ('{"model": {"type": "Neural"}}', "model.type is 'Neural', an unknown kind of tokenizer"),
        ('{"model": {"type": "BPE"}}', "model.vocab holds no pieces"),
        ('{"model": {"type": "BPE", "vocab": {"a": -1}}}', "the token 'a' with the id -1"),
        ('{"model": {"type": "BPE", "vocab": {"a": 99000000000}}}', "the token 'a' with the id 99000000000"),
        ('{"model": {"type": "BPE", "vocab": {"<pad>": 0, "<unk>": 1}, "merges": ["a b"]}}', "library cannot use it"),
        ('{"model": {"type": "WordLevel", "vocab": {"<pad>": 0, "<unk>": 1}, "unk_token": []}}', "cannot use it"),
        ('{"model": {"type": "WordLevel", "vocab": {"<pad>": 0, "<unk>": 1}, "unk_token": "?"}}', "as model.unk_token"),
        ('{"model": {"type": "BPE", "vocab": {"<pad>": 0}}}', "library cannot use it"),
        (changed(lambda c: c["model"].update(unk_id=None)), "name a piece of model.vocab as model.unk_id"),
        ('{"model": {"type": "WordLevel", "vocab": {"a": 0}}}', "names no pad_token that the vocabulary has"),
        (changed(lambda c: c["model"].update(unk_id=10**9)), "library cannot use it"),
        (changed(lambda c: c["model"]["vocab"].append(["x", float("nan")])), "a piece has the score nan"),
        (changed(lambda c: c["model"]["vocab"].append([None, 0.0])), "the token 'None'"),
        (changed(lambda c: c["model"]["vocab"].append(["x" * 1_000_000, -1.0])), "a piece of 1,000,000 characters"),
        (changed(lambda c: c.update(added_tokens=[{"id": 7, "content": "new"}])), "has the id 7, but the library"),
        (changed(lambda c: c.update(added_tokens=[3])), "added_tokens is no list of tokens"),
        (changed(lambda c: c.update(post_processor={"type": "Neural"})), "library cannot use it"),
        (changed(lambda c: c["post_processor"]["special_tokens"]["<s>"].update(ids=[5000])), "the id 5000, which is"),
        (changed(lambda c: c["post_processor"].update(single=STRANGE, special_tokens=NINE)), "the id 9999, which is"),
        (changed(lambda c: c["post_processor"].update(single=[])), "does not give a text"),
        (changed(lambda c: c.update(normalizer={"type": "Neural"})), "library cannot use it"),
        (changed(doubled), "tokenizer.json:normalizer: its replacements make texts more than 5,000 times as long"),
        # The library takes parts without a type, and leaves out what a part of that type does not have.
        (changed(lambda c: c.update(normalizer=LONG)), "5,000 times as long"),
        (changed(lambda c: c.update(normalizer={**LONG, "type": "Replace", "normalizers": []})), "5,000 times as long"),
        (changed(lambda c: c.update(normalizer={"type": "Sequence", "normalizers": [LONG]})), "5,000 times as long"),
        (changed(lambda c: c.update(decoder={"type": "Sequence", "decoders": [LONG]})), "decoder: its replacements"),
        (changed(lambda c: c.update(normalizer=long_table(6000))), "5,000 times as long"),
        (changed(lambda c: c.update(normalizer=alternating())), "5,000 times as long"),
        (changed(lambda c: c.update(pre_tokenizer=bytes_of_bytes())), "5,000 times as long"),
        (changed(lambda c: c.update(pre_tokenizer={"type": "FixedLength", "length": 0})), "cannot use it"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_told(text, told, tmp_path, capfd):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=told) as error:
        read_library_tokenizer(tmp_path).check_unknown()
    assert str(tmp_path) in str(error.value)
    assert capfd.readouterr().err == ""  # no trace of a panic


def test_a_damaged_table_of_a_normaliser_is_told(tmp_path, capfd):
    table = base64.b64encode(b"\4\0\0\0\xff\xff\xff\xff").decode()
    part = {"type": "Precompiled", "precompiled_charsmap": table}
    (tmp_path / "tokenizer.json").write_text(changed(lambda content: content.update(normalizer=part)))
    with pytest.raises(UserError, match="library cannot use it"):
        read_library_tokenizer(tmp_path)
    assert capfd.readouterr().err == ""


def test_paddlenlps_collators_pad_with_it(tmp_path):
    pytest.importorskip("paddlenlp")
    from paddlenlp.data import DataCollatorWithPadding

    tokenizer = read_library_tokenizer(written(tmp_path, unigram()))
    rows = [{"input_ids": [0, 9, 2], "token_type_ids": [0, 0, 0], "label": 1}, {"input_ids": [0, 2], "label": 0}]
    rows[1]["token_type_ids"] = [0, 0]
    batch = DataCollatorWithPadding(tokenizer, return_tensors="np", return_attention_mask=True)(rows)
    assert batch["input_ids"].tolist() == [[0, 9, 2], [0, 2, 1]] and batch["labels"].tolist() == [1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_what_usual_normalisers_could_make_of_a_character_is_allowed(tmp_path):
    """The most that a known file has: ALBERT's."""
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    parts = [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, long_table(18), spaces]
    changes = {"normalizer": {"type": "Sequence", "normalizers": parts}}
    (tmp_path / "tokenizer.json").write_text(changed(lambda content: content.update(changes)))
    assert "bbbb" in "".join(read_library_tokenizer(tmp_path).tokenize("xa"))


def test_a_text_that_the_library_gives_up_is_told(tmp_path):
    pattern = {"type": "Split", "pattern": {"Regex": "(x|x|xx)+b"}, "behavior": "Isolated", "invert": False}
    (tmp_path / "tokenizer.json").write_text(changed(lambda content: content.update(pre_tokenizer=pattern)))
    tokenizer = read_library_tokenizer(tmp_path)
    with pytest.raises(UserError, match="cannot read the text 'xxxx"):
        tokenizer.ids("x" * 40)


@pytest.mark.parametrize("piece", ["▁", "好"])
def test_a_decoder_that_panics_is_told(piece, tmp_path, capfd):
    """By the trial, or else where such a piece is an answer: for Python a panic of Rust is no Exception."""
    decoder = {"type": "Strip", "content": piece, "start": 1, "stop": 1}
    (tmp_path / "tokenizer.json").write_text(changed(lambda content: content.update(decoder=decoder)))
    with pytest.raises(UserError, match=f"the tokenizers library cannot join the pieces .*{piece}"):
        read_library_tokenizer(tmp_path).convert_tokens_to_string(["好"])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
def test_a_part_that_gives_up_a_text_is_told_by_whoever_calls_it(part, tmp_path):
    pattern = {"type": "Split", "pattern": {"Regex": "(x|x|xx)+b"}, "behavior": "Isolated", "invert": False}
    if part == "normalizer":
        pattern = {"type": "Replace", "pattern": pattern["pattern"], "content": " "}
    (tmp_path / "tokenizer.json").write_text(changed(lambda content: content.update({part: pattern})))
    with pytest.raises(UserError, match="cannot read the text 'xxxx"):
        read_library_tokenizer(tmp_path).words("x" * 40)


def test_other_special_tokens_are_what_texts_mark_with_them(tmp_path):
    """Only those that stand around texts, or have a name, are hidden from texts."""
    library = unigram()
    library.add_special_tokens(["[E1]"])
    tokenizer = read_library_tokenizer(written(tmp_path, library))
    assert tokenizer.tokenize("the [E1] dog [E1]").count("[E1]") == 2
    assert tokenizer.get_added_vocab() == {"[E1]": len(tokenizer) - 1}
    assert "</s>" not in tokenizer.tokenize("the </s> dog")


def bert():
    """tokenizer.json and tokenizer_config.json as Transformers writes them for BERT."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *"hello cafe new york a ##a b 中 国 中国 Hello café".split()]
    library = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(specials)
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    return json.loads(library.to_str()), {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **names}


def template(first, pair):
    special = {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in (("[CLS]", 2), ("[SEP]", 3))}
    parts = [
        [{"Sequence": {"id": part[0], "type_id": int(part[1])}} if len(part) == 2 else
         {"SpecialToken": {"id": part[:5], "type_id": int(part[5])}} for part in row.split()]
        for row in (first, pair)
    ]  # fmt: skip
    return {"type": "TemplateProcessing", "single": parts[0], "pair": parts[1], "special_tokens": special}


PAIR = "[CLS]0 A0 [SEP]0 B1 [SEP]1"


def test_a_wordpiece_with_ids_that_are_none(tmp_path):
    content, _ = bert()
    content["model"]["vocab"]["hello"] = ["x"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="its vocabulary has the token 'hello' with the id"):
        read_library_tokenizer(tmp_path)


E1 = {"content": "[E1]", "lstrip": True, "normalized": False}


def folder_of_bert(folder, settings, **files):
    """`files`: by their names without .json."""
    content, names = bert()
    contents = {"tokenizer": content, "config": {"vocab_size": 18}, "tokenizer_config": names | settings, **files}
    for name, value in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    (folder / "vocab.txt").write_text("\n".join(content["model"]["vocab"]), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        ({"added_tokens_decoder": {"17": E1}}, {}),
        ({}, {"added_tokens": {"[E1]": 17}}),
        ({"additional_special_tokens": ["[E1]"]}, {"added_tokens": {"[E1]": 17}}),
        ({"additional_special_tokens": ["[E1]"]}, {}),
        ({"extra_special_tokens": [E1]}, {}),
        ({}, {"special_tokens_map": {"additional_special_tokens": ["[E1]"]}}),
    ],
)
def test_tokens_that_other_files_add(settings, files, tmp_path):
    """As Transformers adds them, which gives these ids and flags."""
    folder = folder_of_bert(tmp_path, settings, **files)
    for tokenizer in (read_library_tokenizer(folder), read_word_pieces(folder, "BertTokenizer")):
        assert tokenizer.tokenize("a [E1] b") == ["a", "[E1]", "b"]
        assert tokenizer.get_added_vocab() == {"[E1]": 17}
        assert tokenizer.strips_before("[E1]") is ("lstrip" in str(settings))
    (folder / "task.json").write_text("{}")  # of nlpctl, which trained it as tokenizer.json alone reads
    tokenizer = read_library_tokenizer(folder)
    assert "[E1]" not in tokenizer.get_vocab()
    tokenizer.save_pretrained(folder)
    assert "[E1]" not in (folder / "tokenizer_config.json").read_text()


@pytest.mark.parametrize(
    ("settings", "files", "told"),
    [
        ({"added_tokens_decoder": {"x": E1}}, {}, "tokenizer_config.json: .* is no token with a number"),
        ({}, {"added_tokens": {"[E1]": "7"}}, "added_tokens.json: .* is no token with a number"),
    ],
)
def test_what_is_no_token_is_refused(settings, files, told, tmp_path):
    with pytest.raises(UserError, match=told):
        read_library_tokenizer(folder_of_bert(tmp_path, settings, **files))


@pytest.mark.parametrize(
    ("settings", "files", "told", "read"),
    [
        ({"added_tokens_decoder": {"20": E1}}, {}, "tokenizer_config.json: the token '[E1]' is left out", {}),
        ({}, {"added_tokens": {"[E1]": 5}}, "added_tokens.json: the token '[E1]' is left out, and read as text", {}),
        (
            {"extra_special_tokens": ["[E1]", "[E2]"]},
            {},
            "'[E2]' is left out, and read as text: the network has 18",
            {"[E1]": 17},
        ),
    ],
)
def test_a_token_that_cannot_be_added_stays_text(settings, files, told, read, tmp_path, capsys):
    """A folder that was fine-tuned without more rows for it is usual, and texts may never spell it."""
    tokenizer = read_library_tokenizer(folder_of_bert(tmp_path, settings, **files))
    assert tokenizer.get_added_vocab() == read and told in capsys.readouterr().err


def test_flags_that_tokenizer_config_gives_a_token(tmp_path):
    content, settings = bert()
    content["added_tokens"].append(added(17, "cat") | {"single_word": True})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    for alone, pieces in ((True, ["[UNK]"]), (False, ["cat", "cat"])):
        decoder = {"17": {"content": "cat", "single_word": alone}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "added_tokens_decoder": decoder}))
        assert read_library_tokenizer(tmp_path).tokenize("catcat") == pieces


def test_special_tokens_that_are_split_as_any_text(tmp_path):
    library = bytes_bpe()
    library.add_special_tokens(["[E1]"])
    library.add_tokens(["[E2]"])
    for split in (False, True):
        tokenizer = read_library_tokenizer(written(tmp_path, library, split_special_tokens=split))
        tokens = tokenizer.tokenize("a [E1] [E2]")
        assert ("[E1]" in tokens, "[E2]" in tokens) == (not split, True)


def test_a_word_that_is_named_as_a_special_token(tmp_path):
    """Around texts stand others: it is a word like any. Padding and the like are none, which is told."""
    tokenizer = read_library_tokenizer(folder_of_bert(tmp_path, {"cls_token": "hello", "mask_token": "b"}))
    assert tokenizer.tokenize("hello b") == ["hello", "[UNK]"]
    assert tokenizer.build_inputs_with_special_tokens([]) == [2, 3]
    (told,) = doubts(tokenizer, tmp_path)
    assert told == "mask_token is 'b', so that word is unknown in texts: name a token that no text has"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda content, settings: None, "Hello 中国 ￥3～4"),
        (lambda content, settings: content["normalizer"].update(strip_accents=True), "Hello café"),
        (lambda content, settings: content.update(normalizer=None), "Hello"),
        (lambda content, settings: content.update(normalizer={"type": "Lowercase"}), "中国"),
        (lambda content, settings: content["normalizer"].update(strip_accents=False), "café"),
        (lambda content, settings: (content["normalizer"].update(lowercase=False, strip_accents=True),
                                    settings.update(do_lower_case=False)), "Hello café"),
        (lambda content, settings: content["normalizer"].update(handle_chinese_chars=False), "中国"),
        (lambda content, settings: content["normalizer"].update(clean_text=False), "a\u200bb"),
        (lambda content, settings: content.update(pre_tokenizer={"type": "WhitespaceSplit"}), "a,b"),
        (lambda content, settings: content["model"].update(max_input_chars_per_word=200), "a" * 120),
        (lambda content, settings: content["model"].update(continuing_subword_prefix="@@"), "aa"),
        (lambda content, settings: content["model"].update(unk_token="b"), "x"),
        (lambda content, settings: content["added_tokens"].append(added(17, "new york")), "a new york"),
        (lambda content, settings: content["added_tokens"].append(added(5, "hello")), "ahello"),
        (lambda content, settings: content.update(post_processor=None), "a"),
        (lambda content, settings: content.update(post_processor=template("[CLS]0 A0", PAIR)), "a"),
        (lambda content, settings: content.update(
            post_processor=template("[CLS]0 A0 [SEP]0", PAIR.replace("1", "0"))), "a"),
        (lambda content, settings: settings.update(sep_token="[MASK]"), "a"),
        (lambda content, settings: settings.update(do_basic_tokenize=False), "a,b"),
        (lambda content, settings: settings.update(never_split=["Hello"]), "Hello"),
    ],
)  # fmt: skip
def test_a_wordpiece_is_read_as_its_file_says(change, text, tmp_path):
    content, settings = bert()
    change(content, settings)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    library = Tokenizer.from_str(json.dumps(content))
    encoder = LibraryEncoder(read_library_tokenizer(tmp_path))
    for second in (None, "b"):
        (row,) = encoder.encode([text], None if second is None else [second], 200)
        expected = library.encode(text, second)
        assert (row.input_ids, row.token_type_ids) == (expected.ids, expected.type_ids)


def added(id, content):
    return {"id": id, "content": content, "special": False, "normalized": True} | dict.fromkeys(
        ("single_word", "lstrip", "rstrip"), False
    )


# -- sentencepiece models ---------------------------------------------------------------------------------------------

LAYOUTS = {
    "xlm-roberta": ("sentencepiece.bpe.model", {"unk_id": 0, "bos_id": 1, "eos_id": 2}),
    "albert": (
        "spiece.model",
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
         "normalization_rule_name": "nmt_nfkc_cf"},
    ),
    "deberta-v2": (
        "spm.model",
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]",
         "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("model_type", LAYOUTS)
def test_a_sentencepiece_model_gives_its_own_ids(model_type, tmp_path):
    """With fairseq's numbers for XLM-R; ALBERT's accents and case are removed before."""
    spm = pytest.importorskip("sentencepiece")
    file, options = LAYOUTS[model_type]
    made = io.BytesIO()
    options |= {"vocab_size": 150, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
    spm.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=made, **options)
    (tmp_path / file).write_bytes(made.getvalue())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    reference = spm.SentencePieceProcessor(model_proto=made.getvalue())
    tokenizer = read_library_tokenizer(tmp_path)
    for text in [*CORPUS, "  Ｆine ①  ﬁne 3,000, \t\n x", "cafe\u0301 ZZZ龘", ""]:
        given = text
        if model_type == "albert":
            letters = unicodedata.normalize("NFKD", text)
            given = "".join(letter for letter in letters if not unicodedata.combining(letter)).lower()
        ids = reference.encode(given)
        if model_type == "xlm-roberta":
            ids = [3 if id == 0 else id + 1 for id in ids]
        assert tokenizer.ids(text) == ids, text
    (row,) = LibraryEncoder(tokenizer).encode(["fine"], ["bed"], 30)
    forms = tokenizer.convert_ids_to_tokens(row.input_ids)
    ends = ["<s>", "</s>", "</s>", "</s>"] if model_type == "xlm-roberta" else ["[CLS]", "[SEP]", "[SEP]"]
    assert [form for form in forms if form in ends] == ends
    assert (row.token_type_ids[-1:] or [0]) == [0 if model_type == "xlm-roberta" else 1]
    assert tokenizer.mask_token_id < len(tokenizer)


def test_a_token_added_to_a_sentencepiece_model(tmp_path):
    folder = with_sentencepiece_model(written(tmp_path, unigram()))
    size = len(read_library_tokenizer(folder))
    (folder / "added_tokens.json").write_text(json.dumps({"[E1]": size}))
    assert read_library_tokenizer(folder).tokenize("the [E1]")[-1] == "[E1]"


def field(number, value):
    """A field of a protobuf message: bytes, or a number."""
    if isinstance(value, bytes):
        return bytes([number << 3 | 2, len(value)]) + value
    low = [value >> shift & 127 | 128 for shift in range(0, 70, 7)]
    return bytes([number << 3, *low[:-1], low[-1] & 127])


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\x0a" + b"\xff" * 11, b"no model", b"\x0a\x03\x0a\x01"),
        # A number where bytes should be: that many zeros could be made. To protobuf the field is absent.
        *(field(1, field(1, number)) for number in (1 << 40, 1 << 66)),
        field(1, field(1, b"a")) + field(3, field(2, 1 << 40)),
        field(1, field(1, b"a") + field(2, 1 << 40)),
        pytest.param(field(1, field(1, b"a")) * 2_000_001, id="more pieces than are read"),
    ],
)
def test_a_damaged_sentencepiece_model_is_told(content, tmp_path):
    (tmp_path / "spm.model").write_bytes(content)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "DebertaV2TokenizerFast"}')
    with pytest.raises(UserError, match="is no sentencepiece model|has no piece"):
        read_library_tokenizer(tmp_path)
