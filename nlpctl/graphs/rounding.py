"""Better int8 weights than rounding to nearest, judged by the outputs on calibration rows.

`adaround` rounds a weight up or down such that the output of its product changes least, which is the objective of
AdaRound (arXiv:2004.10568, equation 13). The paper relaxes the choice and trains it. Here coordinate descent
minimises the same quadratic form, so the result is never worse than rounding to nearest. `bias_correction` restores the
spread of each column (arXiv:1810.05723) and adds the mean error of the outputs to the bias.

Paddle 2.6.2 accepts both options, but in its onnx_format the first ruins the weights and the second has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import paddle

from nlpctl.data.collate import Batch
from nlpctl.formats.program import Operator, Program
from nlpctl.graphs.int8_weights import Int8Weight, int8_weights
from nlpctl.graphs.program_edit import read_parameters, write_parameters
from nlpctl.graphs.static_mode import static_world
from nlpctl.upstream.static_int8 import LARGEST

TRANSPOSED = ("trans_x", "trans_y", "transpose_X", "transpose_Y")
SWEEPS = 4  # through a matrix; after two little changes
BLOCK = 64  # rows of a matrix decided before the gradient of the rest is updated


@dataclass(frozen=True)
class Inputs:
    """Statistics of a product's inputs over all rows: count, sum [k], second moments [k, k]."""

    rows: int
    total: np.ndarray
    products: np.ndarray

    def __add__(self, other: Inputs) -> Inputs:
        return Inputs(self.rows + other.rows, self.total + other.total, self.products + other.products)


def refine(
    fp32: Path, program: Program, simulated: Path, feeds: Sequence[Batch], *, adaround: bool, bias_correction: bool
) -> None:
    """Improve the int8 weights of SIMULATED.*, made of FP32.* (`program`), in place. A matrix that is used twice stays
    unchanged."""
    desc, arrays = read_parameters(simulated)
    _, originals = read_parameters(fp32)
    products = {op.inputs["Y"][0]: op for op in _matrix_products(program, originals)}
    weights = [weight for weight in int8_weights(desc, arrays) if weight.name in products and _by_column(weight)]
    seen = _observed(fp32, feeds, {products[weight.name].inputs["X"][0] for weight in weights})
    for weight in weights:
        product, original = products[weight.name], originals[weight.name]
        inputs = seen[product.inputs["X"][0]]
        if adaround:
            weight = replace(weight, steps=rounded(original, weight, inputs))
        if bias_correction:
            weight = replace(weight, bounds=spread_as(original, weight))
            bias = _bias(program, product, arrays)
            if bias is not None:
                arrays[bias] = arrays[bias] + lost(original, weight, inputs)
        arrays[weight.name] = weight.steps
        arrays[weight.scale_name] = weight.bounds.reshape(arrays[weight.scale_name].shape)
    write_parameters(simulated, desc, arrays)


def rounded(original: np.ndarray, weight: Int8Weight, inputs: Inputs) -> np.ndarray:
    """The steps of `weight`, each rounded up or down from `original` [k, n], with the smallest output error."""
    exact = original / np.maximum(weight.column_bounds, np.finfo(np.float32).tiny) * LARGEST
    steps = np.clip(np.rint(exact), -LARGEST, LARGEST)
    other = np.clip(steps + np.where(exact >= steps, 1, -1), -LARGEST, LARGEST)
    form = inputs.products / inputs.rows
    # The squared error of the outputs is a quadratic form in the rounding errors of a column, so columns are
    # independent.
    slope = form @ (steps - exact)  # half the gradient, in units of each column's step
    for _ in range(SWEEPS):
        changed = False
        for start in range(0, len(steps), BLOCK):
            rows = slice(start, start + BLOCK)
            change = _decide(steps[rows], other[rows], slope[rows].copy(), form[rows, rows])
            slope += form[:, rows] @ change
            changed |= bool(change.any())
        if not changed:
            break
    return steps.astype(weight.steps.dtype)


def _decide(steps: np.ndarray, other: np.ndarray, slope: np.ndarray, form: np.ndarray) -> np.ndarray:
    """Flip the rounding if that is better, row after row, in place; returns the change of `steps`."""
    change = np.zeros_like(steps)
    for row in range(len(steps)):
        by = other[row] - steps[row]
        change[row] = np.where(by * (2 * slope[row] + by * form[row, row]) < 0, by, 0)
        slope += np.outer(form[:, row], change[row])
        steps[row] += change[row]
        other[row] -= change[row]
    return change


def spread_as(original: np.ndarray, weight: Int8Weight) -> np.ndarray:
    """The bounds that give `weight` the standard deviation of `original`, per column or overall."""
    axis = None if weight.bounds.size == 1 else 0
    found = weight.values.std(axis=axis)
    return (weight.bounds * np.where(found > 0, original.std(axis=axis) / np.where(found > 0, found, 1), 1)).astype(
        weight.bounds.dtype
    )


def lost(original: np.ndarray, weight: Int8Weight, inputs: Inputs) -> np.ndarray:
    """The mean error of the outputs for these inputs, [n]."""
    return (inputs.total / inputs.rows @ (original - weight.values)).astype(np.float32)


def _by_column(weight: Int8Weight) -> bool:
    return weight.steps.ndim == 2 and (weight.axis == 1 or weight.bounds.size == 1)


def _matrix_products(program: Program, parameters: Mapping[str, np.ndarray]) -> Iterable[Operator]:
    """Products x @ W with a matrix that has no other reader."""
    for op in program.operators:
        transposed = any(op.attributes.get(name, False) for name in TRANSPOSED)
        if op.type in ("matmul", "matmul_v2", "mul") and op.inputs["Y"][0] in parameters and not transposed:
            if len(_readers(program, op.inputs["Y"][0])) == 1:
                yield op


def _bias(program: Program, product: Operator, parameters: Mapping[str, np.ndarray]) -> str | None:
    """The bias that is added to the output of `product`, if it has no other use."""
    readers = _readers(program, product.outputs["Out"][0])
    if len(readers) != 1 or readers[0].type != "elementwise_add":
        return None
    bias = readers[0].inputs["Y"][0]
    return bias if bias in parameters and len(_readers(program, bias)) == 1 else None


def _readers(program: Program, name: str) -> list[Operator]:
    return [op for op in program.operators if name in op.reads]


def _observed(fp32: Path, feeds: Sequence[Batch], names: set[str]) -> dict[str, Inputs]:
    """Run the fp32 graph and collect the statistics of these variables."""
    found: dict[str, Inputs] = {}
    with static_world() as world:
        program, _, _ = paddle.static.load_inference_model(str(fp32), world.executor)
        order = sorted(names)
        for feed in feeds:
            outputs = world.executor.run(program, feed=feed, fetch_list=order, scope=world.scope)
            for name, output in zip(order, outputs, strict=True):
                rows = output.reshape(-1, output.shape[-1])
                inputs = Inputs(len(rows), rows.sum(axis=0), rows.T @ rows)
                found[name] = found[name] + inputs if name in found else inputs
    return found
