"""What a quantised graph's file holds, and what is left of it once it is loaded."""

from __future__ import annotations

from collections import Counter

import numpy as np
import paddle
import pytest

from nlpctl.formats.lod_tensor import read_tensors
from nlpctl.formats.program import read_program
from nlpctl.graphs.int8_program import Int8Weight, write_onednn_program
from nlpctl.graphs.ptq import quantize, simulate


def test_weights_are_int8_in_the_file_and_multiplied_out_once(attention, tmp_path):
    weights = quantize(attention.prefix, tmp_path / "int8", attention.batches)
    program = read_program(tmp_path / "int8.pdmodel")
    arrays = dict(zip(program.persistables, read_tensors(tmp_path / "int8.pdiparams"), strict=True))
    assert {arrays[name].dtype for name in weights} == {np.dtype("int8")}
    kinds = Counter(op.type for op in program.operators)
    assert kinds["fc"] >= len(weights) == kinds["elementwise_mul"] and not kinds["dequantize_linear"]
    loaded = Counter(op.type for op in as_loaded(tmp_path / "int8", tmp_path).operators)
    assert loaded["fc"] == kinds["fc"] and not loaded["elementwise_mul"]
    assert loaded["cast"] == kinds["cast"] - len(weights)
    assert list(program.variables) == sorted(program.variables)  # the file is the same from every process


@pytest.mark.parametrize("network", ["attention", "outliers"])
def test_a_graph_made_again_is_the_same_file(network, request, tmp_path):
    """Paddle Inference counts the variables that it adds, through all graphs of a process."""
    made = request.getfixturevalue(network)
    for name in ("one", "two"):
        quantize(made.prefix, tmp_path / name, made.batches)
    for ending in (".pdmodel", ".pdiparams"):
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()
    added = sorted(name for name in read_program(tmp_path / "two.pdmodel").variables if "/out/" in name)
    assert added[:2] == ["quantize/out/0", "quantize/out/1"]


def as_loaded(prefix, folder):
    """What Paddle Inference runs."""
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_mkldnn()
    config.set_optim_cache_dir(str(folder))
    config.enable_save_optim_model(True)
    paddle.inference.create_predictor(config)
    return read_program(folder / "_optimized.pdmodel")


@pytest.mark.usefixtures("native_int8")
def test_every_size_of_batch(attention, tmp_path):
    simulate(attention.prefix, tmp_path / "simulated", attention.batches)
    write_onednn_program(tmp_path / "simulated", tmp_path / "int8")
    for rows, length in ((1, 1), (3, 9), (64, 5), (1, 9)):
        some = attention.cut(rows, length)
        np.testing.assert_allclose(
            some.paddle_int8(tmp_path / "int8"), some.simulated(tmp_path / "simulated"), atol=1e-3
        )


def test_bounds_of_columns():
    steps = np.array([[127, -64, 1], [10, 127, -127]], np.int8)
    by_column = Int8Weight(steps, np.array([1, 2, 0.5], np.float32), 1, None)
    by_row = Int8Weight(steps, np.array([1, 2], np.float32), 0, None)
    at_all = Int8Weight(steps, np.array([3], np.float32), -1, None)
    np.testing.assert_allclose(by_column.values, steps * np.array([1, 2, 0.5]) / 127, rtol=1e-6)
    np.testing.assert_allclose(by_row.values, steps * np.array([[1], [2]]) / 127, rtol=1e-6)
    assert by_column.column_bounds.tolist() == [1, 2, 0.5]
    np.testing.assert_allclose(by_row.column_bounds, np.abs(by_row.values).max(0))
    assert at_all.column_bounds.tolist() == [3, 3, 3]
