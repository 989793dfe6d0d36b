"""Words that a tokenizer keeps whole: ids, rows, what is saved, and both tokenizers alike."""

from __future__ import annotations

import json
import pickle

import numpy as np
import paddle
import pytest

from nlpctl.config.schema import ModelSection, ScratchSection
from nlpctl.data.text.tokenizers import PaddleTextEncoder, build_encoder
from nlpctl.data.text.units import UnitSettings, UnitTokenizer
from nlpctl.errors import UserError
from nlpctl.models.add_tokens import add_tokens, read_tokens
from nlpctl.models.families import Head
from nlpctl.models.folder import ModelDescription, save_model_folder
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.masked_lm import MaskedWords, mixed
from tests.helpers.paddle_tokenizer import paddle_tokenizer

WORDS = ["abc", "新冠", "a"]
CLASSIFIER = Head("SequenceClassification")
LANGUAGE = Head("MaskedLM", adapt=lambda kind: mixed(MaskedWords, kind), labelled=False, predicts_words=True)
SECTIONS = {"data": {"columns": {}, "max_seq_length": 8, "doc_stride": 4, "unit": "words", "tokenizer": "auto"}}


def rows(network, name):
    return dict(network.state_dict())[name].numpy()


def trained_language_model(paddle_folder, family):
    """A folder with a language model whose output layer has a bias that says something."""
    folder = paddle_folder(family, "ForMaskedLM")
    state = paddle.load(str(folder / "model_state.pdparams"))
    names = [name for name in state if name.endswith(("decoder.bias", "decoder_bias", "lm_head.bias", "lm_head_bias"))]
    bias = paddle.randn(state[names[0]].shape)  # PaddleNLP writes it under two names
    state.update(dict.fromkeys(names, bias))
    paddle.save(state, str(folder / "model_state.pdparams"))
    return folder


@pytest.mark.parametrize("family", ["Ernie", "Bert", "Electra", "Roberta"])
def test_rows_and_bias_start_as_the_mean_of_the_pieces(paddle_folder, family):
    folder = trained_language_model(paddle_folder, family)
    if family == "Roberta":
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    section = ModelSection(name_or_path=str(folder))
    plain = load_to_train(section, LANGUAGE, (), vocabulary_texts=None)
    size = len(plain.tokenizer)
    grown = load_to_train(
        ModelSection(name_or_path=str(folder), add_tokens=tuple(WORDS)), LANGUAGE, (), vocabulary_texts=None
    )
    added = grown.changes.added
    assert added.new == ("abc", "新冠") and added.known == ("a",)
    assert grown.network.config.vocab_size == size + 2 == len(grown.tokenizer)
    unknown = plain.tokenizer.unk_token_id
    pieces = plain.tokenizer.convert_tokens_to_ids(plain.tokenizer.tokenize("abc"))
    assert added.pieces == {size: pieces, size + 1: [unknown, unknown]}
    checked = 0
    state = {name: value.numpy() for name, value in plain.network.state_dict().items()}
    for name, value in grown.network.state_dict().items():
        now, before = value.numpy(), state[name]
        if now.shape == before.shape:
            assert now.tobytes() == before.tobytes(), name
            continue
        assert now.shape[0] == size + 2 and now[:size].tobytes() == before.tobytes(), name
        assert np.array_equal(now[size], before[pieces].mean(0)), name
        assert np.array_equal(now[size + 1], before[unknown]), name
        checked += 1
    assert checked >= 2  # the embedding, and the output layer's bias at least
    ids = paddle.to_tensor([[1, size, size + 1, 2]])
    _, best = grown.network(ids, masked_positions=paddle.to_tensor([[1]]))
    assert best.shape == [1, 1, 5]


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_folder_reads_as_the_network_was_trained(tmp_path, lowercase):
    """Saved and loaded again, also after the folder that it came from has changed; then once more with more words."""
    scratch = ScratchSection(min_frequency=1, hidden_size=8, num_hidden_layers=1, intermediate_size=8,
                             lowercase=lowercase)  # fmt: skip
    words = ("New York", "新冠肺炎", "C++", "b")
    model = load_to_train(
        ModelSection(from_scratch=scratch, add_tokens=words),
        CLASSIFIER,
        ("x", "y"),
        vocabulary_texts=lambda: ["a b c new york 新 冠 肺 炎 + C N Y"],
    )
    texts = ["I love New York", "new york,NEW YORK", "新冠肺炎的新冠", "C++ c++ abcC++", "New  York [MASK]New York"]
    expected = [model.tokenizer.tokenize(text) for text in texts]
    assert ("new york" if lowercase else "New York") in expected[0] and "新冠肺炎" in expected[2]
    folder = tmp_path / "model"
    save_model_folder(folder, model.network, model.tokenizer, ModelDescription("t", ("x", "y"), SECTIONS))
    known = json.loads((folder / "added_tokens.json").read_text())
    assert list(known.values()) == [len(model.tokenizer) - 3 + i for i in range(3)]
    from nlpctl.models.families import family_of_config
    from nlpctl.models.tokenizer import load_tokenizer

    again = load_tokenizer(folder, family_of_config({"model_type": "ernie"}, "x"))
    assert [again.tokenize(text) for text in texts] == expected and len(again) == len(model.tokenizer)
    section = ModelSection(name_or_path=str(folder), add_tokens=(*words, "york new"))
    (folder / "task.json").unlink()
    more = load_to_train(section, CLASSIFIER, ("x", "y"), vocabulary_texts=None)
    assert more.changes.added.new == ("york new",) and len(more.changes.added.known) == 4
    old, new = (rows(each.network, "ernie.embeddings.word_embeddings.weight") for each in (model, more))
    assert new[:-1].tobytes() == old.tobytes() and len(new) == len(old) + 1
    loaded = load_trained(folder, CLASSIFIER)
    assert loaded.network.config.vocab_size == len(model.tokenizer)


@pytest.mark.parametrize("lowercase", [True, False])
def test_paddlenlp_gives_the_same_ids(tmp_path, lowercase):
    scratch = ScratchSection(min_frequency=1, hidden_size=8, num_hidden_layers=1, lowercase=lowercase)
    words = ("New York", "新冠肺炎", "C++", "Ａ", "é")
    model = load_to_train(
        ModelSection(from_scratch=scratch, add_tokens=words),
        CLASSIFIER,
        ("x", "y"),
        vocabulary_texts=lambda: ["a b c new york 新 冠 肺 炎 + C N Y x"],
    )
    fast = build_encoder(model.tokenizer)
    slow = PaddleTextEncoder(paddle_tokenizer(model.tokenizer, tmp_path))
    texts = ["", *words, "xNew YorkC++新冠肺炎y", "new york é ａ a", "NewYork"]  # PaddleNLP finds no other spellings
    texts.append("新 冠肺炎 c++")
    for encoder in (fast, pickle.loads(pickle.dumps(fast))):
        for pairs in (None, texts[::-1]):
            for length in (6, 100) if pairs is None else (100,):
                assert encoder.encode(texts, pairs, length) == slow.encode(texts, pairs, length)
    ids = [piece for row in slow.encode(texts, None, 100) for piece in row.input_ids]
    assert set(range(len(model.tokenizer) - len(model.changes.added.new), len(model.tokenizer))) <= set(ids)


def test_units_of_own_networks():
    tokenizer = UnitTokenizer(["[PAD]", "[UNK]", "[SEP]", "a"], UnitSettings("characters", True))
    added = add_tokens(tokenizer, ["新", "B", "a"])
    assert added.tokenizer.vocabulary[4:] == ("新", "b") and added.known == ("a",)
    assert added.tokenizer.ids("新Ba") == [4, 5, 3] and added.pieces == {4: [1], 5: [1]}
    with pytest.raises(UserError, match="'新冠' is never one unit: the network reads characters"):
        add_tokens(tokenizer, ["新冠"])


def test_a_list_or_a_file_of_words(tmp_path):
    file = tmp_path / "words.txt"
    file.write_bytes("\ufeff新冠\r\n\n New York \nb\n\n".encode())
    assert read_tokens(str(file)) == ["新冠", "New York", "b"]
    assert read_tokens(("a", " b ")) == ["a", "b"]
    file.write_bytes(b"ok\n\xff\n")
    with pytest.raises(UserError, match=r"words.txt:2: not UTF-8"):
        read_tokens(str(file))
    file.write_text("\n\n")
    with pytest.raises(UserError, match="holds no words"):
        read_tokens(str(file))
    with pytest.raises(UserError, match="blank"):
        read_tokens(("a", " "))
    with pytest.raises(UserError, match="line break: 'a.nb'"):
        read_tokens(("c", "a\nb"))
