"""Embedding tables of Paddle graphs in int8, run by the engine."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from nlpctl.engines.paddle_inference import PaddlePredictor
from nlpctl.errors import UserError
from nlpctl.formats.program import read_program
from nlpctl.graphs.embedding_size import embedding_bytes
from nlpctl.graphs.embeddings import quantize_embeddings
from nlpctl.graphs.onnx_quantize import quantize_dynamic
from nlpctl.graphs.program_edit import read_parameters
from nlpctl.graphs.ptq import quantize
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.runtime.process import ProcessSetup

SETUP = ProcessSetup("cpu", threads=1, rank=0, world_size=1)
ROWS = 1500


class Tables(paddle.nn.Layer):
    """Rows of very different size, of which that of the padding id is 0; a small table; the first one once more."""

    def __init__(self, tied: bool):
        super().__init__()
        self.words, self.places = paddle.nn.Embedding(ROWS, 8, padding_idx=0), paddle.nn.Embedding(20, 8)
        rows = np.random.default_rng(1).normal(size=(ROWS, 8)) * np.logspace(-3, 2, ROWS)[:, None]
        self.words.weight.set_value(rows.astype(np.float32))
        self.tied = tied

    def forward(self, input_ids):
        states = self.words(input_ids)
        if self.tied:
            return paddle.matmul(states, self.words.weight, transpose_y=True)
        return states + 0 * self.places(input_ids % 20), self.words(input_ids + 1)


def predictor(prefix, precision, outputs):
    graph = Graph("paddle", "int8" if precision == "int8" else "fp32", (f"{prefix.name}.pdmodel",
                  f"{prefix.name}.pdiparams"), "embeddings")  # fmt: skip
    specs = tuple(TensorSpec(name, "float32", (None, None)) for name in outputs)
    inputs = (TensorSpec("input_ids", "int64", (None, None)),)
    manifest = ExportManifest("sequence_classification", inputs, specs, 64, (graph,), 0, "", {})
    return PaddlePredictor(prefix.parent, manifest, graph, precision, SETUP)


def outputs(prefix, precision, batch, names=("logits",)):
    return predictor(prefix, precision, names).outputs(batch)


def size(prefix):
    return prefix.with_name(f"{prefix.name}.pdiparams").stat().st_size


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_fp32_graph(attention, tmp_path, precision):
    (name,) = quantize_embeddings(attention.prefix, tmp_path / "small")
    table = attention.network.table.weight
    assert name == table.name and read_parameters(tmp_path / "small")[1][name].dtype == np.int8
    saved = size(attention.prefix) - size(tmp_path / "small")
    assert 0.99 * saved < 3 * table.size - 4 * len(table) <= 1.01 * saved  # 4 bytes became 1, and a scale per row
    before = outputs(attention.prefix, precision, attention.rows)[0]
    found = outputs(tmp_path / "small", precision, attention.rows)[0]
    assert 0 < np.abs(found - before).max() < 0.01 * np.ptp(before)


def test_an_int8_graph(attention, tmp_path):
    quantize(attention.prefix, tmp_path / "int8", attention.batches)
    assert len(quantize_embeddings(tmp_path / "int8", tmp_path / "small")) == 1
    before, after = (read_program(tmp_path / f"{name}.pdmodel") for name in ("int8", "small"))
    assert (after.feeds, after.fetches) == (before.feeds, before.fetches)
    assert size(tmp_path / "small") < 0.45 * size(tmp_path / "int8")
    one, other = (outputs(tmp_path / name, "int8", attention.rows)[0] for name in ("int8", "small"))
    assert 0 < np.abs(one - other).max() < 0.05 * np.ptp(one)


def test_how_much_of_a_graph_its_tables_are(attention, tmp_path):
    """In fp32 and in 8 bits with a scale per row, of both kinds of graphs."""
    table, prefix = attention.network.table.weight, attention.prefix
    whole, small = 4 * table.size, table.size + 4 * len(table)
    assert embedding_bytes(prefix.with_suffix(".pdmodel")) == embedding_bytes(prefix.with_suffix(".onnx")) == whole
    quantize_embeddings(prefix, tmp_path / "small")
    quantize_dynamic(prefix.with_suffix(".onnx"), tmp_path / "int8.onnx")
    assert embedding_bytes(tmp_path / "small.pdmodel") == embedding_bytes(tmp_path / "int8.onnx") == small


def test_every_row_by_itself(tmp_path):
    network = Tables(tied=False)
    batch = {"input_ids": np.arange(ROWS - 1)[None]}
    write_paddle_graph(network, batch, ("one", "next"), tmp_path / "model")
    assert quantize_embeddings(tmp_path / "model", tmp_path / "small") == (network.words.weight.name,)
    one, following = outputs(tmp_path / "small", "fp32", batch, ("one", "next"))
    table = network.words.weight.numpy()
    for found, rows in ((one[0, 1:], table[1:-1]), (following[0], table[1:])):
        assert (np.abs(found - rows).max(1) <= np.abs(rows).max(1) / 127 / 2 * 1.01).all()
    assert (one[0, 0] == 0).all() and table[0].any()  # the padding id
    with pytest.raises(UserError, match="no float32 embedding table of 1024 rows"):
        quantize_embeddings(tmp_path / "small", tmp_path / "again")


def test_a_table_that_is_an_output_layer_too(tmp_path):
    write_paddle_graph(Tables(tied=True), {"input_ids": np.ones((1, 3), np.int64)}, ("scores",), tmp_path / "model")
    assert embedding_bytes(tmp_path / "model.pdmodel") == 0
    with pytest.raises(UserError, match="only look-ups use"):
        quantize_embeddings(tmp_path / "model", tmp_path / "small")
    assert not (tmp_path / "small.pdmodel").exists()
