"""From a graph that simulates int8 to one that oneDNN computes in int8, by every shape of weight as it was meant.

What quantisers write (by calibration or by training) computes in float32 and rounds: quantize_linear and
dequantize_linear stand before each product. Paddle Inference could replace them by int8 kernels while it loads, but
takes wrong scales for the weights there. So it does so once, here; the scales are put right; and what it made is the
file. It needs `enable_mkldnn()` and no more. Weights stay int8 on disk: loading multiplies them out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle.inference as paddle_inference

from nlpctl.compression.int8_weights import (
    Int8Weight,
    copied,
    graph_files,
    int8_weights,
    only,
    read_parameters,
    write_parameters,
)
from nlpctl.runtime.silence import silent_stderr
from nlpctl.upstream.static_int8 import set_weight_scales

FLOAT32 = 5  # VarType.Type of framework.proto


def write_onednn_program(simulated: Path, out: Path) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams from SIMULATED.*, in the onnx_format of Paddle's quantisers.

    Returns the weights that are multiplied in int8. Inputs and outputs keep their names and order.
    """
    simulated_desc, simulated_arrays = read_parameters(simulated)
    weights = {weight.name: weight for weight in int8_weights(simulated_desc, simulated_arrays)}
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=out.parent) as temporary:
        plain, made = Path(temporary, "plain"), Path(temporary, "_optimized")
        write_parameters(plain, *_multiplied_out(simulated_desc, simulated_arrays, weights))
        _optimise(plain, made.parent)
        desc, arrays = read_parameters(made)
    int8 = _mend_scales(desc, arrays, weights)
    untouched = [each for name, each in weights.items() if np.array_equal(arrays.get(name), each.values)]
    _restore(desc, arrays, untouched, simulated_desc, simulated_arrays)
    write_parameters(out, desc, arrays)
    return int8


def _multiplied_out(
    desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]
) -> tuple[Any, dict[str, np.ndarray]]:
    """The same program with its weights in float32, so that nobody else has to tell rows from columns."""
    desc = copied(desc)
    block = desc.blocks[0]
    kept = [op for op in block.ops if op.type != "dequantize_linear" or only(op.inputs, "X") not in weights]
    _replace(block.ops, kept)
    _rename_inputs(block, {weight.product: name for name, weight in weights.items()})
    for variable in block.vars:
        if variable.name in weights:
            variable.type.lod_tensor.tensor.data_type = FLOAT32
    return desc, {name: weights[name].values if name in weights else array for name, array in arrays.items()}


def _optimise(prefix: Path, folder: Path) -> None:
    """Have Paddle Inference write what it makes of a program for int8, as FOLDER/_optimized.*."""
    config = paddle_inference.Config(*map(str, graph_files(prefix)))
    config.disable_glog_info()
    config.disable_gpu()
    config.enable_mkldnn()
    config.enable_mkldnn_int8()
    config.set_optim_cache_dir(str(folder))
    config.enable_save_optim_model(True)
    with silent_stderr():
        paddle_inference.create_predictor(config)


def _mend_scales(desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]) -> tuple[str, ...]:
    """Give every int8 product the scales of its weight's columns; returns the names of these weights."""
    found = []
    for op in desc.blocks[0].ops:
        if op.type == "fc" and any(attribute.name == "Scale_weights" for attribute in op.attrs):
            name = only(op.inputs, "W")
            known = name in weights and np.array_equal(weights[name].values, arrays[name])
            set_weight_scales(op, weights[name].column_bounds if known else np.abs(arrays[name]).max(axis=0))
            found.append(name)
    return tuple(dict.fromkeys(found))


def _restore(
    desc: Any,
    arrays: dict[str, np.ndarray],
    weights: Sequence[Int8Weight],
    simulated_desc: Any,
    simulated_arrays: Mapping[str, np.ndarray],
) -> None:
    """Put int8 weights back as the simulated program has them, with the operators that multiply them out."""
    block = desc.blocks[0]
    _rename_inputs(block, {weight.name: weight.product for weight in weights})
    first = next(index for index, op in enumerate(block.ops) if op.type != "feed")
    _replace(block.ops, [*block.ops[:first], *(weight.operator for weight in weights), *block.ops[first:]])
    there = {variable.name: variable for variable in block.vars}
    wanted = {name for weight in weights for slot in (*weight.operator.inputs, *weight.operator.outputs)
              for name in slot.arguments}  # fmt: skip
    for variable in simulated_desc.blocks[0].vars:
        if variable.name in wanted:
            (there[variable.name] if variable.name in there else block.vars.add()).CopyFrom(variable)
    arrays.update({name: array for name, array in simulated_arrays.items() if name in wanted})


def _rename_inputs(block: Any, names: Mapping[str, str]) -> None:
    for op in block.ops:
        for slot in op.inputs:
            slot.arguments[:] = [names.get(name, name) for name in slot.arguments]


def _replace(field: Any, messages: list[Any]) -> None:
    copies = [copied(each) for each in messages]
    del field[:]
    field.extend(copies)
