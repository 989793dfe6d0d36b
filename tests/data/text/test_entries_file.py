"""A vocabulary in a file, as PaddleNLP's Vocab reads and saves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nlpctl.data.text.units import UnitEncoder, UnitTokenizer, known_share, read_entries, tokenizer_of_entries
from nlpctl.errors import UserError

LINES = ["[PAD]", "房间", "很", "干净", "[UNK]", "clean"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "words.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return tmp_path / "words.txt"


def test_ids_are_those_of_paddlenlp(file: Path) -> None:
    from paddlenlp.data import Vocab

    theirs = Vocab.load_vocabulary(str(file), unk_token="[UNK]", pad_token="[PAD]")
    tokenizer = tokenizer_of_entries(read_entries(file), "words", lowercase=True)
    words = ["很", "干净", "clean", "nowhere"]
    assert [tokenizer.word_ids(word)[0] for word in words] == theirs.to_indices(words)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (theirs["[PAD]"], theirs["[UNK]"])
    assert tokenizer.vocabulary == (*LINES, "[SEP]")
    theirs.to_json(str(file.with_suffix(".json")))
    of_json = tokenizer_of_entries(read_entries(file.with_suffix(".json")), "words", lowercase=True)
    assert of_json.vocabulary == tokenizer.vocabulary and of_json.settings == tokenizer.settings
    assert UnitEncoder(of_json).encode(["房间很clean 啊"], None, 9)[0].input_ids == [1, 2, 5, 4]


def test_special_entries_by_other_names(tmp_path: Path) -> None:
    ids = {"<pad>": 0, "a": 1, "<unk>": 3}
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": None}
    content = {"token_to_idx": ids, "unk_token": "<unk>", "identifiers_to_tokens": names}
    (tmp_path / "vocab.json").write_text(json.dumps(content))
    tokenizer = tokenizer_of_entries(read_entries(tmp_path / "vocab.json"), "characters", lowercase=True)
    assert tokenizer.vocabulary == ("<pad>", "a", "[unused2]", "<unk>", "[SEP]")
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.ids("aAb")) == (0, 3, [1, 1, 3])


def test_of_equal_lines_the_last_counts_as_for_paddlenlp(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "v.txt").write_bytes("\ufeffa\r\n\nb\na\n\n".encode())
    assert read_entries(tmp_path / "v.txt").tokens == ("[unused0]", "[unused1]", "b", "a")
    assert "2 of 4 lines are blank, repeated or a line break" in capsys.readouterr().err


def test_how_much_of_the_text_is_known(file: Path) -> None:
    by_word = tokenizer_of_entries(read_entries(file), "words", lowercase=True)
    by_character = tokenizer_of_entries(read_entries(file), "characters", lowercase=True)
    assert known_share(by_word, ["房间很干净"]) == 1
    assert known_share(by_character, ["房间很干净"]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("v.txt", "\n\n", "holds no entries"),
        ("v.json", '{"token_to_idx": {"a": "b"}}', "no token_to_idx"),
        ("v.json", '{"a": 0}', "no token_to_idx"),
        ("v.json", '{"token_to_idx": {"a": 99999999999}}', "no token_to_idx"),
        ("v.json", '{"token_to_idx": {}}', "holds no entries"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=told):
        read_entries(tmp_path / name)
    with pytest.raises(UserError, match="cannot read the vocabulary"):
        read_entries(tmp_path / "none.txt")


def test_a_line_break_in_an_entry_moves_no_ids(tmp_path: Path) -> None:
    """JSON can hold it, vocab.txt of the run cannot."""
    ids = {"[PAD]": 0, "\n": 1, "a": 2, "x\r\ny": 3, "b\u2028": 4, "[UNK]": 5}
    (tmp_path / "v.json").write_text(json.dumps({"token_to_idx": ids}))
    tokenizer = tokenizer_of_entries(read_entries(tmp_path / "v.json"), "words", lowercase=True)
    tokenizer.save_pretrained(tmp_path)
    again = UnitTokenizer.load(tmp_path, json.loads((tmp_path / "tokenizer_config.json").read_text()))
    assert again.vocabulary[:6] == ("[PAD]", "[unused1]", "a", "[unused3]", "b\u2028", "[UNK]")
