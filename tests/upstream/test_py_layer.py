"""Paddle's PyLayer: nlpctl refuses second gradients where it uses one, detaches what it saves, and compares it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import paddle

class Twice(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

x = paddle.ones([1000, 1000])
x.stop_gradient = False
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((sys.executable, "-c", HEAD + text), capture_output=True, text=True)


@pytest.mark.parametrize("first", ["y.mean().backward(retain_graph=True)", "y.mean().backward()"])
def test_its_gradient_computed_twice_still_crashes(first):
    """`one_gradient` of nlpctl/upstream/second_gradients.py can go when this fails."""
    done = run(f"y = Twice.apply(x)\n{first}\nprint('once', flush=True)\ny.sum().backward()\n")
    assert done.stdout.startswith("once") and done.returncode != 0
    assert "Segmentation fault" in done.stdout + done.stderr or done.returncode == -11


def test_a_change_in_place_of_what_it_saved_is_still_not_seen():
    """`save` and `saved` of nlpctl/upstream/changed_in_place.py can go when this fails."""
    done = run("""
class Square(Twice):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensor()[0]

h = x * 1
y = Square.apply(h)
h.scale_(3.0)
y.sum().backward()
print(float(x.grad[0, 0]))
""")
    assert done.stdout.strip() == "6.0", done.stderr  # of 2.0


def test_a_result_that_it_saves_is_still_never_freed():
    """`_Softmax` can save its result itself when this fails."""
    resident = "int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()"
    text = f"""
import resource
Twice.apply(x)
before = {resident}
for _ in range(50):
    Twice.apply(x)
print({resident} - before)
"""
    done = run(text)
    assert int(done.stdout) > 150e6, done.stderr
