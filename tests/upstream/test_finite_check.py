"""Fails when Paddle's check of results no longer prints to standard output: then finite_check need not silence it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle

from nlpctl.upstream.finite_check import NonFinite, finite_check, non_finite


def test_upstream_still_prints_to_standard_output():
    code = (
        "import zlib, paddle\npaddle.set_flags({'FLAGS_check_nan_inf': True})\n"
        "try:\n    paddle.log(paddle.to_tensor([-1.0]))\nexcept RuntimeError:\n    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "[PRECISION] [ERROR]" in done.stdout, done.stderr


def test_names_the_operator_and_prints_nothing(capfd):
    values = paddle.to_tensor([1.0, 0.0, -1.0])
    with pytest.raises(RuntimeError) as caught, finite_check():
        paddle.log(values)
    assert non_finite(caught.value) == NonFinite("log", nans=1, infinities=1)
    print("printing goes on")
    assert capfd.readouterr().out == "printing goes on\n"
    assert not bool(paddle.isfinite(paddle.log(values)).all())  # the flag is as it was
    assert non_finite(RuntimeError("something else")) is None
