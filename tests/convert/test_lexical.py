"""LAC as a target: what the dictionaries and the embedding say, and the refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nlpctl.convert.lexical import is_lexical, lexical_analyser
from nlpctl.convert.source import read_static
from nlpctl.convert.variables import StaticVariable
from nlpctl.errors import UserError
from nlpctl.models.source import package_folder

TRAINED, UNTRAINED = 1.5, 0.05
WORDS = ["a", ",", "中", "，", "Ａ", "A", "。", "OOV"]
TAGS = ["n-B", "n-I", "O"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The dictionaries, and params/ below them."""
    (tmp_path / "word.dic").write_text("".join(f"{i}\t{word}\n" for i, word in enumerate(WORDS)))
    (tmp_path / "tag.dic").write_text("".join(f"{i}\t{tag}\n" for i, tag in enumerate(TAGS)))
    (tmp_path / "params").mkdir()
    return tmp_path


def variables(prefix: str = "", untrained: str = "，ＡA。") -> dict[str, StaticVariable]:
    """A LAC of 4 hidden units; the embedding's rows of `untrained` are as they were initialised."""
    embedding = np.full((len(WORDS), 6), TRAINED, np.float32)
    for word in untrained:
        embedding[WORDS.index(word)] = UNTRAINED
    arrays = {"word_emb": embedding, "gru_0.w_0": np.ones((4, 12), np.float32)}
    arrays |= {"fc_4.w_0": np.ones((8, 3), np.float32), "crfw": np.ones((5, 3), np.float32)}
    return {f"{prefix}{name}": StaticVariable(f"{prefix}{name}", array) for name, array in arrays.items()}


def message(raised: pytest.ExceptionInfo[UserError]) -> str:
    return str(raised.value)


@pytest.mark.parametrize("prefix", ["", "@HUB_lac@"])
def test_sizes_follow_from_shapes(folder: Path, prefix: str) -> None:
    found = variables(prefix)
    assert is_lexical(found)
    target = lexical_analyser(found, folder / "params", None).target
    assert target.labels == tuple(TAGS) and target.description.task == "lexical_analysis" and target.description.trained
    assert target.description.recipe["model"] == {"head": "crf"}
    expected = {"vocab_size": 10, "embedding_size": 6, "hidden_size": 4, "reset_gate": "before", "pad_token_id": 8}
    assert expected.items() <= target.config.items()
    assert target.tokenizer.vocabulary == (*WORDS, "[PAD]", "[SEP]")


def test_what_was_never_trained_is_read_by_a_form_that_was(folder: Path) -> None:
    analyser = lexical_analyser(variables(), folder / "params", None)
    # There is no trained full stop for 。 here, so it stays what it is.
    assert analyser.stand_ins == {"，": ",", "Ａ": "a", "A": "a"}
    assert analyser.target.tokenizer.ids("ＡA，。中b") == [0, 0, 1, 6, 2, 7]
    assert "3 characters" in analyser.describe()[0]


def test_what_was_trained_stays(folder: Path) -> None:
    analyser = lexical_analyser(variables(untrained="，"), folder / "params", None)
    assert analyser.stand_ins == {"，": ","}
    assert analyser.target.tokenizer.ids("ＡA") == [4, 5]


def test_the_replacements_of_the_dictionary_win(folder: Path) -> None:
    (folder / "q2b.dic").write_text("，\t中\n")
    analyser = lexical_analyser(variables(), folder / "params", None)
    assert analyser.target.tokenizer.ids("，A") == [2, 0] and set(analyser.stand_ins) == {"Ａ", "A"}


def test_dictionaries_elsewhere(folder: Path) -> None:
    with pytest.raises(UserError) as raised:
        lexical_analyser(variables(), folder / "a" / "b" / "c", None)
    assert "no dictionaries beside" in message(raised)
    assert lexical_analyser(variables(), folder / "a" / "b" / "c", folder).target.labels == tuple(TAGS)


def test_dictionaries_of_another_model(folder: Path) -> None:
    (folder / "tag.dic").write_text("0\tn-B\n1\tO\n")
    with pytest.raises(UserError) as raised:
        lexical_analyser(variables(), folder / "params", None)
    assert "tag.dic has 2 tags and the network scores 3" in message(raised)
    (folder / "tag.dic").unlink()
    with pytest.raises(UserError) as raised:
        lexical_analyser(variables(), folder / "params", None)
    assert "no tag.dic" in message(raised)
    (folder / "word.dic").write_text("0\ta\n")
    with pytest.raises(UserError):
        lexical_analyser(variables(), folder / "params", None)


def test_no_lac(folder: Path) -> None:
    found = variables()
    del found["crfw"]
    assert not is_lexical(found)
    with pytest.raises(UserError) as raised:
        lexical_analyser(found, folder / "params", None)
    assert "no variable crfw" in message(raised)


def test_jieba_reads_half_of_the_punctuation_as_noise() -> None:
    """The reason for the stand-ins, on the real parameters: these rows are as they were initialised."""
    source = package_folder("python:jieba/lac_small/model_baseline")
    model = read_static(source)
    embedding = model.variables["word_emb"].array
    analyser = lexical_analyser(model.variables, source, None)
    ids = {word: index for index, word in enumerate(analyser.target.tokenizer.vocabulary)}
    for written, read in zip("，。！？：；（）“”、Ａ％A０", ",.!?:;()\"\",a%a0", strict=True):
        assert np.abs(embedding[ids[written]]).max() <= 0.1 < np.abs(embedding[ids[read]]).max()
        assert analyser.stand_ins[written] == read
    assert not set("《》·中a1") & set(analyser.stand_ins)
