"""Language models from and to disk: heads by name, tied layers, scores at positions as PyTorch computes them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddlenlp import transformers

from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.masked_lm import NO_TARGET, MaskedWords, mixed

HUGGINGFACE = Path(__file__).parent / "huggingface"
MASKED = ["bert-masked-lm", "roberta-masked-lm", "electra-masked-lm", "ernie-masked-lm"]
WORDS = Head("MaskedLM", adapt=functools.partial(mixed, MaskedWords), labelled=False, predicts_words=True)


def to_train(folder, head=WORDS, labels=()):
    return load_to_train(ModelSection(name_or_path=str(folder)), head, labels, vocabulary_texts=None)


def all_scores(network, ids):
    network.eval()
    ids = paddle.to_tensor(ids)
    positions = paddle.arange(ids.shape[1]).unsqueeze(0).tile([ids.shape[0], 1])
    return network.scores_at(positions, ids, None).numpy()


@pytest.mark.parametrize("name", MASKED)
def test_same_words_as_pytorch(name):
    expected = json.loads((HUGGINGFACE / name / "expected.json").read_text())
    real = np.array(expected["input_ids"]) != 0
    for model in (load_trained(HUGGINGFACE / name, WORDS), to_train(HUGGINGFACE / name)):
        assert all("pooler" in parameter for parameter in model.fresh)
        ours = all_scores(model.network, expected["input_ids"])
        np.testing.assert_allclose(ours[real], np.array(expected["words"])[real], atol=2e-5)


@pytest.mark.parametrize("name", MASKED)
def test_saved_and_loaded_again(name, tmp_path):
    model = load_trained(HUGGINGFACE / name, WORDS)
    ids = [[1, 7, 8, 4, 2]]
    before = all_scores(model.network, ids)
    model.network.save_pretrained(str(tmp_path))
    model.tokenizer.save_pretrained(str(tmp_path))
    again = load_trained(tmp_path, WORDS)
    assert again.ignored == () and again.fresh == ()
    np.testing.assert_array_equal(all_scores(again.network, ids), before)
    # The last layer is the word embedding itself: changing one changes the other.
    table = again.network.get_input_embeddings().weight
    table.set_value(table.numpy() + 1.0)
    assert np.abs(all_scores(again.network, ids) - before).max() > 0.1
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"][0] in vars(transformers)  # a class of PaddleNLP's


def test_training_reaches_the_tied_layer_once():
    network = to_train(HUGGINGFACE / "bert-masked-lm").network
    names = [name for name, _ in network.named_parameters()]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.endswith("decoder.weight")]  # it is the embedding's
    ids, targets = paddle.to_tensor([[1, 7, 8, 4, 2]]), paddle.to_tensor([[9]])
    losses, _, _ = network(ids, masked_positions=paddle.to_tensor([[3]]), targets=targets)
    losses.sum().backward()
    gradient = network.get_input_embeddings().weight.grad.numpy()
    assert (np.abs(gradient).sum(-1) > 0).all()  # through the softmax over all words


def test_losses_by_hand_and_padding_does_not_count():
    network = to_train(HUGGINGFACE / "bert-masked-lm").network
    network.eval()
    ids = paddle.to_tensor([[1, 7, 4, 4, 2], [1, 4, 2, 0, 0]])
    positions = paddle.to_tensor([[2, 3], [1, 0]])
    targets = paddle.to_tensor([[5, 6], [11, NO_TARGET]])
    losses, right, counted = (x.numpy() for x in network(ids, masked_positions=positions, targets=targets))
    scores = all_scores(network, ids.numpy()).astype(np.float64)
    for row, column in ((0, 0), (0, 1), (1, 0)):
        logits = scores[row, positions[row, column].item()]
        target = targets[row, column].item()
        assert losses[row, column] == pytest.approx(np.log(np.exp(logits).sum()) - logits[target], abs=1e-5)
        assert right[row, column] == float(logits.argmax() == target)
    assert counted.tolist() == [[1, 1], [1, 0]]
    assert losses[1, 1] == right[1, 1] == 0
    probabilities, words = (x.numpy() for x in network(ids, masked_positions=positions))
    assert probabilities.shape == words.shape == (2, 2, 5)
    assert (np.diff(probabilities, axis=-1) <= 0).all()
    assert words[0, 0, 0] == scores[0, 2].argmax()


def test_another_task_takes_the_encoder_and_nothing_else(tmp_path):
    folder = HUGGINGFACE / "bert-masked-lm"
    language_model = to_train(folder).network
    classifier = to_train(folder, Head("SequenceClassification"), ("neg", "pos"))
    assert set(classifier.fresh) == {
        "classifier.weight", "classifier.bias", "bert.pooler.dense.weight", "bert.pooler.dense.bias"
    }  # fmt: skip
    assert all(name.startswith("cls.predictions.") for name in classifier.ignored) and classifier.ignored
    ours, theirs = classifier.network.state_dict(), language_model.state_dict()
    shared = [name for name in ours if name.startswith("bert.") and "pooler" not in name]
    assert len(shared) == 5 + 2 * 16
    assert all((ours[name].numpy() == theirs[name].numpy()).all() for name in shared)


def test_an_encoder_gets_a_new_head_but_not_a_new_last_layer(paddle_folder):
    folder = paddle_folder("Bert")
    model = to_train(folder)
    assert sorted(set(model.fresh)) == [
        "cls.predictions.decoder.bias", "cls.predictions.decoder_bias", "cls.predictions.layer_norm.bias",
        "cls.predictions.layer_norm.weight", "cls.predictions.transform.bias", "cls.predictions.transform.weight",
    ]  # fmt: skip
    encoder = transformers.BertModel.from_pretrained(str(folder))
    head = model.network.cls.predictions
    np.testing.assert_array_equal(head.decoder.weight.numpy(), encoder.embeddings.word_embeddings.weight.numpy())
    with pytest.raises(UserError, match="never trained"):
        load_trained(folder, WORDS)


def test_paddlenlp_folders_are_taken_whole(paddle_folder):
    folder = paddle_folder("Bert", "ForMaskedLM")
    model = to_train(folder)
    assert model.fresh == () and model.ignored == ()
    stock = transformers.BertForMaskedLM.from_pretrained(str(folder))
    stock.eval()
    ids = [[1, 7, 8, 4, 2]]
    np.testing.assert_allclose(all_scores(model.network, ids), stock(paddle.to_tensor(ids)).numpy(), atol=1e-6)


def test_families_without_a_known_head_are_refused():
    with pytest.raises(UserError, match="'transformer'"):
        mixed(MaskedWords, transformers.AlbertForMaskedLM)
