"""Vocabularies from text: contents, order, determinism; and folders that PaddleNLP loads without a network."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
from paddlenlp.transformers import AutoTokenizer, RobertaTokenizer

from nlpctl.data.text import vocabulary
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.vocabulary import SPECIAL_TOKENS, TOKENIZER_CLASSES, build_vocabulary, make_tokenizer
from nlpctl.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
TEXTS = ("房间很好，房间很大！", "lower lowest newer newest widest", "Café 3.5 é [MASK]", "low low low", "罕")


def test_special_tokens_then_characters_then_pieces():
    pieces = build_vocabulary(TEXTS, 200, 1, lowercase=True)
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(pieces) == len(set(pieces)) <= 200
    assert {"房", "间", "，", "！", "罕", "l", "##l", "é".replace("é", "e"), "3", "."} <= set(pieces)
    assert "##房" not in pieces and "##，" not in pieces  # they always stand alone
    characters = [len(piece.removeprefix("##")) == 1 for piece in pieces[5:]]
    assert characters == sorted(characters, reverse=True)
    assert {"low", "##est"} <= set(pieces)
    # Lower-cased, accents stripped; the tokens of a literal "[MASK]" are not special here.
    assert not {"C", "é", "Café"} & set(pieces)


def test_case_is_kept_on_request():
    pieces = set(build_vocabulary(TEXTS, 200, 1, lowercase=False))
    assert {"C", "é", "##é"} <= pieces


def test_limits():
    pieces = build_vocabulary(TEXTS, 200, 2, lowercase=True)
    assert "房" in pieces and "罕" not in pieces and "大" not in pieces
    for size in (6, 7, 20, 40):
        assert len(build_vocabulary(TEXTS, size, 1, lowercase=True)) <= size
    # The frequent characters are those kept when there is no room for all.
    assert set(build_vocabulary(TEXTS, 9, 1, lowercase=True)[5:]) == {"e", "##e", "w", "##w"}
    assert build_vocabulary((), 100, 1, lowercase=True) == [*SPECIAL_TOKENS.values()]
    with pytest.raises(UserError, match="no room besides the 5 special tokens"):
        build_vocabulary(TEXTS, 5, 1, lowercase=True)


def test_order_of_texts_does_not_matter():
    assert build_vocabulary(TEXTS, 60, 1, True) == build_vocabulary(TEXTS[::-1], 60, 1, True)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_COUNTED_WORDS", 50)
    texts = (f"common word{number} {number}" for number in range(5000))
    pieces = build_vocabulary(texts, 500, 2, lowercase=True)
    assert "common" in pieces


MAKE = """
import hashlib, sys
from nlpctl.data.text.vocabulary import build_vocabulary
words = ["".join(chr(97 + (i * k) % 26) for k in range(1, 2 + i % 7)) for i in range(400)]
texts = [" ".join(words[i : i + 12]) + " 中文房间"[: i % 6] for i in range(0, 400, 3)]
pieces = build_vocabulary(texts, 150, 1, True)
sys.stdout.write(f"{len(pieces)} {hashlib.sha256(chr(10).join(pieces).encode()).hexdigest()}")
"""


@pytest.mark.slow
def test_same_bytes_in_every_process():
    """The trainer of the tokenizers library alone would not: it numbers by hash map order."""
    found = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", MAKE], env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1
    assert found.pop().startswith("150 ")  # full, so that ties at the end had to be broken


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*arguments):
        raise AssertionError(f"network access: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("architecture", TOKENIZER_CLASSES)
def test_written_tokenizer_loads_offline(architecture, lowercase, tmp_path, no_network):
    pieces = build_vocabulary(TEXTS, 200, 1, lowercase)
    tokenizer = make_tokenizer(pieces, architecture, lowercase)
    tokenizer.save_pretrained(tmp_path / "model")
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert tokenizer.do_lower_case is lowercase
    assert tokenizer.convert_ids_to_tokens(list(range(len(pieces)))) == pieces
    text = "房间 lowest Newer"
    for load in (AutoTokenizer, RobertaTokenizer) if architecture == "roberta" else (AutoTokenizer,):
        again = load.from_pretrained(str(tmp_path / "model"))
        assert type(again).__name__ == TOKENIZER_CLASSES[architecture] and not again.added_tokens_encoder
        assert again.all_special_ids == [1, 3, 0, 2, 4]
        assert again(text)["input_ids"] == build_encoder(tokenizer).encode([text], None, 99)[0].input_ids
    # No path of this machine in the files, so that the same folder can be made again byte for byte.
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "model").iterdir()}
    assert sorted(files) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert str(tmp_path) not in "".join(files.values())
    assert json.loads(files["tokenizer_config.json"])["do_lower_case"] is lowercase


def test_written_files_are_the_same_every_time(tmp_path):
    sums = set()
    for name in ("one", "two"):
        make_tokenizer(build_vocabulary(TEXTS, 200, 1, True), "ernie", True).save_pretrained(tmp_path / name)
        parts = [path.name.encode() + path.read_bytes() for path in sorted((tmp_path / name).iterdir())]
        sums.add(hashlib.sha256(b"".join(parts)).hexdigest())
    assert len(sums) == 1
