"""From a graph that simulates int8 to one that oneDNN computes in int8, with the right scales for every weight.

The graphs of quantisers (by calibration or by training) compute in float32 and round: quantize_linear and
dequantize_linear precede each product. Paddle Inference can replace them by int8 kernels at load time, but uses wrong
scales for the weights. So the replacement runs once, here, the scales are corrected, and the result is the file. It
needs only `enable_mkldnn()`. Weights stay int8 on disk and are dequantised at load time.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle.inference as paddle_inference

from nlpctl.graphs.int8_weights import Int8Weight, int8_weights
from nlpctl.graphs.program_edit import (
    TYPES,
    copied,
    declare,
    graph_files,
    only,
    operator,
    read_parameters,
    replace_operators,
    write_parameters,
)
from nlpctl.paddle_version import described_tensor
from nlpctl.runtime.process_state import silent_stderr
from nlpctl.upstream.static_int8 import set_weight_scales

_ADDED = re.compile(r"(\w+/(?:in|out))/\d+")


def write_onednn_program(simulated: Path, out: Path) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams from SIMULATED.*, in the onnx_format of Paddle's quantisers.

    Returns the weights whose products are computed in int8. Inputs and outputs keep their names and order.
    """
    simulated_desc, simulated_arrays = read_parameters(simulated)
    weights = {weight.name: weight for weight in int8_weights(simulated_desc, simulated_arrays)}
    with tempfile.TemporaryDirectory(prefix=".int8-", dir=out.parent) as temporary:
        plain, made = Path(temporary, "plain"), Path(temporary, "_optimized")
        write_parameters(plain, *_multiplied_out(simulated_desc, simulated_arrays, weights))
        _optimise(plain, made.parent)
        desc, arrays = read_parameters(made)
    int8 = _mend_scales(desc, arrays, weights)
    _restore(desc, arrays, [each for name, each in weights.items() if np.array_equal(arrays.get(name), each.values)])
    _number_anew(desc.blocks[0])
    _sort_variables(desc.blocks[0])
    write_parameters(out, desc, arrays)
    return int8


def _number_anew(block: Any) -> None:
    """Count the variables that Paddle Inference added, such as quantize/out/28, from 0: it goes on from the last graph
    of the process."""
    counts, names = Counter[str](), dict[str, str]()
    for name in (name for op in block.ops for slot in op.outputs for name in slot.arguments):
        added = _ADDED.fullmatch(name)
        if added is not None and name not in names:
            names[name] = f"{added[1]}/{counts[added[1]]}"
            counts[added[1]] += 1
    for variable in block.vars:
        variable.name = names.get(variable.name, variable.name)
    for op in block.ops:
        for slot in (*op.inputs, *op.outputs):
            slot.arguments[:] = [names.get(name, name) for name in slot.arguments]


def _sort_variables(block: Any) -> None:
    """Paddle Inference writes them in an order that changes from process to process."""
    variables = sorted(map(copied, block.vars), key=lambda variable: variable.name)
    del block.vars[:]
    block.vars.extend(variables)


def _multiplied_out(
    desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]
) -> tuple[Any, dict[str, np.ndarray]]:
    """The same program with its weights in float32, so that Paddle Inference cannot confuse rows and columns of the
    scales."""
    desc = copied(desc)
    block = desc.blocks[0]
    kept = [op for op in block.ops if op.type != "dequantize_linear" or only(op.inputs, "X") not in weights]
    replace_operators(block, kept)
    _rename_inputs(block, {weight.product: name for name, weight in weights.items()})
    for variable in block.vars:
        if variable.name in weights:
            described_tensor(variable.type).tensor.data_type = TYPES["float32"]
    return desc, {name: weights[name].values if name in weights else array for name, array in arrays.items()}


def _optimise(prefix: Path, folder: Path) -> None:
    """Let Paddle Inference optimise a program for int8 and write the result as FOLDER/_optimized.*."""
    config = paddle_inference.Config(*map(str, graph_files(prefix)))
    config.disable_glog_info()
    config.disable_gpu()
    config.enable_mkldnn()
    config.enable_mkldnn_int8()
    config.set_optim_cache_dir(str(folder))
    config.enable_save_optim_model(True)
    with silent_stderr:
        paddle_inference.create_predictor(config)


def _mend_scales(desc: Any, arrays: Mapping[str, np.ndarray], weights: Mapping[str, Int8Weight]) -> tuple[str, ...]:
    """Set the scales of every int8 product to those of its weight's columns; returns the names of these weights."""
    found = []
    for op in desc.blocks[0].ops:
        if op.type == "fc" and any(attribute.name == "Scale_weights" for attribute in op.attrs):
            name = only(op.inputs, "W")
            # The passes may have fused or scaled a weight; then its int8 original is no longer valid.
            known = name in weights and np.array_equal(weights[name].values, arrays[name])
            set_weight_scales(op, weights[name].column_bounds if known else np.abs(arrays[name]).max(axis=0))
            found.append(name)
    return tuple(dict.fromkeys(found))


def _restore(desc: Any, arrays: dict[str, np.ndarray], weights: Sequence[Int8Weight]) -> None:
    """Restore int8 weights, with operators that dequantise them.

    The operators are cast and elementwise_mul. Paddle Inference folds these constants at load time, but would run
    dequantize_linear in every batch.
    """
    block = desc.blocks[0]
    _rename_inputs(block, {weight.name: weight.product for weight in weights})
    replaced = {name for weight in weights for name in (weight.name, weight.scale_name)}
    variables = [copied(variable) for variable in block.vars if variable.name not in replaced]
    del block.vars[:]
    block.vars.extend(variables)
    made = [op for weight in weights for op in _multiplying_out(block, weight)]
    # Feed operators stay at the beginning of the block.
    first = next(index for index, op in enumerate(block.ops) if op.type != "feed")
    replace_operators(block, [*block.ops[:first], *made, *block.ops[first:]])
    for weight in weights:
        arrays[weight.name], arrays[weight.scale_name] = weight.steps, weight.step


def _multiplying_out(block: Any, weight: Int8Weight) -> Iterable[Any]:
    """Declare the variables of a weight and yield the operators that compute its values."""
    shape = weight.steps.shape
    kept = declare(block, weight.name, "int8", shape, persistable=True)
    step = declare(block, weight.scale_name, "float32", weight.step.shape, persistable=True)
    steps = declare(block, f"{weight.name}.steps", "float32", shape)
    product = declare(block, weight.product, "float32", shape)
    yield operator(block, "cast", {"X": kept}, {"Out": steps}, in_dtype=TYPES["int8"], out_dtype=TYPES["float32"])
    yield operator(block, "elementwise_mul", {"X": steps, "Y": step}, {"Out": product}, axis=-1)


def _rename_inputs(block: Any, names: Mapping[str, str]) -> None:
    for op in block.ops:
        for slot in op.inputs:
            slot.arguments[:] = [names.get(name, name) for name in slot.arguments]
