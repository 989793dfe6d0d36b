"""Attention in a training on a CPU: the same answers and gradients as Paddle's."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import MultiHeadAttention

from nlpctl.training import fast_cpu as fast
from tests.helpers.gradients import assert_equal_to_paddles, fresh, tensor


def attention(dropout=0.0, **options):
    paddle.seed(3)
    return MultiHeadAttention(12, 3, dropout=dropout, **options)


def masks():
    shown = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])[:, None, None]
    hidden = paddle.to_tensor(((1 - shown) * -1e4).astype("float32"))
    causal = paddle.to_tensor(np.tril(np.ones([1, 1, 4, 4], bool)))
    learned = np.random.default_rng(0).normal(size=[2, 3, 4, 4]).astype("float32")
    more = {"by head": paddle.to_tensor(learned[:1]), "by text and head": paddle.to_tensor(learned[:, :, :1])}
    return {"none": None, "hidden": hidden, "int": paddle.to_tensor(shown), "bool": causal, **more}


@pytest.mark.parametrize("kind", ["none", "hidden", "int", "bool", "by head", "by text and head"])
def test_attention_and_its_gradients_are_paddles(kind, calls):
    layer, mask = attention(), masks()[kind]
    weights = layer.parameters()

    def of(forward):
        def run(x, *values):
            for each, value in zip(weights, values, strict=True):
                each.set_value(value)
                each.clear_grad()
            output = forward(layer, x, attn_mask=mask)
            (output * tensor(*output.shape, seed=9, trained=False)).sum().backward()
            return [output.numpy(), x.grad.numpy(), *(each.grad.numpy() for each in weights)]

        return run(fresh(tensor(2, 4, 12)), *[each.numpy() for each in weights])

    found = of(fast.attend)
    assert len(calls) == 3 + 5  # scores, softmax, answer; of the gradients one for each of their factors
    for one, other in zip(found, of(MultiHeadAttention.forward), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


def test_attention_to_another_text_is_paddles():
    layer, other = attention(), tensor(2, 6, 12, seed=4)
    assert_equal_to_paddles(
        lambda x, y: fast.attend(layer, x, y, y), lambda x, y: layer(x, y, y), tensor(2, 4, 12), other
    )


def test_dropout_of_attention_drops_shares_of_values():
    layer = attention(dropout=0.5)
    for each in (layer.v_proj, layer.out_proj):
        each.weight.set_value(paddle.eye(12))
        each.bias.set_value(paddle.zeros([12]))
    values = paddle.ones([1, 200, 12])
    values.stop_gradient = False
    layer.train()
    paddle.seed(1)
    output = fast.attend(layer, tensor(1, 200, 12, trained=False), values, values)
    found = output.numpy().reshape(200, 3, 4)[:, :, 0]  # the sum of the shares kept, times two
    assert found.mean() == pytest.approx(1, abs=0.03) and found.std() > 0.02
    paddle.seed(1)
    assert (fast.attend(layer, tensor(1, 200, 12, trained=False), values, values) == output).all()
    output.sum().backward()
    share = values.grad.numpy().reshape(200, 3, 4)
    assert share.sum() == pytest.approx(found.sum() * 4, rel=1e-3)  # the gradient has the mask of the value
    layer.eval()
    assert np.allclose(fast.attend(layer, values, values, values).numpy(), 1, atol=1e-5)


def test_attention_that_is_not_plain_is_paddles():
    x = tensor(2, 4, 12)
    with_weights = attention(need_weights=True)
    assert len(fast.attend(with_weights, x)) == 2
    plain = attention()
    answer, cache = fast.attend(plain, x, cache=plain.gen_cache(x))
    assert answer.shape == [2, 4, 12] and cache.k.shape == [2, 3, 4, 4]
    learned = tensor(1, 1, 1, 4, seed=1)
    fast.attend(plain, x, attn_mask=learned).sum().backward()
    assert learned.grad is not None

    repeated = tensor(1, 4, 12, seed=2)  # for both texts
    assert fast.attend(plain, x, repeated, repeated).shape == [2, 4, 12]

    class Own(MultiHeadAttention):
        def _prepare_qkv(self, query, key, value, cache=None):
            return super()._prepare_qkv(query * 0, key, value, cache)

    class OwnKeys(MultiHeadAttention):
        def compute_kv(self, key, value):
            return super().compute_kv(key * 2, value)

    for kind in (Own, OwnKeys):
        own = kind(12, 3)
        assert (fast.attend(own, x) == MultiHeadAttention.forward(own, x)).all()
