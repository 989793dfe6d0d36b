"""Embedding tables of a Paddle graph in int8. With a large vocabulary they are most of the file.

Works on fp32 and on int8 graphs. PaddleNLP has PaddleSlim store logarithms in steps of 1/8 (`quantize_type: log`),
which is off by up to 4.4 % of each number; a scale per row is off by 0.4 % of the row's largest number at most, and is
what graphs/onnx_graph.py does. Rows are dequantised after the look-up, so the table is int8 in memory too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.graphs import TABLE_ROWS
from nlpctl.graphs.program_edit import (
    TYPES,
    copied,
    declare,
    only,
    operator,
    read_parameters,
    replace_operators,
    set_argument,
    write_parameters,
)
from nlpctl.paddle_version import described_tensor

LOOKUP = "lookup_table_v2"
_MOST = 127  # largest int8 value


def quantize_embeddings(graph: Path, out: Path) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams: GRAPH.* with its large tables in int8; returns their names.

    A table with another reader, such as a tied output layer, stays in float32. UserError if no table qualifies, or
    GRAPH is not a graph.
    """
    desc, arrays = read_parameters(graph)
    block = desc.blocks[0]
    names = _tables(block, arrays, graph)
    for name in names:
        _shrink(block, arrays, name)
    kept: list[Any] = []
    for op in block.ops:
        looks_up = op.type == LOOKUP and only(op.inputs, "W") in names
        kept += _looked_up(block, op) if looks_up else [op]
    replace_operators(block, kept)
    write_parameters(out, desc, arrays)
    return names


def refuse_without_tables(graph: Path) -> None:
    """UserError if no table of the graph qualifies, or it is not a graph."""
    desc, arrays = read_parameters(graph)
    _tables(desc.blocks[0], arrays, graph)


def _tables(block: Any, arrays: Mapping[str, np.ndarray], graph: Path) -> tuple[str, ...]:
    """The tables that may become int8: those read by look-ups only. UserError if there is none."""
    # A tied output layer reads the same table as a matrix of float32.
    read = {name for op in block.ops if op.type != LOOKUP for slot in op.inputs for name in slot.arguments}
    tables = []
    for name in dict.fromkeys(only(op.inputs, "W") for op in block.ops if op.type == LOOKUP):
        if name not in arrays or name in read:
            continue
        array = arrays[name]
        # A table of one column is the scales [rows, 1] of a table that is already int8.
        if array.dtype == np.float32 and array.ndim == 2 and len(array) >= TABLE_ROWS and array.shape[1] > 1:
            tables.append(name)
    if not tables:
        message = f"this graph has no float32 embedding table of {TABLE_ROWS} rows or more that only look-ups use"
        raise UserError(message, str(graph), "leave embeddings out: it would save nothing")
    return tuple(tables)


def _shrink(block: Any, arrays: dict[str, np.ndarray], name: str) -> None:
    """Replace a table [rows, width] by its int8 values, and add its scales [rows, 1]."""
    table = arrays[name]
    scales = np.maximum(np.abs(table).max(axis=1, keepdims=True), np.finfo(np.float32).tiny * _MOST) / _MOST
    arrays[name] = np.round(table / scales).astype(np.int8)
    arrays[declare(block, _scales(name), "float32", scales.shape, persistable=True)] = scales.astype(np.float32)
    variable = next(each for each in block.vars if each.name == name)
    described_tensor(variable.type).tensor.data_type = TYPES["int8"]


def _looked_up(block: Any, lookup: Any) -> list[Any]:
    """The operators that replace a look-up in the fp32 table; the output keeps its name and shape."""
    out, ids, table = only(lookup.outputs, "Out"), only(lookup.inputs, "Ids"), only(lookup.inputs, "W")
    shape = list(described_tensor(next(each for each in block.vars if each.name == out).type).tensor.dims)
    steps = declare(block, f"{out}.row_int8", "int8", shape)
    wide = declare(block, f"{out}.row_wide", "float32", shape)
    scale = declare(block, f"{out}.row_scale", "float32", [*shape[:-1], 1])
    row = copied(lookup)  # a copy keeps the attributes: it may have a padding id, whose row is 0
    set_argument(row.outputs, "Out", steps)
    types = {"in_dtype": TYPES["int8"], "out_dtype": TYPES["float32"]}
    return [
        row,
        operator(block, LOOKUP, {"W": _scales(table), "Ids": ids}, {"Out": scale}),
        operator(block, "cast", {"X": steps}, {"Out": wide}, **types),
        operator(block, "elementwise_mul", {"X": wide, "Y": scale}, {"Out": out}, axis=-1),
    ]


def _scales(table: str) -> str:
    return f"{table}.row_scales"
