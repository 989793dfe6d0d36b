"""Networks that compute as int8 will."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.simulated_int8 import (
    KEY,
    STEPS,
    InputRounding,
    SimulatedLinear,
    Simulation,
    make_plain,
    rounded_weight,
    simulate,
    simulated_layers,
)

HEAD = Head("SequenceClassification")
LABELS = ("no", "yes")
IDS = np.array([[1, 5, 6, 7, 2], [1, 9, 8, 2, 0]])


def settings(*shared: tuple[str, ...], inputs="moving_average_abs_max", clipped=True, weights="channel_wise_abs_max"):
    return Simulation(weights, inputs, 0.5, clipped, shared)


def rounding(bound: float, *, training=True, **values) -> InputRounding:
    found = InputRounding(settings(**values))
    found.start(bound)
    found.training = training
    return found


def logits(network) -> np.ndarray:
    network.eval()
    with paddle.no_grad():
        return network(paddle.to_tensor(IDS)).numpy()


@pytest.fixture
def loaded(paddle_folder):
    """A network whose layers are simulated, with bounds of their own; and its layers' names."""
    paddle.seed(1)
    folder = paddle_folder("Bert", hidden_size=12, num_attention_heads=3, initializer_range=0.5)
    model = load_to_train(ModelSection(name_or_path=str(folder)), HEAD, LABELS, vocabulary_texts=None)
    model.network.plain_logits = logits(model.network)
    layer = "bert.encoder.layers.0"
    attention = tuple(f"{layer}.self_attn.{name}_proj" for name in "qkv")
    simulate(model.network, settings(attention, (f"{layer}.linear2",)), "here")
    for bound, (_, each) in enumerate(simulated_layers(model.network), 1):
        each.input_rounding.start(0.7 * bound)
    return model


def save(folder: Path, model) -> Path:
    save_model_folder(folder, model.network, model.tokenizer, make_description(load_recipe("quickstart"), LABELS))
    return folder


def test_inputs_are_rounded_to_the_steps_of_int8():
    inputs = paddle.to_tensor(np.linspace(-3, 3, 1001, dtype=np.float32))
    found = rounding(2.0, training=False)(inputs).numpy()
    steps = found / (2 / STEPS)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    inside = np.abs(inputs.numpy()) <= 2
    assert np.abs(found - inputs.numpy())[inside].max() <= 1 / STEPS + 1e-6
    np.testing.assert_allclose(found[inputs.numpy() > 2], 2, rtol=1e-6)
    np.testing.assert_allclose(found[inputs.numpy() < -2.05], -2 * (STEPS + 1) / STEPS, rtol=1e-6)


@pytest.mark.parametrize("clipped", [True, False])
def test_gradients_pass_where_nothing_is_cut_off(clipped):
    layer = rounding(2.0, clipped=clipped)
    inputs = paddle.to_tensor([-3.0, -1.0, 0.3, 1.9, 2.5, 4.0], stop_gradient=False)
    (layer(inputs) * paddle.to_tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).sum().backward()
    assert inputs.grad.tolist() == [0, 2, 3, 4, 0, 0]
    if clipped:  # the bound 2 e^clip moves the outputs that are cut off: -1 of -3.0, and 5 and 6
        assert layer.clip.grad.item() == pytest.approx(2 * (-1 + 5 + 6) / 6**0.5)


def test_the_smaller_bound_counts():
    layer = rounding(2.0)
    layer.clip.set_value(paddle.to_tensor([-1.0]))
    assert layer.limit() == pytest.approx(2 / np.e)
    layer.clip.set_value(paddle.to_tensor([1.0]))
    assert layer.limit() == pytest.approx(2)


def test_the_bound_follows_the_largest_values():
    layer = rounding(1.0, clipped=False)
    layer.observe(paddle.to_tensor([[-4.0, 1.0]]))  # 0.5 of the first, 1 of the new: (0.5 * 1 + 4) / (0.5 * 1 + 1)
    assert layer.limit() == pytest.approx(4.5 / 1.5)
    layer = rounding(1.0, clipped=False, inputs="range_abs_max")
    for value, expected in ((4.0, 4.0), (2.0, 4.0), (-5.0, 5.0)):
        layer.observe(paddle.to_tensor([value]))
        assert layer.limit() == expected


@pytest.mark.parametrize("per_column", [True, False])
def test_weights_are_rounded_by_column(per_column):
    weight = paddle.to_tensor(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32) * [1, 10, 100])
    weight.stop_gradient = False
    found = rounded_weight(weight, per_column)
    step = np.abs(weight.numpy()).max(0 if per_column else None) / STEPS
    error = np.abs(found.numpy() - weight.numpy())
    assert (error <= step / 2 * 1.001).all() and error.max() > step.max() / 3
    found.sum().backward()
    assert (weight.grad.numpy() == 1).all()


def test_layers_that_read_one_tensor_share_its_bound(loaded):
    layers = dict(simulated_layers(loaded.network))
    assert len({id(layer.input_rounding) for layer in layers.values()}) == 2 and len(layers) == 4
    for layer in layers.values():
        layer.input_rounding.start(100.0)
    loaded.network.train()
    loaded.network(paddle.to_tensor(IDS)).sum().backward()
    assert all(33 < layer.input_rounding.limit() < 60 for layer in layers.values())  # each saw one batch
    assert all(layer.weight.grad is not None for layer in layers.values())


def test_plain_again(loaded):
    assert np.abs(logits(loaded.network) - loaded.network.plain_logits).max() > 1e-4
    make_plain(loaded.network)
    assert logits(loaded.network).tobytes() == loaded.network.plain_logits.tobytes()
    assert not list(simulated_layers(loaded.network)) and KEY not in vars(loaded.network.config)


def test_a_model_folder_simulates_too(loaded, tmp_path):
    next(iter(simulated_layers(loaded.network)))[1].input_rounding.clip.set_value(paddle.to_tensor([-0.2]))
    again = load_trained(save(tmp_path / "simulated", loaded), HEAD)
    assert logits(again.network).tobytes() == logits(loaded.network).tobytes()
    names = [[name for name, _ in simulated_layers(model.network)] for model in (again, loaded)]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shared": [["bert.encoder.layers.7.linear1"]]}, "names bert.encoder.layers.7.linear1, which is not a linear"),
        ({"inputs": "guessed"}, "names channel_wise_abs_max and guessed, which this version of nlpctl does not know"),
        ({"moving_rate": None}, "is incomplete or damaged"),
    ],
)
def test_damaged(loaded, tmp_path, change, message):
    folder = save(tmp_path / "simulated", loaded)
    config = json.loads((folder / "config.json").read_text())
    config[KEY] |= change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        load_trained(folder, HEAD)


def test_a_recomputed_layer_sees_a_batch_once():
    """training.recompute computes a layer without a gradient first, and again in the backward pass."""
    from paddle.distributed.fleet.utils import recompute

    paddle.seed(3)
    linear, batches, found = paddle.nn.Linear(4, 4), [paddle.randn([6, 4]) * scale for scale in (1, 3, 2)], []
    for again in (False, True):
        layer = SimulatedLinear(linear, rounding(1.0, clipped=False), "abs_max", first=True)
        steps = []
        for batch in batches:
            inputs = batch.detach()
            inputs.stop_gradient = False
            output = recompute(layer, inputs) if again else layer(inputs)
            (output**2).sum().backward()
            steps.append([inputs.grad.numpy(), layer.input_rounding.limit(), float(layer.input_rounding.total)])
        found.append(steps)
    for plain, recomputed in zip(*found, strict=True):
        assert (plain[0] == recomputed[0]).all() and plain[1:] == recomputed[1:]


def test_a_change_in_place_after_rounding_is_refused():
    inputs = paddle.to_tensor([[0.5, -2.0]], stop_gradient=False) * 1
    rounded = rounding(1.0)(inputs)
    inputs.scale_(3.0)
    with pytest.raises(OSError, match="the input of a simulated int8 layer was changed in place"):
        rounded.sum().backward()
