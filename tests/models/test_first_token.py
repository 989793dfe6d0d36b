"""The last layer for the first token alone, where the answer reads no other."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddlenlp import transformers

from nlpctl.graphs.to_static import first_token_only, reads_first_token
from nlpctl.models.networks.textcnn import TextCNNConfig, TextCNNForSequenceClassification
from nlpctl.models.pruned import Kept, encoder_layers, prune
from nlpctl.models.two_tower import two_tower

FAMILIES = ("Ernie", "Bert", "Roberta", "Electra")
SIZES = {"vocab_size": 16, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 16, "max_position_embeddings": 16, "initializer_range": 0.5}  # fmt: skip
IDS = np.array([[1, 5, 6, 7, 2], [1, 9, 8, 2, 0]])  # 0 is padding


def made(family: str, kind: str = "ForSequenceClassification"):
    paddle.seed(2)
    config = vars(transformers)[f"{family}Config"](**SIZES, pad_token_id=0)
    network = vars(transformers)[f"{family}{kind}"](config)
    network.eval()
    return network


def tower(pooling: str):
    paddle.seed(2)
    network = two_tower(transformers.ErnieModel, pooling, None)(transformers.ErnieConfig(**SIZES))
    network.eval()
    return network


def outputs(network) -> np.ndarray:
    with paddle.no_grad():
        found = network(paddle.to_tensor(IDS))
    return (found[0] if isinstance(found, tuple) else found).numpy()


def last_rows(network) -> list[list[int]]:
    """The shapes of what the neurons of the last layer were given, while `network` answers."""
    shapes: list[list[int]] = []
    linear = encoder_layers(network)[-1].linear1
    hook = linear.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
    try:
        with first_token_only(network):
            outputs(network)
    finally:
        hook.remove()
    return shapes


@pytest.mark.parametrize("network", [*FAMILIES, "tower"])
def test_the_answer_is_the_same_and_less_is_computed(network) -> None:
    network = tower("cls") if network == "tower" else made(network)
    before, layers = outputs(network), encoder_layers(network)
    names = [name for name, _ in network.named_parameters()]
    assert last_rows(network) == [[2, 1, 12]]
    with first_token_only(network) as done:
        assert done
        np.testing.assert_allclose(outputs(network), before, rtol=1e-5, atol=1e-6)
    assert before.std(0).max() > 1e-3
    assert encoder_layers(network) == layers and [name for name, _ in network.named_parameters()] == names
    assert outputs(network).tobytes() == before.tobytes()


def test_narrow_networks_too() -> None:
    network = made("Bert")
    prune(network, Kept(((0, 2), (1,)), ((1, 2, 3), (4, 5))))
    before = outputs(network)
    with first_token_only(network) as done:
        assert done
        np.testing.assert_allclose(outputs(network), before, rtol=1e-5, atol=1e-6)


def test_it_is_put_back_after_a_failure() -> None:
    network = made("Bert")
    layers = encoder_layers(network)
    with pytest.raises(ZeroDivisionError), first_token_only(network):
        raise ZeroDivisionError
    assert encoder_layers(network) == layers


@pytest.mark.parametrize("kind", ["ForTokenClassification", "ForQuestionAnswering", "ForMaskedLM"])
def test_what_reads_every_token_stays_as_it_is(kind) -> None:
    network = made("Bert", kind)
    before = outputs(network)
    with first_token_only(network) as done:
        assert not done and outputs(network).tobytes() == before.tobytes()


def test_others_stay_as_they_are() -> None:
    assert not reads_first_token(tower("mean"))
    assert not reads_first_token(TextCNNForSequenceClassification(TextCNNConfig(vocab_size=9)))
    before_norms = made("Ernie")
    for layer in encoder_layers(before_norms):
        layer.normalize_before = True
    assert not reads_first_token(before_norms)
