import shutil

import pytest
from paddlenlp.transformers import BertTokenizer

from nlpctl.upstream.tokenizer_files import keep_resources


@pytest.fixture
def tokenizer(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return BertTokenizer.from_pretrained(str(folder))


def test_saving_still_needs_the_source_folder(tmp_path, tokenizer):
    shutil.rmtree(tmp_path / "source")
    with pytest.raises(FileNotFoundError):
        tokenizer.save_pretrained(str(tmp_path / "out"))


def test_kept_in_memory_it_does_not(tmp_path, tokenizer):
    vocabulary = (tmp_path / "source" / "vocab.txt").read_bytes()
    keep_resources(tokenizer)
    (tmp_path / "source" / "vocab.txt").write_text("changed meanwhile")
    tokenizer.save_pretrained(str(tmp_path / "out"))
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == vocabulary


def test_saving_tells_where_it_was_loaded_from_unless_that_is_dropped(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (tmp_path / "special_tokens_map.json").write_text('{"unk_token": "[UNK]"}')
    tokenizer = BertTokenizer.from_pretrained(str(tmp_path))
    for name, told in (("plain", True), ("kept", False)):
        (keep_resources(tokenizer) if name == "kept" else tokenizer).save_pretrained(str(tmp_path / name))
        assert (str(tmp_path) in (tmp_path / name / "tokenizer_config.json").read_text()) is told
    assert BertTokenizer.from_pretrained(str(tmp_path / "kept"))("a a")["input_ids"] == [2, 5, 5, 3]
