"""Networks of which heads, neurons and layers were taken away."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddlenlp import transformers

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.pruned import Kept, PrunedShape, encoder_layers, keep_layers, prune

FAMILIES = ("Ernie", "Bert", "Roberta", "Electra")
LABELS = ("no", "yes")
KEPT = Kept(heads=((2, 0), (1,)), neurons=(tuple(range(0, 16, 2)), (5, 3, 11)))
HEAD = Head("SequenceClassification")
IDS = np.array([[1, 5, 6, 7, 2], [1, 9, 8, 2, 0]])


def load(folder: Path, **config):
    model = ModelSection(name_or_path=str(folder), config=config)
    paddle.seed(1)
    loaded = load_to_train(model, HEAD, LABELS, vocabulary_texts=None)
    loaded.network.eval()
    return loaded


def logits(network) -> np.ndarray:
    with paddle.no_grad():
        return network(paddle.to_tensor(IDS)).numpy()


def save(folder: Path, loaded) -> Path:
    save_model_folder(folder, loaded.network, loaded.tokenizer, make_description(load_recipe("quickstart"), LABELS))
    return folder


@pytest.fixture
def folder(paddle_folder):
    def made(family: str) -> Path:
        return paddle_folder(family, hidden_size=12, num_attention_heads=3, initializer_range=0.5)

    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_kept_computes_as_it_did(folder, family) -> None:
    whole, pruned = load(folder(family)), load(folder(family))
    for layer, heads, neurons in zip(encoder_layers(whole.network), KEPT.heads, KEPT.neurons, strict=True):
        # Nothing comes from a head or neuron whose weights on the way out are 0.
        out = layer.self_attn.out_proj.weight.numpy().reshape(3, 4, 12)
        out[[head for head in range(3) if head not in heads]] = 0
        layer.self_attn.out_proj.weight.set_value(out.reshape(12, 12))
        second = layer.linear2.weight.numpy()
        second[[place for place in range(16) if place not in neurons]] = 0
        layer.linear2.weight.set_value(second)
    before = logits(pruned.network)
    prune(pruned.network, KEPT)
    assert np.abs(logits(pruned.network) - before).max() > 1e-3
    np.testing.assert_allclose(logits(pruned.network), logits(whole.network), atol=2e-6)
    assert PrunedShape.of(pruned.network) == PrunedShape((2, 1), (8, 3))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pruned_folder_is_a_model_folder(folder, family, tmp_path) -> None:
    loaded = load(folder(family))
    prune(loaded.network, KEPT)
    saved = save(tmp_path / "pruned", loaded)
    again = load_trained(saved, HEAD)
    again.network.eval()
    assert logits(again.network).tobytes() == logits(loaded.network).tobytes()
    assert again.fresh == () and again.ignored == ()
    trained_further = load(saved)
    assert logits(trained_further.network).tobytes() == logits(loaded.network).tobytes()
    first = load(saved, num_hidden_layers=1)
    assert PrunedShape.of(first.network) == PrunedShape((2,), (8,))
    assert first.network.config.pruned == {"heads": [2], "neurons": [8]}


def test_pruned_twice(folder) -> None:
    loaded = load(folder("Ernie"))
    prune(loaded.network, KEPT)
    before = logits(loaded.network)
    same = Kept(((1, 0), (0,)), (tuple(reversed(range(8))), (2, 0, 1)))
    prune(loaded.network, same)  # only their order changes
    np.testing.assert_allclose(logits(loaded.network), before, atol=2e-6)
    with pytest.raises(UserError, match="has 2 heads and 8 neurons"):
        prune(loaded.network, KEPT)


def test_a_pruned_network_learns(folder) -> None:
    network = load(folder("Electra")).network
    prune(network, KEPT)
    network.train()
    network(paddle.to_tensor(IDS)).sum().backward()
    layer = encoder_layers(network)[0]
    for linear in (layer.self_attn.v_proj, layer.self_attn.out_proj, layer.linear1, layer.linear2):
        assert float(linear.weight.grad.abs().sum()) > 0 and not linear.bias.stop_gradient


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_kept_in_their_order(folder, family, tmp_path) -> None:
    loaded = load(folder(family))
    first, second = encoder_layers(loaded.network)
    prune(loaded.network, KEPT)
    keep_layers(loaded.network, [1])
    assert encoder_layers(loaded.network) == [second] and first is not second
    saved = save(tmp_path / "short", loaded)
    config = json.loads((saved / "config.json").read_text())
    assert (config["num_hidden_layers"], config["pruned"]) == (1, {"heads": [1], "neurons": [3]})
    again = load_trained(saved, HEAD).network
    again.eval()
    assert logits(again).tobytes() == logits(loaded.network).tobytes()
    with pytest.raises(UserError, match=r"there are no layers \[1\]"):
        keep_layers(loaded.network, [1])


def test_a_whole_network_with_fewer_layers_names_no_shape(folder) -> None:
    network = load(folder("Bert")).network
    keep_layers(network, [0])
    assert network.config.num_hidden_layers == 1 and "pruned" not in vars(network.config)


def test_widths() -> None:
    shape = PrunedShape((12, 2, 1), (1536, 10, 1))
    assert shape.narrowed(Fraction("3/4")) == PrunedShape((9, 1, 1), (1152, 7, 1))
    assert shape.narrowed(Fraction(2, 3)).heads == (8, 1, 1)
    assert shape.layers([2, 0]) == PrunedShape((1, 12), (1, 1536))


@pytest.mark.parametrize(
    "value", [[1], {"heads": [1, 1]}, {"heads": [1], "neurons": [4, 4]}, {"heads": [0, 1], "neurons": [4, 4]},
              {"heads": ["1", 1], "neurons": [4, 4]}, {"heads": [4, 4], "neurons": [4, 4]}]  # fmt: skip
)
def test_a_damaged_shape_is_refused(folder, tmp_path, value) -> None:
    loaded = load(folder("Ernie"))
    prune(loaded.network, KEPT)
    saved = save(tmp_path / "damaged", loaded)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"pruned": value}))
    with pytest.raises(UserError) as refused:
        load_trained(saved, HEAD)
    assert str(saved) in str(refused.value)


def test_the_shape_cannot_be_overridden(folder, tmp_path) -> None:
    loaded = load(folder("Ernie"))
    prune(loaded.network, KEPT)
    with pytest.raises(UserError, match=r"set by nlpctl"):
        load(save(tmp_path / "saved", loaded), pruned="x")


def test_other_networks_are_refused() -> None:
    network = transformers.AlbertModel(
        transformers.AlbertConfig(vocab_size=10, embedding_size=8, hidden_size=8, num_hidden_layers=1,
                                  num_attention_heads=2, intermediate_size=8)  # fmt: skip
    )
    with pytest.raises(UserError, match="AlbertModel has no transformer layers to prune"):
        encoder_layers(network)
