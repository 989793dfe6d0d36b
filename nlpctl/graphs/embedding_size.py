"""How much of a graph its embedding tables are: with the vocabulary of many languages, most of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from nlpctl.graphs import TABLE_ROWS

_Reads = Iterable[tuple[str, bool]]  # the name of a tensor, and whether it is read as a table, row by row


def embedding_bytes(file: Path) -> int:
    """The bytes of the embedding tables in a graph, a .pdmodel or an .onnx, with the scales of those in 8 bits.

    Small tables, such as of positions, do not count, nor do those that something else reads too, such as a tied
    output layer. UserError if it is not a graph.
    """
    sizes, reads = _onnx(file) if file.suffix == ".onnx" else _paddle(file)
    looked_up, otherwise = set[str](), set[str]()
    for name, as_table in reads:
        (looked_up if as_table else otherwise).add(name)
    return sum(sizes[name] for name in looked_up - otherwise if name in sizes)


def _paddle(file: Path) -> tuple[Mapping[str, int], _Reads]:
    from nlpctl.formats.program import read_program
    from nlpctl.graphs.embeddings import LOOKUP

    program = read_program(file)
    sizes = {
        name: int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize
        for name, each in program.variables.items()
        if each.persistable and len(each.shape) == 2 and each.shape[0] >= TABLE_ROWS
    }
    reads = [
        (name, op.type == LOOKUP and slot == "W")
        for op in program.operators
        for slot, names in op.inputs.items()
        for name in names
    ]
    return sizes, reads


def _onnx(file: Path) -> tuple[Mapping[str, int], _Reads]:
    import onnx

    from nlpctl.graphs.onnx_graph import constants_to_initializers

    graph = onnx.load(str(file), load_external_data=False).graph
    constants_to_initializers(graph)
    sizes = {
        tensor.name: int(np.prod(tensor.dims)) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in graph.initializer
        if len(tensor.dims) == 2 and tensor.dims[0] >= TABLE_ROWS
    }
    reads = [
        (name, node.op_type == "Gather" and place == 0) for node in graph.node for place, name in enumerate(node.input)
    ]
    return sizes, reads
