"""oneDNN called directly: the same functions and gradients as Paddle's, for any shape and layout."""

from __future__ import annotations

import gc

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from nlpctl.training import onednn
from nlpctl.training.onednn import View
from tests.helpers.gradients import tensor

pytestmark = pytest.mark.skipif(not onednn.available(), reason="this Paddle comes without oneDNN 3")


def assert_near(found, expected):
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=2e-6)


def output_and_gradients(function, *inputs, given):
    output = function(*inputs)
    return output, paddle.grad(output, list(inputs), [given])


SHAPES = [(1, 1), (7, 5), (3, 4, 33), (2, 3, 5, 17), (64, 384)]


@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_one_tensor_are_paddles(shape):
    x, given = tensor(*shape), tensor(*shape, seed=1)
    for ours, of_x, of_y, paddles in (
        (onednn.gelu, onednn.gelu_gradient, None, F.gelu),
        (onednn.softmax, None, onednn.softmax_gradient, F.softmax),
    ):
        expected, (expected_gradient,) = output_and_gradients(paddles, x, given=given)
        y = ours(x)
        assert_near(y, expected)
        assert_near(of_x(x, given) if of_y is None else of_y(y, given), expected_gradient)


def test_gelu_far_from_zero():
    x = paddle.to_tensor(np.array([-80, -14, -9, -0.0, 0.0, 9, 14, 80], np.float32))
    assert_near(onednn.gelu(x), paddle.to_tensor(np.array([0, 0, 0, 0, 0, 9, 14, 80], np.float32)))
    slopes = np.array([0, 0, 0, 0.5, 0.5, 1, 1, 1], np.float32)
    assert_near(onednn.gelu_gradient(x, paddle.ones_like(x)), paddle.to_tensor(slopes))


def test_softmax_with_hidden_and_large_numbers():
    x = paddle.to_tensor(np.array([[3, 1000, -1e4, 999], [-1e4, -1e4, -1e4, -1e4], [0, -np.inf, 1, 2]], np.float32))
    assert_near(onednn.softmax(x), F.softmax(x))


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_is_paddles(shape):
    x, given = tensor(*shape), tensor(*shape, seed=1)
    weight, bias = tensor(shape[-1], seed=2), tensor(shape[-1], seed=3)
    expected, expected_gradients = output_and_gradients(
        lambda x, w, b: F.layer_norm(x, [shape[-1]], w, b, 1e-5), x, weight, bias, given=given
    )
    y, mean, variance = onednn.layer_norm(x, weight, bias, 1e-5)
    assert_near(y, expected)
    found = onednn.layer_norm_gradients(x, weight, bias, 1e-5, mean, variance, given)
    for one, other in zip(found, expected_gradients, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_factor_and_mask(shape):
    x = tensor(*shape)
    mask = np.random.default_rng(4).random(shape) < 0.5
    assert_near(onednn.masked(x, mask, 2.5), x * paddle.to_tensor(mask.astype(np.float32) * 2.5))
    expected = x * 0.25
    onednn.multiply_(x, paddle.to_tensor([0.25]))
    assert (x == expected).all()


def test_matrices_by_head_without_copies():
    texts, heads, tokens, keys, size = 2, 3, 5, 7, 4
    q, k = tensor(texts, tokens, heads * size), tensor(texts, keys, heads * size, seed=1)
    apart = [paddle.transpose(each.reshape([texts, -1, heads, size]), [0, 2, 1, 3]) for each in (q, k)]
    for shape in ((1, 1, 1, keys), (texts, 1, 1, keys), (texts, 1, tokens, keys), (texts, heads, tokens, keys)):
        plus = tensor(*shape, seed=2)
        scores = paddle.empty([texts, heads, tokens, keys])
        of_q, of_k = View.of_heads(q, heads), View.of_heads(k, heads)
        onednn.multiply_matrices(of_q, of_k.transposed, View.of(scores), scale=0.5, plus=View.of(plus))
        assert_near(scores, paddle.matmul(apart[0] * 0.5, apart[1], transpose_y=True) + plus)
    back = paddle.empty_like(q)
    onednn.multiply_matrices(View.of(scores), of_k, View.of_heads(back, heads))
    expected = paddle.transpose(paddle.matmul(scores, apart[1]), [0, 2, 1, 3]).reshape(q.shape)
    assert_near(back, expected)


def test_a_view_of_another_tensor_is_read_as_what_it_shows():
    x = tensor(6, 4).transpose([1, 0])
    assert_near(onednn.gelu(x), F.gelu(x))
    assert_near(onednn.softmax(x), F.softmax(x))


def test_a_view_that_was_read_shows_the_other_tensor_still():
    x = tensor(6, 4).detach()
    turned = x.t()
    onednn.gelu(turned)
    x.scale_(2.0)
    assert (turned.numpy() == x.numpy().T).all()


def test_the_same_shape_is_prepared_once_and_old_shapes_go():
    onednn._gelu.cache_clear()
    for _ in range(3):
        onednn.gelu(tensor(3, 5))
    assert onednn._gelu.cache_info().misses == 1
    for size in range(1, onednn._SHAPES + 50):
        onednn.gelu(tensor(size))
    gc.collect()
    assert onednn._gelu.cache_info().currsize == onednn._SHAPES
    onednn.forget()
    assert onednn._gelu.cache_info().currsize == 0


def test_a_view_is_multiplied_in_place():
    x = tensor(6, 4).detach()
    turned = x.t()
    expected = turned.numpy() * 2
    onednn.multiply_(turned, paddle.to_tensor([2.0]))
    assert (turned.numpy() == expected).all() and (x.t().numpy() == expected).all()


def test_lack_of_memory_is_told_as_such(monkeypatch):
    monkeypatch.setattr(onednn, "_function", lambda name: lambda *arguments: 1)
    with pytest.raises(MemoryError, match="out of memory in oneDNN's dnnl_memory_create"):
        onednn._call("memory_create")


def test_what_onednn_refuses_is_told():
    with pytest.raises(RuntimeError, match="dnnl_eltwise_forward_primitive_desc_create returned"):
        onednn._described("eltwise_forward", 64, -1, onednn._layout(3), onednn._layout(3), 0, 0, None)
