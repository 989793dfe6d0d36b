"""A tokenizer that an export stores gives PaddleNLP's ids, and opens PaddleNLP's only where it must."""

from __future__ import annotations

import json
import pickle

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import DataSection
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import rows_to_compare
from nlpctl.data.text.stored_tokenizer import FILE, StoredTokenizer, read_stored_tokenizer
from nlpctl.data.text.tokenizers import (
    PROBES,
    FastTextEncoder,
    PaddleTextEncoder,
    build_encoder,
    store_tokenizer,
)
from nlpctl.data.text.vocabulary import build_vocabulary, write_tokenizer
from nlpctl.data.text.wordpiece import CharacterTable, character_table
from nlpctl.errors import UserError

CORPUS = ["the hotel room was unbelievable 中文酒店", "the staff of the hotel 房间"] * 5
PLAIN = ("the hotel 房间 was Unbelievable!", "ÅNGSTRÖM 👍 한국어 中文…", "")


@pytest.fixture(scope="module", params=[("bert", True), ("ernie", False)], ids=str)
def tokenizer(request, tmp_path_factory):
    """PaddleNLP's, with a word that was added."""
    architecture, lowercase = request.param
    folder = tmp_path_factory.mktemp(architecture)
    made = write_tokenizer(folder, build_vocabulary(CORPUS, 300, 1, lowercase), architecture, lowercase)
    made.add_tokens(["qwertz"])
    return made


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    found = tmp_path_factory.mktemp("export")
    store_tokenizer(found, FastTextEncoder(tokenizer))
    return found


def opened(folder, tokenizer, asked=None):
    """The stored tokenizer; `asked` collects when PaddleNLP's is opened."""
    return read_stored_tokenizer(folder, lambda: (asked is not None and asked.append(1)) or tokenizer, character_table)


def test_its_ids_are_those_of_paddlenlp(folder, tokenizer):
    stored, own = build_encoder(opened(folder, tokenizer), "auto"), PaddleTextEncoder(tokenizer)
    texts = [*PROBES, *PLAIN, "a qwertz in a hotel", "xqwertzx"]
    assert (stored.kind, type(stored.tokenizer)) == ("fast", StoredTokenizer)
    for length in (12, 1000):
        assert stored.encode(texts, None, length) == own.encode(texts, None, length)
        assert stored.encode(texts, texts[::-1], length) == own.encode(texts, texts[::-1], length)
    assert stored.overhead(True) == own.overhead(True) and stored.starts(3, True) == own.starts(3, True)
    assert stored.assemble([9, 8], [7]) == own.assemble([9, 8], [7])
    assert stored.forms(range(len(tokenizer))) == own.forms(range(len(tokenizer)))
    again = pickle.loads(pickle.dumps(stored))
    assert again.encode(PLAIN, None, 40) == own.encode(PLAIN, None, 40)


def test_every_character_is_what_paddlenlp_makes_of_it(folder, tokenizer):
    table, expected = opened(folder, tokenizer).characters, CharacterTable(tokenizer.basic_tokenizer)
    for code_points in (range(0x3400), range(0x9F00, 0xAC80), range(0xD700, 0xE010), range(0xF000, 0x10010)):
        assert [table[each] for each in code_points] == [expected[each] for each in code_points]
    assert [table[each] for each in range(0x1F5F0, 0x1FC10)] == [expected[each] for each in range(0x1F5F0, 0x1FC10)]


def test_paddlenlp_is_opened_only_for_what_is_not_stored(folder, tokenizer):
    asked = []
    encoder = build_encoder(opened(folder, tokenizer, asked), "fast")
    encoder.encode(PLAIN, None, 30)
    assert not asked
    encoder.encode(["a [MASK] b [SEP]"], ["[CLS]"], 30)  # text like any other
    assert not asked
    for text in ("a qwertz b", "\U00020000", "x" * 10 + "\U000e0001"):
        encoder.encode([text], None, 30)
    assert asked == [1]
    assert encoder.tokenizer.vocab_size == tokenizer.vocab_size


def test_made_up_rows_do_not_open_paddlenlps(folder, tokenizer):
    """The word that was added is drawn too, and what contains it is left to PaddleNLP."""
    asked, rows = [], task_rows("sequence_classification", DataSection(max_seq_length=64))
    encoder = build_encoder(opened(folder, tokenizer, asked), "fast")
    found = rows_to_compare(rows, None, encoder.tokenizer, 200, masked=False)
    encoder.encode([example.text for example in found.examples], None, 64)
    assert not asked and not found.real and 100 < len(found.examples) < 200
    found = rows_to_compare(rows, None, encoder.tokenizer, 200, masked=True)
    assert len(found.examples) > 190 and all("[MASK]" in example.text for example in found.examples)


def test_an_export_without_it_and_a_damaged_one(folder, tokenizer, tmp_path):
    assert opened(tmp_path, tokenizer) is None
    content = json.loads((folder / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps(content | {"format": 99}))
    assert opened(tmp_path, tokenizer) is None  # of a newer nlpctl: the tokenizer's own files are there too
    for damaged in ({"runs": []}, {"runs": [[0, 9]]}, {"pieces": None}, {"ids": []}):
        (tmp_path / FILE).write_text(json.dumps(content | damaged))
        with pytest.raises(UserError, match="is (incomplete or )?damaged"):
            opened(tmp_path, tokenizer)


def test_ids_with_a_gap_are_not_stored(tmp_path):
    words = build_vocabulary(CORPUS, 300, 1, True)
    last = len(words) - 1
    tokenizer = write_tokenizer(tmp_path, [*words[:-1], words[-2], words[-1]], "bert", True)
    assert tokenizer.convert_tokens_to_ids([words[-2], words[-1]]) == [last, last + 1]  # the last of equal lines counts
    store_tokenizer(tmp_path, FastTextEncoder(tokenizer))
    assert not (tmp_path / FILE).exists()
