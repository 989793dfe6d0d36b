"""Folders of nlpctl's own networks: built, saved, loaded bit by bit, refused where they are damaged."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection, ScratchSection
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.units import UnitEncoder
from nlpctl.errors import UserError
from nlpctl.models.crf import with_crf
from nlpctl.models.families import OWN, Head
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained

TEXTS = ["这家酒店很好", "the room is great", "太差了 terrible"] * 3
LABELS = ("neg", "pos", "other")
HEADS = {name: Head("TokenClassification" if name == "bigru" else "SequenceClassification") for name in OWN.values()}
HEADS.pop("ensemble")  # made of other networks: tests/models/test_ensemble.py


def build(architecture, head=None, labels=LABELS, **values):
    paddle.seed(5)
    scratch = ScratchSection(architecture, **({"hidden_size": 8, "embedding_size": 6} | values))
    model = ModelSection(from_scratch=scratch)
    return load_to_train(model, head or HEADS[architecture], labels, vocabulary_texts=lambda: iter(TEXTS))


def saved(model, folder):
    save_model_folder(folder, model.network, model.tokenizer, make_description(load_recipe("quickstart"), model.labels))
    return folder


def outputs(model, text="这家酒店 great x"):
    encoder = build_encoder(model.tokenizer)
    assert isinstance(encoder, UnitEncoder)
    model.network.eval()
    found = model.network(paddle.to_tensor([encoder.encode([text], None, 20)[0].input_ids]))
    return (found[0] if isinstance(found, tuple) else found).numpy()


@pytest.mark.parametrize("architecture", HEADS)
def test_it_is_loaded_as_it_was_saved(tmp_path, architecture):
    model = build(architecture, unit="words" if architecture == "textcnn" else "characters", dropout=0.25)
    again = load_trained(saved(model, tmp_path / "out"), HEADS[architecture])
    assert again.labels == LABELS and again.fresh == () and again.ignored == ()
    assert again.network.config.to_dict() == model.network.config.to_dict() | {
        "architectures": [type(model.network).__name__]
    }
    assert again.tokenizer.vocabulary == model.tokenizer.vocabulary
    assert again.tokenizer.settings == model.tokenizer.settings
    assert np.array_equal(outputs(again), outputs(model))


def test_a_crf_is_put_on_a_trained_tagger(tmp_path):
    folder = saved(build("bigru"), tmp_path / "out")
    model = load_to_train(
        ModelSection(name_or_path=str(folder)), Head("TokenClassification", adapt=with_crf), LABELS,
        vocabulary_texts=None,
    )  # fmt: skip
    assert model.fresh == ("crf.transitions",) and model.extension.kept == LABELS
    again = load_trained(folder, HEADS["bigru"])
    assert np.array_equal(outputs(model), outputs(again))


def test_vectors_are_in_the_embedding(tmp_path):
    (tmp_path / "vectors.txt").write_text("酒 1 2 3 4 5 6\n")
    model = ModelSection(
        from_scratch=ScratchSection("textcnn", embedding_size=6), embeddings=str(tmp_path / "vectors.txt")
    )
    loaded = load_to_train(model, HEADS["textcnn"], LABELS, vocabulary_texts=lambda: iter(TEXTS))
    row = loaded.tokenizer.ids("酒")[0]
    assert loaded.network.base_model.get_input_embeddings().weight.numpy()[row].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_network_without_the_head_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no BiGRUForSequenceClassification"):
        build("bigru", Head("SequenceClassification"))
    folder = saved(build("textcnn"), tmp_path / "out")
    with pytest.raises(UserError, match="there is no TextCNNForTokenClassification"):
        load_trained(folder, Head("TokenClassification"))


@pytest.mark.parametrize("change", ["no config", "no unit", "unit of another type", "entry twice", "no padding"])
def test_a_damaged_tokenizer_is_refused(tmp_path, change):
    folder = saved(build("bilstm"), tmp_path / "out")
    config, vocabulary = folder / "tokenizer_config.json", folder / "vocab.txt"
    values, lines = json.loads(config.read_text()), vocabulary.read_text().splitlines()
    if change == "no config":
        config.unlink()
    elif change in ("no unit", "unit of another type"):
        del values["unit"]
        values |= {} if change == "no unit" else {"unit": ["characters"]}
        config.write_text(json.dumps(values))
    else:
        lines[0 if change == "no padding" else -1] = lines[5] if change == "entry twice" else "padding"
        vocabulary.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UserError, match="the tokenizer cannot be loaded") as caught:
        load_trained(folder, HEADS["bilstm"])
    assert str(folder) in caught.value.problems[0].where and caught.value.problems[0].hint


def test_a_vocabulary_of_another_model_is_refused(tmp_path):
    folder = saved(build("bilstm"), tmp_path / "out")
    with (folder / "vocab.txt").open("a") as stream:
        stream.write("more\n")
    with pytest.raises(UserError, match="entries and the embedding only"):
        load_trained(folder, HEADS["bilstm"])
