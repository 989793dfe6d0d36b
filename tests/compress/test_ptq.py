"""Paddle's int8 graphs, judged in the engine that runs them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import paddle
import pytest

from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.program import read_program
from nlpctl.graphs import smoothing
from nlpctl.graphs.int8_program import write_onednn_program
from nlpctl.graphs.program_edit import (
    copied,
    declare,
    graph_files,
    only,
    read_parameters,
    replace_operators,
    set_argument,
    static_world,
    write_parameters,
)
from nlpctl.graphs.ptq import PRODUCTS, PtqSettings, quantize, simulate, smooth_activations

ALGORITHMS = ("avg", "abs_max", "mse", "emd", "hist")


def largest_error(found, expected):
    """As a share of the range of the outputs."""
    return np.abs(found - expected).max() / (expected.max() - expected.min())


def alike(found, expected):
    return (found.argmax(1) == expected.argmax(1)).mean()


@pytest.mark.usefixtures("native_int8")
def test_onednn_computes_what_was_simulated(attention, tmp_path):
    """Exactly, as far as float32 goes: weights of every shape, with columns of very different size."""
    simulate(attention.prefix, tmp_path / "simulated", attention.batches)
    assert len(write_onednn_program(tmp_path / "simulated", tmp_path / "int8")) == 5
    simulated, found = attention.simulated(tmp_path / "simulated"), attention.paddle_int8(tmp_path / "int8")
    assert largest_error(found, simulated) < 1e-3 < 0.01 < largest_error(simulated, attention.expected)


@pytest.mark.usefixtures("native_int8")
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_onednn_decides_as_the_network(attention, tmp_path, algo):
    weights = quantize(attention.prefix, tmp_path / "int8", attention.batches, PtqSettings(algo=algo))
    assert len(weights) == 5  # query, key, value, inner, outer; the head is narrow
    found = attention.paddle_int8(tmp_path / "int8")
    assert 0 < largest_error(found, attention.expected) < 0.3
    assert alike(found, attention.expected) >= 0.9


class Words(paddle.nn.Layer):
    """The end of a masked language model: a product, and the scores of words by the rows of their table."""

    def __init__(self):
        super().__init__()
        self.inner, self.table = paddle.nn.Linear(24, 32), self.create_parameter([96, 32])

    def forward(self, x):
        return paddle.matmul(self.inner(x), self.table, transpose_y=True)


def test_a_transposed_weight_stays_as_it_is(tmp_path):
    """Paddle cannot quantise it (tests/upstream/test_static_int8.py), and no language model of nlpctl's own encoders
    could be int8 for that."""
    rows = np.random.default_rng(0).normal(size=(16, 24)).astype(np.float32)
    with paddle.utils.unique_name.guard():
        network = Words()
        network.eval()
        spec = [paddle.static.InputSpec([None, 24], "float32", name="x")]
        paddle.jit.save(paddle.jit.to_static(network, input_spec=spec), str(tmp_path / "fp32"))
    simulate(tmp_path / "fp32", tmp_path / "simulated", [{"x": rows}])
    _, arrays = read_parameters(tmp_path / "simulated")
    types = {array.shape: array.dtype for array in arrays.values()}
    assert types[24, 32] == np.int8 and types[96, 32] == np.float32


def test_a_scale_per_weight(attention, tmp_path):
    settings = PtqSettings(weight_quantize_type="abs_max")
    quantize(attention.prefix, tmp_path / "int8", attention.batches, settings)
    assert largest_error(attention.paddle_int8(tmp_path / "int8"), attention.expected) < 0.35


@pytest.mark.usefixtures("native_int8")
@pytest.mark.parametrize("settings", [{}, {"round_type": "adaround"}, {"bias_correction": True}], ids=str)
def test_outlier_columns_cost_the_others_nothing(outliers, tmp_path, monkeypatch, settings):
    quantize(outliers.prefix, tmp_path / "smooth", outliers.batches, PtqSettings(**settings))
    monkeypatch.setattr(smoothing, "GAIN", np.inf)
    quantize(outliers.prefix, tmp_path / "plain", outliers.batches, PtqSettings(**settings))
    answers = (outliers.paddle_int8(tmp_path / each) for each in ("smooth", "plain"))
    rows = outliers.expected - outliers.expected.mean(0)
    with_it, without = (largest_error(each - each.mean(0), rows) for each in answers)
    assert with_it < without / 2


def test_a_smoothed_graph_computes_the_same(outliers, tmp_path):
    smooth = smooth_activations(outliers.prefix, tmp_path / "smooth", outliers.batches)
    assert smooth == tmp_path / "smooth"
    np.testing.assert_allclose(outliers.simulated(smooth), outliers.expected, rtol=1e-4, atol=1e-4)
    programs = (read_program(graph_files(each)[0]) for each in (outliers.prefix, smooth))
    before, after = (Counter(op.type for op in each.operators) for each in programs)
    assert after - before == {"elementwise_mul": 2} and not before - after


def test_graphs_without_outliers_are_not_copied(attention, tmp_path):
    assert smooth_activations(attention.prefix, tmp_path / "smooth", attention.batches) == attention.prefix
    assert not list(tmp_path.iterdir())


def test_weights_that_layers_share_are_not_changed(outliers, tmp_path):
    """ALBERT's layers: a weight meets another activation in each."""
    desc, arrays = read_parameters(outliers.prefix)
    block = desc.blocks[0]
    shared = outliers.network.outer.weight.name
    product = next(copied(op) for op in block.ops if op.type in PRODUCTS and only(op.inputs, "Y") == shared)
    given = only(product.inputs, "X")
    set_argument(product.outputs, "Out", declare(block, "again", "float32", [-1, -1, 32]))
    replace_operators(block, [*block.ops[:-1], product, block.ops[-1]])
    write_parameters(tmp_path / "shared", desc, arrays)
    smooth_activations(tmp_path / "shared", tmp_path / "smooth", outliers.batches)
    _, smooth = read_parameters(tmp_path / "smooth")
    np.testing.assert_array_equal(smooth[shared], arrays[shared])
    for skipped in (given, shared):
        smooth_activations(outliers.prefix, tmp_path / "skip", outliers.batches, PtqSettings(skip=(skipped,)))
        _, smooth = read_parameters(tmp_path / "skip")
        np.testing.assert_array_equal(smooth[shared], arrays[shared])


class Odd(paddle.nn.Layer):
    """Products that are no plain x @ W: of a vector, with a shape that is known as it runs, with a narrow neighbour."""

    def __init__(self):
        super().__init__()
        self.table = paddle.nn.Embedding(1200, 32)
        table = self.table.weight.numpy()
        table[:, 5] *= 40
        self.table.weight.set_value(table)
        self.wide, self.narrow, self.merged = (paddle.nn.Linear(32, size) for size in (64, 3, 24))
        self.vector = self.create_parameter([64])

    def forward(self, input_ids):
        states = self.table(input_ids)
        shape = paddle.shape(states)
        merged = self.merged(states.reshape([shape[0], shape[1], 4, 8]).reshape([shape[0], shape[1], -1]))
        scores = paddle.matmul(self.wide(states), self.vector)
        return self.narrow(states).sum(1) + scores.sum(1, keepdim=True) + merged.sum([1, 2], keepdim=False).unsqueeze(1)


@pytest.mark.usefixtures("native_int8")
def test_products_that_are_not_understood_are_left(make_network, tmp_path):
    odd = make_network(Odd)
    smooth = smooth_activations(odd.prefix, tmp_path / "smooth", odd.batches)
    np.testing.assert_allclose(odd.simulated(smooth), odd.expected, rtol=1e-4, atol=1e-3)
    before, after = (read_parameters(each)[1] for each in (odd.prefix, smooth))
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {odd.network.merged.weight.name}  # what `wide` reads `narrow` reads, too
    quantize(odd.prefix, tmp_path / "int8", odd.batches, PtqSettings(weight_quantize_type="abs_max"))
    assert largest_error(odd.paddle_int8(tmp_path / "int8"), odd.expected) < 0.2


def test_products_that_flatten_are_left(tmp_path):
    with static_world() as world:
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            given = paddle.static.data("input_ids", [-1, 4, 64], "float32")
            out = paddle.static.nn.fc(given, 32, num_flatten_dims=1)
            world.executor.run(paddle.static.default_startup_program(), scope=world.scope)
            paddle.static.save_inference_model(str(tmp_path / "flat"), [given], [out], world.executor, program=program)
    far = np.random.default_rng(0).normal(size=(8, 4, 64)).astype(np.float32)
    far[:, :, 3] *= 50
    smooth = smooth_activations(tmp_path / "flat", tmp_path / "smooth", [{"input_ids": far}])
    assert smooth == tmp_path / "flat"


def test_the_files_are_smaller_and_name_what_the_graph_names(attention, tmp_path):
    quantize(attention.prefix, tmp_path / "int8", attention.batches)
    before, after = (read_program(folder / name) for folder, name in
                     ((attention.folder, "model.pdmodel"), (tmp_path, "int8.pdmodel")))  # fmt: skip
    assert (after.feeds, after.fetches) == (before.feeds, before.fetches) == (("input_ids",), ("logits",))
    sizes = [(attention.folder / "model.pdiparams").stat().st_size, (tmp_path / "int8.pdiparams").stat().st_size]
    inside = sum(parameter.size for name, parameter in attention.network.named_parameters()
                 if parameter.ndim == 2 and "table" not in name)  # fmt: skip
    assert sizes[0] - sizes[1] > 2.5 * inside  # 4 bytes became 1; scales are added
    assert sorted(path.name for path in tmp_path.iterdir()) == ["int8.pdiparams", "int8.pdmodel"]


def test_what_is_skipped_stays_fp32(attention, tmp_path):
    program = read_program(attention.folder / "model.pdmodel")
    activated = next(op.outputs["Out"][0] for op in program.operators if op.type == "gelu")
    every = quantize(attention.prefix, tmp_path / "all", attention.batches)
    fewer = quantize(attention.prefix, tmp_path / "some", attention.batches, PtqSettings(skip=(activated,)))
    assert len(fewer) == len(every) - 1
    assert set(every) - set(fewer) == {attention.network.outer.weight.name}


def test_dynamic_mode_and_random_numbers_are_as_before(attention, tmp_path):
    paddle.seed(7)
    expected = paddle.rand([3]).numpy()
    paddle.seed(7)
    quantize(attention.prefix, tmp_path / "int8", attention.batches)
    assert paddle.in_dynamic_mode()
    np.testing.assert_array_equal(paddle.rand([3]).numpy(), expected)


def test_also_after_a_failure(attention, tmp_path):
    wrong = [{"input_ids": np.zeros((2, 3, 4), np.int64)}]
    with pytest.raises(RunFailed, match="Paddle cannot quantise"):
        quantize(attention.prefix, tmp_path / "int8", wrong)
    assert paddle.in_dynamic_mode()


def test_no_rows(attention, tmp_path):
    with pytest.raises(UserError, match="no rows"):
        quantize(attention.prefix, tmp_path / "int8", [])


def test_nothing_to_quantise(tmp_path):
    class Table(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = paddle.nn.Embedding(9, 4)

        def forward(self, input_ids):
            return self.table(input_ids).sum(1)

    from nlpctl.graphs.to_static import write_paddle_graph

    batch = {"input_ids": np.ones((2, 3), np.int64)}
    write_paddle_graph(Table(), batch, ("sums",), tmp_path / "model")
    with pytest.raises(UserError, match="nothing in this graph can be int8"):
        quantize(tmp_path / "model", tmp_path / "int8", [batch])
