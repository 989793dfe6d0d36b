"""The optimizer: nothing changes where the recipe asks for nothing; groups, decay by layer and weight decay do."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddlenlp.trainer import Trainer, TrainingArguments
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification

from nlpctl.config.schema import GroupSection, OptimizerSection
from nlpctl.errors import UserError
from nlpctl.models.changes import freeze, tie
from nlpctl.models.parameters import named
from nlpctl.training.optimizer import RateAndDecay, ZeroMissingGradients, build_optimizer, rates_and_decays

RATE, DECAY = 1e-2, 0.1


def network():
    paddle.seed(5)
    return ErnieForSequenceClassification(
        ErnieConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=8,
            max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def arguments(tmp_path):
    values = {"learning_rate": RATE, "weight_decay": DECAY, "max_grad_norm": 0.01}
    return TrainingArguments(output_dir=str(tmp_path), device="cpu", **values)


def train(net, optimizer, steps=4):
    net.eval()
    for step in range(steps):
        paddle.seed(step)
        logits = net(paddle.randint(1, 20, [4, 6]))
        paddle.nn.functional.cross_entropy(logits, paddle.to_tensor([0, 1, 0, 1])).backward()
        optimizer.step()
        optimizer.clear_grad()
    return {name: parameter.numpy() for name, parameter in named(net).items()}


def schedule():
    return paddle.optimizer.lr.LambdaDecay(RATE, lambda step: 1.0)


def stock(net, args):
    """What PaddleNLP's Trainer would train with."""
    trainer = Trainer(model=net, args=args)
    return trainer.create_optimizer(schedule())


def built(net, args, *groups, layer_decay=None):
    return build_optimizer(net, OptimizerSection(tuple(groups), layer_decay), args, schedule())


def test_without_groups_it_is_the_stock_optimizer_bit_by_bit(tmp_path):
    args = arguments(tmp_path)
    ours, theirs = network(), network()
    ours, theirs = train(ours, built(ours, args)), train(theirs, stock(theirs, args))
    assert len(ours) > 40 and all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_a_parameter_without_a_gradient_in_a_step_is_moved_as_by_paddle(tmp_path):
    found = []
    for make in (stock, built):
        net = network()
        optimizer, reached = make(net, arguments(tmp_path)), ZeroMissingGradients(net)
        for step in range(4):
            hidden = net.ernie.embeddings.word_embeddings.weight.sum()
            loss = hidden if step in (0, 2) else hidden + net.classifier.weight.sum()  # which begins with step 1
            loss.backward()
            if make is built:
                reached.on_optimizer_begin(None, None, None)
            optimizer.step()
            optimizer.clear_grad()
        found.append([each.numpy() for each in net.parameters()])
    assert all((one == other).all() for one, other in zip(*found, strict=True))


def test_grouping_alone_changes_nothing(tmp_path):
    """Paddle's parameter groups would clip each group's gradients by themselves."""
    args = arguments(tmp_path)
    plain, grouped = network(), network()
    group = GroupSection(("ernie.encoder",), learning_rate=RATE)
    plain, grouped = train(plain, built(plain, args)), train(grouped, built(grouped, args, group))
    assert all(plain[name].tobytes() == grouped[name].tobytes() for name in plain)


def test_a_step_is_as_long_as_the_parameter_s_rate(tmp_path):
    """Adam's first step is the learning rate, whatever the gradient; decay takes its share of the value first."""
    net, args = network(), arguments(tmp_path)
    groups = (
        GroupSection(("classifier",), learning_rate=0.05, weight_decay=0.0),
        GroupSection(("ernie.encoder.layers.0-1.linear1.weight",), weight_decay=3.0),
        GroupSection(("classifier.bias",), learning_rate=0.2),
    )
    before = {name: parameter.numpy().copy() for name, parameter in named(net).items()}
    now = train(net, built(net, args, *groups), steps=1)

    def step(name, decay, rate):
        return np.abs(now[name] - before[name] * (1 - rate * decay)).max()

    assert step("classifier.weight", 0.0, 0.05) == pytest.approx(0.05, rel=1e-3)
    assert step("classifier.bias", 0.0, 0.2) == pytest.approx(0.2, rel=1e-3)  # the last group to set it counts
    assert step("ernie.encoder.layers.1.linear1.weight", 3.0, RATE) == pytest.approx(RATE, rel=1e-2)
    assert step("ernie.encoder.layers.2.linear1.weight", DECAY, RATE) == pytest.approx(RATE, rel=1e-2)
    assert step("ernie.encoder.layers.2.norm1.weight", 0.0, RATE) == pytest.approx(RATE, rel=1e-2)


def test_layer_decay():
    net = network()
    found = rates_and_decays(net, OptimizerSection(layer_decay=0.5), 1.0, DECAY)
    rates = {name: setting.learning_rate for name, setting in found.items()}
    assert rates["classifier.weight"] == rates["ernie.pooler.dense.weight"] == 1.0
    assert [rates[f"ernie.encoder.layers.{i}.linear1.bias"] for i in (2, 1, 0)] == [0.5, 0.25, 0.125]
    assert rates["ernie.embeddings.word_embeddings.weight"] == 0.0625
    own = OptimizerSection((GroupSection(("ernie.encoder.layers.0",), learning_rate=3.0),), 0.5)
    assert rates_and_decays(net, own, 1.0, DECAY)["ernie.encoder.layers.0.norm1.weight"] == RateAndDecay(3.0, 0.0)


def test_frozen_and_tied_parameters():
    net = network()
    tie(net, [["ernie.encoder.layers.0", "ernie.encoder.layers.2"]], "k")
    freeze(net, ["ernie.embeddings"], "k")
    section = OptimizerSection((GroupSection(("ernie.encoder.layers.2",), learning_rate=7.0),))
    found = rates_and_decays(net, section, 1.0, DECAY)
    assert not any(name.startswith("ernie.embeddings") for name in found)
    assert not any(name.startswith("ernie.encoder.layers.2") for name in found)  # once, under its first name
    assert found["ernie.encoder.layers.0.linear1.weight"] == RateAndDecay(7.0, DECAY)
    assert {id(named(net)[name]) for name in found} == {id(each) for each in net.parameters() if not each.stop_gradient}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (OptimizerSection((GroupSection(("clasifier",), 1.0),)), r"optimizer.groups.0.match: .*(?s:.*)mean classifier"),
        (OptimizerSection((GroupSection(("ernie.embeddings",), 1.0),)), "matches frozen parameters only"),
    ],
)
def test_groups_that_match_nothing(section, message):
    net = network()
    freeze(net, ["ernie.embeddings"], "k")
    with pytest.raises(UserError, match=message):
        rates_and_decays(net, section, 1.0, 0.0)


def test_layer_decay_needs_layers():
    net = network()
    net.base_model_prefix = "other"
    with pytest.raises(UserError, match="optimizer.layer_decay: .*no numbered layers"):
        rates_and_decays(net, OptimizerSection(layer_decay=0.9), 1.0, 0.0)
