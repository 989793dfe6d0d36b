import numpy as np
import paddle
import pytest

from nlpctl.config.checks import READ_BY_ARCHITECTURE
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection, ScratchSection
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.network import max_positions
from nlpctl.models.scratch import make_vocabulary

HEAD = Head("SequenceClassification")

TEXTS = ["这家酒店很好", "the room is great", "太差了 terrible"] * 3
LABELS = ("neg", "pos")
ARCHITECTURES = ["bert", "ernie", "roberta", "electra"]


def build(architecture="ernie", config=None, texts=TEXTS, seed=5, **sizes):
    paddle.seed(seed)
    scratch = ScratchSection(architecture, **({"hidden_size": 16, "intermediate_size": 32} | sizes))
    model = ModelSection(from_scratch=scratch, config=config or {})
    return load_to_train(model, HEAD, LABELS, vocabulary_texts=lambda: iter(texts))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_builds_saves_and_loads(tmp_path, architecture):
    model = build(architecture)
    assert model.network.base_model_prefix == architecture
    assert model.fresh == tuple(model.network.state_dict()) and model.source is None
    assert model.network.config.vocab_size == len(model.tokenizer)
    assert max_positions(model.network) == 512
    ids = model.tokenizer.ids("这家酒店 great")
    assert model.tokenizer.unk_token_id not in ids
    model.network.eval()
    logits = model.network(paddle.to_tensor([ids])).numpy()
    assert logits.shape == (1, 2)
    description = make_description(load_recipe("quickstart"), LABELS)
    save_model_folder(tmp_path / "out", model.network, model.tokenizer, description)
    again = load_trained(tmp_path / "out", HEAD)
    again.network.eval()
    assert again.tokenizer.ids("这家酒店 great") == ids
    np.testing.assert_array_equal(again.network(paddle.to_tensor([ids])).numpy(), logits)


def test_weights_come_from_the_seed():
    first, same, other = (build(seed=seed).network.ernie.encoder.layers[0].linear1.weight.numpy() for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_defaults_and_overrides():
    network = build(config={"hidden_dropout_prob": 0.0}).network
    assert network.config.hidden_dropout_prob == 0.0
    assert network.config.attention_probs_dropout_prob == 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_of_a_transformer(architecture):
    network = build(architecture, dropout=0.3).network
    assert network.config.hidden_dropout_prob == network.config.attention_probs_dropout_prob == 0.3
    layer = getattr(network, architecture).encoder.layers[0]
    assert layer.dropout1.p == layer.self_attn.dropout == 0.3


def test_each_architecture_reads_what_the_check_says():
    """Only these keys change the config or the pieces of a text."""
    other = {"unit": "words", "embedding_size": 24, "kernel_sizes": (5,), "num_hidden_layers": 3}
    other |= {"num_attention_heads": 4, "intermediate_size": 48}

    def made(architecture, **sizes):
        scratch = ScratchSection(architecture, hidden_size=16, min_frequency=1, **sizes)
        _, config, tokenizer = make_vocabulary(scratch, lambda: TEXTS)
        return dict(config), tokenizer.ids("这家酒店很好")

    for architecture, read in READ_BY_ARCHITECTURE.items():
        usual = made(architecture)
        found = {name for name, value in other.items() if made(architecture, **{name: value}) != usual}
        assert found == set(read), architecture


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(UserError, match="num_attention_heads 3 does not divide hidden_size 16"):
        build(num_attention_heads=3)


def test_without_training_text():
    with pytest.raises(UserError, match="(?s)needs training text.*data.train"):
        load_to_train(ModelSection(from_scratch=ScratchSection()), HEAD, LABELS, vocabulary_texts=None)
