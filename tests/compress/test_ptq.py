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
    assert with_it < 0.2 < 0.4 < without


def test_a_smoothed_graph_computes_the_same(outliers, tmp_path):
    smooth = smooth_activations(outliers.prefix, tmp_path / "smooth", outliers.batches)
    assert smooth == tmp_path / "smooth"
    np.testing.assert_allclose(outliers.simulated(smooth), outliers.expected, rtol=1e-4, atol=1e-4)
    programs = (read_program(graph_files(each)[0]) for each in (outliers.prefix, smooth))
    before, after = (Counter(op.type for op in each.operators) for each in programs)
    assert after - before == {"elementwise_mul": 1} and not before - after


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
    assert smooth_activations(tmp_path / "shared", tmp_path / "smooth", outliers.batches) == tmp_path / "shared"
    assert smooth_activations(outliers.prefix, tmp_path / "smooth", outliers.batches, (given,)) == outliers.prefix


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
