"""Restores the sequence lengths of recurrent layers, which paddle2onnx drops."""

from __future__ import annotations

from typing import Any

_RECURRENT = ("GRU", "LSTM", "RNN")
_LENGTHS_INPUT = 4  # of the operators above: X, W, R, B, sequence_lens
_NAME = "nlpctl.row_lengths"


def give_lengths(model: Any, pad_id: int) -> int:
    """Adds the input sequence_lens to the recurrent operators of an ONNX model; returns their number.

    paddle2onnx 1.3.1, mapper/nn/rnn.cc: the input SequenceLength of Paddle's `rnn` is dropped, so that the reverse
    direction begins in the padding and a row's outputs depend on the batch it is in. Here the lengths are counted
    from the input `input_ids`, as models/networks/common.py counts them: what is not `pad_id`, at least 1.
    Test: tests/upstream/test_onnx_lengths.py.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    recurrent = [node for node in model.graph.node if node.op_type in _RECURRENT and not _has_lengths(node)]
    if not recurrent:
        return 0
    names = [f"{_NAME}.{step}" for step in ("padding", "words", "counted", "sum")]
    padding, words, counted, total = names
    constants = {f"{_NAME}.pad": np.array(pad_id, np.int64), f"{_NAME}.axis": np.array([1], np.int64)}
    constants[f"{_NAME}.least"] = np.array(1, np.int32)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    counting = [
        helper.make_node("Equal", ["input_ids", f"{_NAME}.pad"], [padding]),
        helper.make_node("Not", [padding], [words]),
        helper.make_node("Cast", [words], [counted], to=TensorProto.INT32),
        helper.make_node("ReduceSum", [counted, f"{_NAME}.axis"], [total], keepdims=0),
        helper.make_node("Max", [total, f"{_NAME}.least"], [_NAME]),
    ]
    for node in recurrent:
        node.input.extend([""] * (_LENGTHS_INPUT + 1 - len(node.input)))
        node.input[_LENGTHS_INPUT] = _NAME
    # Inserted at the front: ONNX wants nodes in topological order.
    for place, node in enumerate(counting):
        model.graph.node.insert(place, node)
    return len(recurrent)


def _has_lengths(node: Any) -> bool:
    return len(node.input) > _LENGTHS_INPUT and bool(node.input[_LENGTHS_INPUT])
