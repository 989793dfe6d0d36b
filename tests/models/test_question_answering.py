"""Networks that answer questions: every family with such a head, and those that take no token types."""

from __future__ import annotations

import pickle

import numpy as np
import paddle
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection
from nlpctl.data.batches.collate import pad_batch
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained

HEAD = Head("QuestionAnswering", labelled=False)


def load(folder):
    return load_to_train(ModelSection(name_or_path=str(folder)), HEAD, (), vocabulary_texts=None)


def logits(model):
    """Start and end logits of a question with two contexts, the second one padded."""
    encoder = build_encoder(model.tokenizer)
    rows = [encoder.assemble([5, 6], [7, 8, 9]), encoder.assemble([5, 6], [7])]
    pad_type = encoder.pad_token_type_id if encoder.uses_token_types else None
    batch = pad_batch(rows, encoder.pad_id, pad_type)
    model.network.eval()
    return [output.numpy() for output in model.network(**{name: paddle.to_tensor(a) for name, a in batch.items()})]


@pytest.mark.parametrize("family", ["Bert", "Ernie", "Roberta", "Electra", "RoFormer", "DistilBert"])
def test_load_run_save_and_load_again(paddle_folder, tmp_path, family):
    model = load(paddle_folder(family))
    assert model.labels == () and model.fresh
    starts, ends = logits(model)
    assert starts.shape == ends.shape == (2, 8) and not np.array_equal(starts, ends)
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, make_description(load_recipe("quickstart"), ()))
    for again in (load_trained(tmp_path / "out", HEAD), load(tmp_path / "out")):  # to be asked, and trained further
        assert again.fresh == ()
        np.testing.assert_array_equal(logits(again), (starts, ends))


def test_no_token_types_for_a_network_that_takes_none(paddle_folder, tmp_path):
    """PaddleNLP's DistilBertTokenizer makes them all the same, and the network would fail on them."""
    model = load(paddle_folder("DistilBert"))
    encoder = build_encoder(model.tokenizer)
    assert not encoder.uses_token_types and not pickle.loads(pickle.dumps(encoder)).uses_token_types
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, make_description(load_recipe("quickstart"), ()))
    assert not build_encoder(load_trained(tmp_path / "out", HEAD).tokenizer).uses_token_types
    assert build_encoder(load(paddle_folder("Bert")).tokenizer).uses_token_types


def test_a_classifier_cannot_answer_questions(paddle_folder):
    """Its two outputs bear the names of start and end."""
    with pytest.raises(UserError, match="its class is ErnieForSequenceClassification"):
        load_trained(paddle_folder("Ernie", "ForSequenceClassification"), HEAD)
