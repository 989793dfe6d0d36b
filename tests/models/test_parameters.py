"""Names and patterns of parameters; setting, tying and freezing them."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from nlpctl.errors import UserError
from nlpctl.models.changes import freeze, parameter_counts, tie
from nlpctl.models.parameters import matching, named, select, set_parameters, value_for

NAMES = [f"ernie.encoder.layers.{i}.{part}" for i in (0, 1, 2, 10) for part in ("norm1.weight", "linear1.bias")]
NAMES = ["ernie.embeddings.word.weight", *NAMES, "classifier.weight", "classifier.bias"]


class Small(paddle.nn.Layer):
    """Two like layers, one of another width, a layer that keeps statistics, a layer that is recurrent."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
        self.out = paddle.nn.Linear(3, 2)
        self.norm = paddle.nn.BatchNorm1D(3)
        self.gru = paddle.nn.GRU(3, 3)
        self.alias = self.two.bias

    def forward(self, x):
        return self.out(self.norm(self.three(self.two(self.one(x)))))


@pytest.fixture
def network():
    paddle.seed(3)
    return Small()


def values(network):
    return {name: parameter.numpy().copy() for name, parameter in named(network).items()}


def train(network, steps=5, decay=0.5):
    optimizer = paddle.optimizer.AdamW(0.1, parameters=network.parameters(), weight_decay=decay)
    network.train()
    for step in range(steps):
        paddle.seed(step)
        (network(paddle.randn([8, 3])) ** 2).mean().backward()
        optimizer.step()
        optimizer.clear_grad()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("classifier.bias", ["classifier.bias"]),
        ("classifier", ["classifier.weight", "classifier.bias"]),
        ("class", []),
        ("ernie.encoder.layers.1", ["ernie.encoder.layers.1.norm1.weight", "ernie.encoder.layers.1.linear1.bias"]),
        ("ernie.encoder.layers.1-9", NAMES[3:7]),
        ("ernie.encoder.layers.0-1.norm1", [NAMES[1], NAMES[3]]),
        ("*.layers.2-10.*.bias", [NAMES[6], NAMES[8]]),
        ("*.bias", [NAMES[2], NAMES[4], NAMES[6], NAMES[8], NAMES[10]]),
        ("ernie.encoder.layers.[02].norm1.weight", [NAMES[1], NAMES[5]]),
        ("*", NAMES),
        ("*.layers.0-9999.norm1.*", [NAMES[1], NAMES[3], NAMES[5], NAMES[7]]),
        ("*.layers.0-9999999999.*", []),  # no range: its numbers would fill the memory
        (f"*.layers.0-{'9' * 5000}.*", []),
    ],
)
def test_what_a_pattern_means(pattern, found):
    assert matching(pattern, NAMES) == found


def test_a_pattern_without_a_match_names_the_nearest():
    assert select(["classifier.*", "ernie.embeddings"], NAMES, "k") == [NAMES[0], *NAMES[-2:]]
    for pattern, near in (("clasifier", "classifier"), ("ernie.encoder.layer.0", "ernie.encoder.layers.0")):
        with pytest.raises(UserError, match=f"(?s)model.freeze: '{pattern}' matches no.*did you mean {near}\\?"):
            select(["classifier", pattern], NAMES, "model.freeze")


def test_values_are_set_and_nothing_else(network, tmp_path):
    before = values(network)
    array = np.arange(9, dtype=np.float64).reshape(3, 3)
    np.save(tmp_path / "a.npy", array)
    done = set_parameters(network, {"*.bias": 0.25, "one.weight": str(tmp_path / "a.npy"), "out.bias": -1}, "k")
    now = values(network)
    assert done["one.weight"] == ["one.weight"] and "alias" not in done["*.bias"]
    assert (now["one.weight"] == array).all() and now["one.weight"].dtype == np.float32
    assert (now["one.bias"] == 0.25).all() and (now["out.bias"] == -1).all()  # later patterns win
    assert (now["alias"] == 0.25).all()  # another name of two.bias
    untouched = [name for name in now if not name.endswith("bias") and name not in ("one.weight", "alias")]
    assert len(untouched) > 5 and all((now[name] == before[name]).all() for name in untouched)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 2)), r"a.npy is \[3, 2\], but one.weight is \[3, 3\]"),
        (np.full((3, 3), np.nan), "NaN"),
        (np.array([["x"]]), "no array of numbers"),
        (np.array([object()]), "cannot be read"),  # a pickle, which is never opened
    ],
)
def test_values_that_do_not_fit(network, tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    before = values(network)
    with pytest.raises(UserError, match=message):
        set_parameters(network, {"one.weight": str(tmp_path / "a.npy")}, "k")
    assert all((value == before[name]).all() for name, value in values(network).items())


@pytest.mark.parametrize(
    ("text", "mean", "std", "largest"),
    [
        ("normal(1, 0.5)", 1.0, 0.5, None),
        ("normal(std=0.5, mean=-1)", -1.0, 0.5, None),
        ("truncated_normal(0, 0.02)", 0.0, 0.0176, 0.04),  # cut at 2 standard deviations
        ("uniform(-0.3, 0.3)", 0.0, 0.6 / 12**0.5, 0.3),
        ("xavier_normal", 0.0, (2 / 600) ** 0.5, None),
        ("xavier_uniform(2)", 0.0, 2 * (2 / 600) ** 0.5, 2 * (6 / 600) ** 0.5),
        ("kaiming_normal", 0.0, (2 / 200) ** 0.5, None),
        ("kaiming_uniform(1)", 0.0, (1 / 200) ** 0.5, (3 / 200) ** 0.5),
        ("constant(0.25)", 0.25, 0.0, 0.25),
    ],
)
def test_distributions(text, mean, std, largest):
    array = value_for("a.weight", (200, 400), text, "k", seed=1)
    assert array.dtype == np.float32 and array.shape == (200, 400)
    assert array.mean() == pytest.approx(mean, abs=0.01) and array.std() == pytest.approx(std, rel=0.02, abs=1e-6)
    assert largest is None or 0.98 * largest < np.abs(array).max() <= largest * (1 + 1e-6)


def test_fans_are_those_of_paddle():
    for kind, initializer in (("xavier_uniform", paddle.nn.initializer.XavierUniform()),
                              ("kaiming_uniform", paddle.nn.initializer.KaimingUniform())):  # fmt: skip
        for layer in (paddle.nn.Linear(30, 400), paddle.nn.Conv2D(20, 300, (3, 2))):
            initializer(layer.weight)
            ours = value_for("a", layer.weight.shape, kind, "k")
            assert np.abs(ours).max() == pytest.approx(float(layer.weight.abs().max()), rel=0.01)


def test_what_is_drawn_depends_on_seed_and_name_alone(tmp_path):
    def drawn(patterns, seed=7):
        network = Small()
        set_parameters(network, patterns, "k", seed)
        return values(network)

    one = drawn({"one.weight": "normal(0,1)", "two.weight": "normal(0,1)", "out": "uniform(-1,1)"})
    other = drawn({"out": "uniform(-1,1)", "*.weight": 3, "two.weight": "normal(0,1)"})
    assert one["two.weight"].tobytes() == other["two.weight"].tobytes()
    assert one["out.bias"].tobytes() == other["out.bias"].tobytes()
    assert (one["one.weight"] != one["two.weight"]).all()
    assert (drawn({"two.weight": "normal(0,1)"}, seed=8)["two.weight"] != one["two.weight"]).all()
    shared = drawn({"alias": "normal(0,1)"})  # another name of two.bias
    assert shared["two.bias"].tobytes() == drawn({"two.bias": "normal(0,1)"})["alias"].tobytes()


def test_matrices_only_have_fans(network):
    with pytest.raises(UserError, match=r"xavier_normal is for matrices, but one.bias is \[3\]"):
        set_parameters(network, {"one": "xavier_normal"}, "k")


def test_frozen_parameters_do_not_move_by_a_bit(network):
    frozen = freeze(network, ["one", "two.weight", "norm"], "model.freeze")
    statistics = ["norm._mean", "norm._variance"]
    assert frozen == ["one.weight", "one.bias", "two.weight", "norm.weight", "norm.bias", *statistics]
    before = values(network)
    train(network)
    now = values(network)
    assert all(now[name].tobytes() == before[name].tobytes() for name in frozen)
    moved = ("two.bias", "three.weight", "out.weight", "out.bias")
    assert all((now[name] != before[name]).any() for name in moved)
    assert parameter_counts(network) == {"total": 128, "trainable": 128 - 33, "frozen": 33}


def test_statistics_of_a_layer_that_is_trained_go_on(network):
    freeze(network, ["one", "norm.weight"], "k")
    before = values(network)
    train(network)
    assert all((values(network)[f"norm.{name}"] != before[f"norm.{name}"]).any() for name in ("_mean", "_variance"))


def test_freezing_everything_is_refused(network):
    with pytest.raises(UserError, match="nothing is left to train"):
        freeze(network, ["*"], "model.freeze")


def test_freezing_one_name_of_a_shared_parameter_freezes_it(network):
    assert freeze(network, ["alias"], "k") == ["alias", "two.bias"]  # both its names


def test_tied_parameters_stay_one(network):
    before = values(network)
    tied = tie(network, [["one", "two"], ["one", "three"]], "model.tie")
    assert tied[:2] == [("one.weight", "two.weight"), ("one.bias", "two.bias")] and len(tied) == 4
    assert network.two.weight is network.one.weight is network.three.weight
    assert network.alias is network.one.bias  # the other name of what was replaced
    assert (network.three.weight.numpy() == before["one.weight"]).all()
    assert parameter_counts(network)["total"] == 128 - 2 * 12
    train(network)
    state = network.state_dict()
    assert (state["one.weight"].numpy() == state["three.weight"].numpy()).all()
    assert (state["one.weight"].numpy() != before["one.weight"]).any()


def test_one_layer_for_several():
    network = paddle.nn.Sequential(*(paddle.nn.Linear(2, 2) for _ in range(4)))
    assert len(tie(network, [["0", "1-3"]], "k")) == 6
    assert network[3].weight is network[0].weight and network[2].bias is network[0].bias


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (["one", "out"], r"one.weight is \[3, 3\] and out.weight is \[3, 2\]"),
        (["one", "out.weight"], "matches 2 parameters and 'out.weight' 1"),
        (["one", "*.weight"], "both match one.weight"),
        (["one", "too"], "did you mean two"),
        (["gru.weight_ih_l0", "gru.weight_hh_l0"], "recurrent"),
    ],
)
def test_what_cannot_be_tied(network, pair, message):
    before = {name: id(parameter) for name, parameter in named(network).items()}
    with pytest.raises(UserError, match=message):
        tie(network, [pair], "model.tie")
    assert before == {name: id(parameter) for name, parameter in named(network).items()}
