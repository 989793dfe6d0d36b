"""Settings of the process with which Paddle's eager mode is faster on a CPU."""

import ctypes
import subprocess
import sys

import paddle
import pytest

from nlpctl.engines.engine import DygraphPredictor
from nlpctl.runtime.paddle_cpu import STRIDES, copying_transposes, may_copy_transposes
from nlpctl.runtime.process_state import process_kept


class WithViews(paddle.nn.Layer):
    """A user's own network, which needs views."""

    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(2, 3)

    def forward(self, x):
        return paddle.view(self.linear(x), [6])


@pytest.fixture
def encoder():
    with process_kept():
        paddle.seed(1)
        layer = paddle.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0)
        return paddle.nn.TransformerEncoder(layer, 2)


def strides():
    return paddle.get_flags([STRIDES])[STRIDES]


def test_a_predictor_gives_the_bits_of_the_network_itself(encoder):
    encoder.eval()
    given = paddle.rand([3, 7, 16])
    seen = []
    encoder.register_forward_pre_hook(lambda *_: seen.append(strides()))
    with paddle.no_grad():
        expected = encoder(given).numpy()
    (found,) = DygraphPredictor(encoder).outputs({"src": given.numpy()})
    assert (found == expected).all()
    assert seen == [True, False] and strides() is True


def test_the_flag_is_back_after_an_error(encoder):
    with pytest.raises(ValueError):
        DygraphPredictor(encoder).outputs({"src": paddle.rand([3, 7, 15]).numpy()})
    assert strides() is True


def test_a_network_of_the_users_own_keeps_its_views():
    network = WithViews()
    assert not may_copy_transposes(network)
    assert not may_copy_transposes(paddle.nn.Sequential(paddle.nn.Linear(2, 2), network))
    (found,) = DygraphPredictor(network).outputs({"x": paddle.ones([2, 2]).numpy()})
    assert found.shape == (6,)


def test_a_flag_of_the_users_own_and_parameters_that_are_views_stay(encoder, monkeypatch):
    assert may_copy_transposes(encoder)
    turned, attribute = paddle.nn.Linear(3, 4), paddle.nn.Linear(3, 4)
    turned.register_buffer("turned", paddle.ones([2, 3]).transpose([1, 0]))
    attribute.turned = paddle.ones([2, 3]).transpose([1, 0])
    assert not may_copy_transposes(turned) and not may_copy_transposes(attribute)
    monkeypatch.setenv(STRIDES, "1")
    assert not may_copy_transposes(encoder)


def test_the_last_that_leaves_puts_the_setting_back():
    with copying_transposes:
        with copying_transposes:
            assert strides() is False
        assert strides() is False
    assert strides() is True


RESIDENT = """
import paddle
from nlpctl.runtime.paddle_cpu import freed_memory_kept

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096

def used_and_freed():
    paddle.ones([16, 1024, 1024]).sum().item()  # 64 MB

used_and_freed()
before = resident()
with freed_memory_kept:
    used_and_freed()
    print(resident() - before)
print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_freed_memory_stays_within_the_context_and_goes_after_it():
    # In a process of its own: one that has run other tests may hold 64 MB of freed memory already.
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    within, after = map(int, done.stdout.split())
    assert within > 40e6 and after < 20e6
