"""Training on a CPU by faster functions: the same values and gradients as Paddle's, and no trace afterwards."""

from __future__ import annotations

import math
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.nn import ClipGradByGlobalNorm, MultiHeadAttention
from paddle.nn.layer import norm
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification

from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.paddle_cpu import STRIDES
from nlpctl.training import fast_cpu as fast
from nlpctl.training import onednn
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.upstream.changed_in_place import what_changed
from tests.helpers.gradients import assert_equal_to_paddles, fresh, gradients, tensor

OWNERS = [
    *((F, name) for name in ("linear", "dropout", "layer_norm", "gelu", "softmax")),
    (norm, "layer_norm"),
    (MultiHeadAttention, "forward"),
    (ClipGradByGlobalNorm, "_dygraph_clip"),
]
NETWORK = paddle.nn.Linear(2, 2)
NATIVE = pytest.mark.skipif(not cpu_info().computes("bf16"), reason="this processor does not compute in bf16")


def functions():
    return [getattr(owner, name) for owner, name in OWNERS]


PADDLES = functions()


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t0\n", encoding="utf-8")
    file = tmp_path / "recipe.yaml"
    model = "model: {from_scratch: {architecture: ernie}}"
    file.write_text(f"task: sequence_classification\n{model}\ndata: {{train: train.tsv}}\n", encoding="utf-8")
    return load_recipe(file)


def with_training(recipe, **values):
    return replace(recipe, training=replace(recipe.training, **values))


SHAPES = [(7, 6), (3, 5, 6), (2, 3, 5, 6)]


@pytest.mark.parametrize("shape", SHAPES)
def test_linear_and_its_gradients_are_paddles(shape, calls):
    inputs = tensor(*shape), tensor(6, 4, seed=1), tensor(4, seed=2)
    assert_equal_to_paddles(fast.linear, F.linear, *inputs)
    assert len(calls) == 1


def rounded(values):
    """To the nearest bfloat16, of two the even one; Paddle's own cast leaves digits out."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)


@NATIVE
@pytest.mark.parametrize("shape", SHAPES)
def test_a_linear_layer_in_bfloat16_has_rounded_factors_and_exact_sums(shape):
    inputs = tensor(*shape), tensor(6, 4, seed=1), tensor(4, seed=2)
    output, (dx, dw, db) = gradients(fast.linear_in_bfloat16(NETWORK), *inputs)
    x, w = (rounded(each.numpy()) for each in inputs[:2])
    np.testing.assert_allclose(output, x @ w + inputs[2].numpy(), rtol=1e-5, atol=1e-5)
    given = tensor(*output.shape, seed=9).numpy()
    rows, by_row = x.reshape(-1, 6), rounded(given).reshape(-1, 4)
    np.testing.assert_allclose(dx.reshape(-1, 6), by_row @ w.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, rows.T @ by_row, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(db, given.reshape(-1, 4).sum(0), rtol=1e-5, atol=1e-5)
    _, (dx, dw) = gradients(fast.linear_in_bfloat16(NETWORK), *inputs[:2])
    np.testing.assert_allclose(dw, rows.T @ by_row, rtol=1e-5, atol=1e-5)
    inputs[0].stop_gradient = inputs[2].stop_gradient = True
    _, found = gradients(fast.linear_in_bfloat16(NETWORK), *inputs)
    assert [each is None for each in found] == [True, False, True]


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_and_its_gradients_are_paddles(shape, calls):
    inputs = tensor(*shape), tensor(6, seed=1), tensor(6, seed=2)
    assert_equal_to_paddles(
        lambda x, w, b: fast.layer_norm(x, 6, w, b, 1e-12), lambda x, w, b: F.layer_norm(x, 6, w, b, 1e-12), *inputs
    )
    assert len(calls) == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_gelu_and_softmax_and_their_gradients_are_paddles(shape, calls):
    assert_equal_to_paddles(fast.gelu, F.gelu, tensor(*shape))
    assert_equal_to_paddles(fast.softmax, F.softmax, tensor(*shape))
    assert len(calls) == 4
    assert_equal_to_paddles(lambda x: fast.softmax(x, axis=1), lambda x: F.softmax(x, axis=1), tensor(*shape))
    assert_equal_to_paddles(lambda x: fast.gelu(x, True), lambda x: F.gelu(x, True), tensor(*shape))


def test_gradients_agree_with_finite_differences():
    def layer_norm(x, w, b):
        h = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return h * w + b

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def gelu(x):
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    vectors = tensor(6, seed=1), tensor(6, seed=2)
    assert_slopes(lambda x, w, b: fast.layer_norm(x, [6], w, b, 1e-5), layer_norm, tensor(4, 6), *vectors)
    assert_slopes(fast.softmax, softmax, tensor(4, 6))
    assert_slopes(fast.gelu, gelu, tensor(4, 6))


def assert_slopes(ours, exact, *inputs):
    """The gradients of `ours` are the slopes of `exact`, which computes in 64 bits."""
    factors = tensor(4, 6, seed=9, trained=False).numpy().astype(np.float64)
    arrays = [each.numpy().astype(np.float64) for each in inputs]
    _, found = gradients(ours, *inputs)
    for number, array in enumerate(arrays):
        for place in np.ndindex(array.shape):
            moved = [[each.copy() for each in arrays] for _ in range(2)]
            moved[0][number][place] += 1e-5
            moved[1][number][place] -= 1e-5
            slope = ((exact(*moved[0]) - exact(*moved[1])) * factors).sum() / 2e-5
            assert found[number][place] == pytest.approx(slope, rel=1e-3, abs=1e-4)


LINEAR, NORM = (tensor(4, 4, seed=1), tensor(4, seed=2)), (tensor(4, seed=1), tensor(4, seed=2))
CHANGED = [  # the function, its other inputs, and which is changed; -1: its result
    *(("linear", LINEAR, place) for place in (0, 1)),
    *(("layer_norm", NORM, place) for place in (0, 1)),
    ("gelu", (), 0),
    ("softmax", (), -1),
]


def changed_before_the_gradient(function, more, place):
    inputs = [fresh(each) for each in (tensor(3, 4), *more)]
    used = [each * 1 for each in inputs]
    output = function(*used)
    [*used, output][place].scale_(3.0)
    (output * tensor(3, 4, seed=9, trained=False)).sum().backward()
    return [each.grad.numpy() for each in inputs]


def normed(layer_norm):
    return lambda x, weight, bias: layer_norm(x, 4, weight, bias)


@pytest.mark.parametrize(("name", "more", "place"), CHANGED)
def test_a_change_in_place_is_refused_where_paddle_refuses_it(name, more, place, calls):
    for module, error in ((F, RuntimeError), (fast, OSError)):
        function = getattr(module, name)
        with pytest.raises(error) as raised:
            changed_before_the_gradient(normed(function) if more is NORM else function, more, place)
        assert "was changed in place before the gradient that needs it" in what_changed(raised.value)
    assert calls


def test_a_change_in_place_of_what_no_gradient_needs_is_none(calls):
    for one, other in zip(
        changed_before_the_gradient(normed(fast.layer_norm), NORM, 2),
        changed_before_the_gradient(normed(F.layer_norm), NORM, 2),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert calls


@pytest.mark.parametrize("changed", ["query", "key", "value"])
def test_a_change_in_place_of_what_attention_read_is_refused(changed):
    given = {name: tensor(2, 3, 4, seed=seed) * 1 for seed, name in enumerate(("query", "key", "value"))}
    answer = fast._Attention.apply(*given.values(), 2, None, None)
    given[changed].scale_(3.0)
    with pytest.raises(OSError, match=f"the {changed} of attention was changed in place"):
        answer.sum().backward()


@pytest.mark.parametrize("wanted", ["retain_graph", "create_graph"])
def test_code_of_the_users_own_takes_one_gradient(recipe, wanted):
    x = tensor(2, 3)
    with fast_cpu(with_training(recipe, criterion="mine.losses:loss"), "cpu", NETWORK):
        with pytest.raises(UserError, match=f"training.fast_cpu: {wanted}=True needs Paddle's own"):
            paddle.grad(fast.softmax(x).sum(), x, **{wanted: True})
        assert paddle.grad(fast.softmax(x).sum(), x)[0].shape == [2, 3]
        fast.softmax(x).sum().backward()
        if wanted == "retain_graph":
            with pytest.raises(UserError, match="retain_graph"):
                fast.softmax(x).sum().backward(retain_graph=True)
    paddle.grad((x * x).sum(), x, create_graph=True)[0].sum().backward(retain_graph=True)


@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_gradients_are_clipped_as_by_paddle(limit):
    def pairs():
        parameters = [paddle.create_parameter([2, 3], "float32"), paddle.create_parameter([5], "float32")]
        return [(p, tensor(*p.shape, seed=i, trained=False)) for i, p in enumerate(parameters)]

    rule = ClipGradByGlobalNorm(limit)
    for (_, one), (_, other) in zip(fast.clip(rule, pairs()), rule._dygraph_clip(pairs()), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


def test_clipping_of_views_and_of_what_is_not_clipped():
    rule, given = ClipGradByGlobalNorm(0.5), tensor(2, 3, trained=False)
    first, second = paddle.create_parameter([2, 3], "float32"), paddle.create_parameter([3, 2], "float32")
    turned = tensor(2, 3, trained=False).t()  # a view
    expected = dict(rule._dygraph_clip([(first, given), (second, turned)]))
    found = dict(fast.clip(rule, [(first, given), (second, turned)]))
    for each in (first, second):
        np.testing.assert_allclose(found[each].numpy(), expected[each].numpy(), rtol=1e-6)
    first.need_clip, before = False, given.numpy()
    assert (dict(fast.clip(rule, [(first, given)]))[first].numpy() == before).all()
    assert fast.clip(rule, [(first, None)]) == [(first, None)]


@pytest.mark.parametrize(
    "trained", [(True, False, False), (False, True, False), (False, False, True), (True, True, False)]
)
def test_what_is_frozen_gets_no_gradient(trained):
    x, square, vector, other = tensor(3, 4), tensor(4, 4, seed=1), tensor(4, seed=2), tensor(4, seed=3)
    _, everything = gradients(lambda x, w, b: fast.layer_norm(x, 4, w, b), x, other, vector)
    for each, of in zip((x, square, vector), trained, strict=True):
        each.stop_gradient = not of
    assert_equal_to_paddles(fast.linear, F.linear, x, square, vector)
    other.stop_gradient = square.stop_gradient
    # not compared with Paddle's, which are wrong below a frozen weight (upstream/frozen_layers.py)
    _, found = gradients(lambda x, w, b: fast.layer_norm(x, 4, w, b), x, other, vector)
    for one, of, expected in zip(found, trained, everything, strict=True):
        assert (one == expected).all() if of else one is None


def test_dropout_drops_its_share_and_keeps_the_mean():
    x = paddle.ones([400, 500])
    for p in (0.1, 0.5, 0.9):
        paddle.seed(3)
        kept = fast.dropout(x, p).numpy()
        assert (kept == 0).mean() == pytest.approx(p, abs=0.005)  # seven standard deviations of 200,000 draws
        assert kept.mean() == pytest.approx(1, abs=0.03)
        assert len(np.unique(kept)) == 2


def test_a_mask_is_a_function_of_paddles_seed_and_of_the_draws_since():
    x = paddle.ones([8, 33])
    paddle.seed(5)
    first, second = fast.dropout(x, 0.3).numpy(), fast.dropout(x, 0.3).numpy()
    paddle.seed(5)
    again = fast.dropout(x, 0.3).numpy()
    paddle.seed(6)
    other = fast.dropout(x, 0.3).numpy()
    assert (first == again).all()
    assert (first != second).any() and (first != other).any()
    paddle.seed(5)
    with paddle.no_grad():  # the first forward pass of a layer that is recomputed
        assert (fast.dropout(x, 0.3).numpy() == first).all()


def test_dropout_passes_the_gradient_where_it_passed_the_value():
    x = tensor(20, 30)
    paddle.seed(1)
    output = fast.dropout(x, 0.5)
    output.sum().backward()
    assert ((x.grad.numpy() == 2) == (output.numpy() != 0)).all()
    assert set(np.unique(x.grad.numpy())) == {0.0, 2.0}


def test_dropout_is_off_in_an_answer():
    x = tensor(3, 4)
    assert (fast.dropout(x, 0.5, training=False).numpy() == x.numpy()).all()
    assert (fast.dropout(x, 0.0).numpy() == x.numpy()).all()
    assert (fast.dropout(x, 1.0).numpy() == 0).all()
    assert (fast.dropout(x, 1e-6).numpy() == x.numpy()).all()
    assert (fast.dropout(x, 1 - 1e-6).numpy() == 0).all()


def test_what_is_not_covered_is_paddles_own(calls):
    wide = [each.astype("float64") for each in (tensor(2, 3), tensor(3, 3), tensor(3))]
    assert fast.linear(*wide).dtype == paddle.float64
    x = tensor(2, 3, 4)
    assert (fast.layer_norm(x, [3, 4]).numpy() == F.layer_norm(x, [3, 4]).numpy()).all()
    wide = tensor(3, 5), tensor(1)  # of which Paddle repeats the bias
    assert (fast.linear(tensor(2, 3), *wide) == F.linear(tensor(2, 3), *wide)).all()
    assert fast.softmax(tensor()) == 1
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        assert (fast.gelu(x) == F.gelu(x)).all()
        paddle.seed(1)
        looked_at = fast.dropout(x, 0.5)
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})
    assert not calls
    paddle.seed(1)
    np.testing.assert_allclose(fast.dropout(x, 0.5).numpy(), looked_at.numpy(), rtol=1e-6)
    assert len(calls) == 1
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        narrow = tensor(2, 3), tensor(3, 3), tensor(3)
        assert fast.linear(*narrow).dtype == F.linear(*narrow).dtype


def test_what_is_computed_beside_the_loss_is_freed():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    x = tensor(1000, 1000)
    fast.softmax(x)
    before = resident()
    for _ in range(60):
        fast.softmax(x)  # 4 MB, no gradient of which is ever computed
    assert resident() - before < 60e6


def ernie():
    paddle.seed(5)
    return ErnieForSequenceClassification(
        ErnieConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
                    max_position_embeddings=16)
    )  # fmt: skip


def trained(network, steps=3):
    network.train()
    optimizer = paddle.optimizer.AdamW(0.01, parameters=network.parameters())
    for step in range(steps):
        paddle.seed(step)
        logits = network(paddle.randint(1, 20, [4, 6]))
        F.cross_entropy(logits, paddle.to_tensor([0, 1, 0, 1])).backward()
        optimizer.step()
        optimizer.clear_grad()
    return {name: value.numpy() for name, value in network.state_dict().items()}


def without_dropout(network):
    for layer in network.sublayers():
        for name in ("p", "dropout"):
            if isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 0.0)
    return network


def test_a_network_is_trained_to_the_same_weights(recipe):
    expected = trained(without_dropout(ernie()))
    with fast_cpu(recipe, "cpu", ernie()):
        found = trained(without_dropout(ernie()))
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-4, err_msg=name)


def test_the_same_seed_gives_the_same_bits(recipe):
    with fast_cpu(recipe, "cpu", ernie()):
        one, other = trained(ernie()), trained(ernie())
    assert all((one[name] == other[name]).all() for name in one)


def test_paddles_functions_are_back_afterwards_also_after_an_error(recipe):
    before = paddle.get_flags([STRIDES])
    with pytest.raises(ZeroDivisionError), fast_cpu(recipe, "cpu", NETWORK):
        assert F.linear is fast.linear and norm.layer_norm is fast.layer_norm
        assert paddle.get_flags([STRIDES])[STRIDES] is False
        raise ZeroDivisionError
    assert functions() == PADDLES
    assert paddle.get_flags([STRIDES]) == before


@NATIVE
def test_what_is_trained_is_in_bf16_without_gradients_too_and_a_teacher_is_not():
    student, teacher, x = paddle.nn.Linear(6, 4), paddle.nn.Linear(6, 4), tensor(5, 6)
    teacher.weight.name = student.weight.name
    in_bf16 = fast.linear_in_bfloat16(student)
    with_gradient = in_bf16(x, student.weight, student.bias)
    with paddle.no_grad():
        for training in (True, False):  # the first pass of a recomputed layer; scores on dev
            student.train() if training else student.eval()
            assert (in_bf16(x, student.weight, student.bias) == with_gradient).all()
        assert (F.linear(x, student.weight, student.bias) != with_gradient).any()
        found, expected = (each(x, teacher.weight, teacher.bias).numpy() for each in (in_bf16, F.linear))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_without_gradients_the_faster_functions_compute_as_with_them(calls):
    x, weight, bias = tensor(2, 5, 6), tensor(6, 4), tensor(4)
    for compute in (
        lambda: fast.linear(x, weight, bias),
        lambda: fast.layer_norm(x, 6, tensor(6), tensor(6)),
        lambda: fast.gelu(x),
        lambda: fast.softmax(x),
    ):
        paddle.seed(3)
        with_gradient = compute()
        paddle.seed(3)
        with paddle.no_grad():
            assert (compute() == with_gradient).all()
    assert len(calls) == 8


def test_what_somebody_else_put_in_place_stays(recipe, monkeypatch):
    def other(x, axis=-1, dtype=None, name=None):
        return x

    monkeypatch.setattr(F, "softmax", other)
    with fast_cpu(recipe, "cpu", NETWORK):
        assert F.softmax is other and F.gelu is fast.gelu
    assert F.softmax is other and F.gelu is not fast.gelu


def test_bf16_replaces_linear_layers(recipe, monkeypatch):
    with fast_cpu(with_training(recipe, bf16=True), "cpu", NETWORK):
        assert F.linear.__name__ == "linear_in_bfloat16"
    monkeypatch.setattr(onednn, "available", lambda: False)
    with pytest.raises(UserError, match="without oneDNN"), fast_cpu(with_training(recipe, bf16=True), "cpu", NETWORK):
        pass
    with fast_cpu(recipe, "cpu", NETWORK):
        assert functions() == PADDLES


def test_layers_hold_the_faster_activation_meanwhile(recipe):
    network = ernie()
    layers = [each for each in network.sublayers() if vars(each).get("activation") is F.gelu]
    with fast_cpu(recipe, "cpu", network):
        assert layers and all(each.activation is fast.gelu for each in layers)
    assert all(each.activation is F.gelu for each in layers)
    assert not onednn._binary.cache_info().currsize


@pytest.mark.parametrize(("device", "wanted"), [("gpu:0", True), ("cpu", False)])
def test_on_a_card_and_by_the_key_everything_is_paddles(recipe, device, wanted):
    with fast_cpu(with_training(recipe, fast_cpu=wanted), device, NETWORK):
        assert functions() == PADDLES


def test_code_of_the_users_own_keeps_paddles_views(recipe):
    before = paddle.get_flags([STRIDES])
    with fast_cpu(with_training(recipe, criterion="mine.losses:loss"), "cpu", NETWORK):
        assert F.linear is fast.linear
        assert paddle.get_flags([STRIDES]) == before
        assert paddle.view(tensor(2, 3), [3, 2]).shape == [3, 2]


def test_a_flag_of_the_users_own_stays(recipe, monkeypatch):
    before = paddle.get_flags([STRIDES])
    monkeypatch.setenv(STRIDES, "1")
    with fast_cpu(recipe, "cpu", NETWORK):
        assert paddle.get_flags([STRIDES]) == before


def test_a_network_with_views_among_its_parameters_keeps_paddles_views(recipe):
    before = paddle.get_flags([STRIDES])
    network = paddle.nn.Linear(3, 4)
    network.register_buffer("turned", paddle.ones([2, 3]).transpose([1, 0]))
    with fast_cpu(recipe, "cpu", network):
        assert paddle.get_flags([STRIDES]) == before


@pytest.mark.parametrize("bf16", [False, pytest.param(True, marks=NATIVE)])
def test_a_recomputed_layer_gives_the_same_weights(recipe, bf16):
    recipe, found = with_training(recipe, bf16=bf16), []
    for recompute in (False, True):
        network = ernie()
        for layer in network.sublayers(include_self=True):
            if hasattr(layer, "enable_recompute"):
                layer.enable_recompute = recompute
        with fast_cpu(recipe, "cpu", network):
            found.append(trained(network, steps=2))
    for name, weights in found[0].items():
        np.testing.assert_allclose(found[1][name], weights, atol=2e-4, err_msg=name)
