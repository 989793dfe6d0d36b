"""The losses between layers: their formulas, computed again with NumPy."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddlenlp.transformers import BertConfig, BertForSequenceClassification

from nlpctl.compress.networks.layer_losses import LayerLosses
from nlpctl.config.schema import DistillationSection

WIDTH, HEADS = 16, 2
IDS = np.array([[5, 6, 7, 8], [9, 4, 0, 0]])
REAL = IDS != 0


def network(seed: int, layers: int) -> paddle.nn.Layer:
    paddle.seed(seed)
    config = BertConfig(
        vocab_size=20, hidden_size=WIDTH, num_hidden_layers=layers, num_attention_heads=HEADS, intermediate_size=32,
        initializer_range=0.5,
    )  # fmt: skip
    made = BertForSequenceClassification(config)
    made.eval()
    return made


def layer_parts(model: paddle.nn.Layer) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]]]:
    """Hidden states, embeddings first, and the projections of each layer, computed layer by layer."""
    encoder = model.bert.encoder
    states = [model.bert.embeddings(paddle.to_tensor(IDS))]
    mask = paddle.to_tensor(((IDS == 0) * -1e4)[:, None, None].astype(np.float32))
    projections = []
    for layer in encoder.layers:
        attention = layer.self_attn
        projections.append({
            name: vars(attention)["_sub_layers"][f"{name}_proj"](states[-1]).numpy() for name in "qkv"
        })
        states.append(layer(states[-1], mask))
    return [state.numpy() for state in states], projections


def softmax(values: np.ndarray) -> np.ndarray:
    values = np.exp(values - values.max(-1, keepdims=True))
    return values / values.sum(-1, keepdims=True)


def heads(values: np.ndarray, count: int) -> np.ndarray:
    return values.reshape(*values.shape[:2], count, -1).transpose(0, 2, 1, 3)


def computed(section: DistillationSection, teacher, student, chosen=(0, 2)) -> float:
    losses = LayerLosses(teacher, student, section, chosen)
    inputs = {"input_ids": paddle.to_tensor(IDS)}
    student(**inputs)
    return float(losses.loss(inputs))


@pytest.fixture(scope="module")
def pair():
    return network(1, 3), network(2, 2)


def test_hidden_states(pair) -> None:
    teacher, student = pair
    theirs, mine = layer_parts(teacher)[0], layer_parts(student)[0]
    wanted = sum(
        ((mine[place] - theirs[other]) ** 2).mean(-1)[REAL].mean() for place, other in ((0, 0), (1, 1), (2, 3))
    )
    np.testing.assert_allclose(computed(DistillationSection(hidden=2.0), *pair), 2 * wanted, rtol=1e-4)


def test_attention(pair) -> None:
    both = REAL[:, :, None] & REAL[:, None, :]

    def scores(parts) -> np.ndarray:
        q, k = (heads(parts[name], HEADS) for name in "qk")
        return q @ k.swapaxes(2, 3) / np.sqrt(WIDTH // HEADS)

    theirs, mine = (layer_parts(each)[1] for each in pair)
    wanted = 0.0
    for place, other in ((0, 0), (1, 2)):
        squares = (scores(mine[place]) - scores(theirs[other])) ** 2
        wanted += np.mean([squares[:, head][both].mean() for head in range(HEADS)])
    np.testing.assert_allclose(computed(DistillationSection(attention=1.0), *pair), wanted, rtol=1e-4)


def test_relations_of_the_last_layer(pair) -> None:
    def relations(parts, name) -> np.ndarray:
        values = heads(parts[name], 4)
        return softmax(values @ values.swapaxes(2, 3) / np.sqrt(WIDTH / 4) - 1e4 * ~REAL[:, None, None])

    theirs, mine = (layer_parts(each)[1][-1] for each in pair)
    wanted = []
    for name in "qkv":
        one, other = relations(mine, name), relations(theirs, name)
        divergence = (other * (np.log(np.maximum(other, 1e-12)) - np.log(np.maximum(one, 1e-12)))).sum(-1)
        wanted.append(np.mean([divergence[:, head][REAL].mean() for head in range(4)]))
    section = DistillationSection(relations=1.0, relation_heads=4)
    np.testing.assert_allclose(computed(section, *pair), np.mean(wanted), rtol=1e-4)


@pytest.mark.parametrize("kind", ["hidden", "attention", "relations"])
def test_a_student_whose_layers_are_recomputed_learns_as_much(kind) -> None:
    """training.recompute: what is inside a layer has no gradient in the forward pass."""
    found = []
    for recomputed in (False, True):
        teacher, student = network(1, 3), network(2, 2)
        losses = LayerLosses(teacher, student, DistillationSection(**{kind: 1.0}), (0, 2))
        student.bert.encoder.enable_recompute = recomputed
        inputs = {"input_ids": paddle.to_tensor(IDS)}
        answers = student(**inputs).sum()
        (losses.loss(inputs) + answers).backward()
        found.append({name: each.grad.numpy() for name, each in student.named_parameters() if each.grad is not None})
    assert found[0].keys() == found[1].keys() and len(found[0]) > 30
    for name, gradient in found[0].items():
        np.testing.assert_allclose(found[1][name], gradient, rtol=1e-4, atol=1e-5, err_msg=name)


def test_nothing_is_to_be_learned_from_oneself() -> None:
    section = DistillationSection(hidden=1.0, attention=1.0, relations=1.0)
    assert computed(section, network(3, 2), network(3, 2), (0, 1)) < 1e-6


def test_padding_does_not_count(pair) -> None:
    section = DistillationSection(hidden=1.0, attention=1.0, relations=1.0)
    losses = LayerLosses(*pair, section, (0, 2))
    found = []
    for width in (0, 3):
        inputs = {"input_ids": paddle.to_tensor(np.pad(IDS, ((0, 0), (0, width))))}
        pair[1](**inputs)
        found.append(float(losses.loss(inputs)))
    np.testing.assert_allclose(*found, rtol=1e-5)
