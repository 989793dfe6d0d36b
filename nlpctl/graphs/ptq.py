"""A Paddle graph in int8, by PaddlePaddle's post-training quantisation, corrected for oneDNN.

Weights become int8; the input of each product with a weight gets a fixed scale from calibration rows. The settings are
those with which int8 decided like fp32, scored in Paddle Inference with oneDNN. Paddle's own kernels only simulate
int8, so their scores say nothing about the engine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import paddle
from paddle.static.quantization import PostTrainingQuantization

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.operators import refuse_operators
from nlpctl.formats.program import Operator, Program, ProgramVariable, read_program
from nlpctl.graphs import NARROW, NO_PRODUCT
from nlpctl.graphs.graph_files import PARAMETERS, PROGRAM
from nlpctl.graphs.int8_program import Int8Weight, int8_weights, write_onednn_program
from nlpctl.graphs.program_edit import (
    StaticWorld,
    declare,
    graph_files,
    only,
    operator,
    quiet_quantisers,
    read_parameters,
    replace_operators,
    set_argument,
    static_world,
    write_parameters,
)
from nlpctl.graphs.ptq_settings import PtqSettings, no_rows
from nlpctl.graphs.smoothing import Columns, columns_of
from nlpctl.graphs.to_static import renamed_variables
from nlpctl.upstream.kl_threshold import fast_kl
from nlpctl.upstream.static_int8 import LARGEST, ProductsOnly

PRODUCTS = ("matmul", "matmul_v2", "mul")
STANDARD = PtqSettings()


def quantize(fp32: Path, out: Path, batches: Iterable[Batch], settings: PtqSettings = STANDARD) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams, the graph FP32.pdmodel in int8; returns the weights that became int8.

    Inputs and outputs keep their names. Batches may have more keys than the graph has inputs; 16 of 32 rows are
    enough. They are held in memory. UserError if there are none, or nothing in the graph can be int8; RunFailed if
    Paddle fails. Static mode is switched off again.
    """
    with tempfile.TemporaryDirectory(prefix=".ptq-", dir=out.parent) as temporary:
        simulated = Path(temporary, "simulated")
        simulate(fp32, simulated, batches, settings)
        weights = write_onednn_program(simulated, out)
    if not weights:
        raise _nothing_to_quantise(fp32)
    return weights


def refuse_without_products(fp32: Path) -> None:
    """UserError if the program shows already that nothing in the graph can be int8."""
    if all(weight.shape[-1] < NARROW for _, weight in _products(read_program(graph_files(fp32)[0]))):
        raise _nothing_to_quantise(fp32)


def _nothing_to_quantise(fp32: Path) -> UserError:
    return UserError(f"nothing in this graph can be int8: {NO_PRODUCT}", str(fp32), "use it in fp32 or bf16")


def simulate(fp32: Path, out: Path, batches: Iterable[Batch], settings: PtqSettings = STANDARD) -> None:
    """Write OUT.*, which simulates int8 in fp32; otherwise like `quantize`."""
    settings.check()
    program = read_program(graph_files(fp32)[0])
    refuse_operators(program)
    feeds = [{name: batch[name] for name in program.feeds} for batch in batches]
    if not feeds:
        raise no_rows()
    with tempfile.TemporaryDirectory(prefix=".smooth-", dir=out.parent) as temporary:
        try:
            smooth = smooth_activations(fp32, Path(temporary, "smooth"), feeds, settings)
            program = read_program(graph_files(smooth)[0])
            with static_world() as world:
                _quantize(world, program, smooth, out, feeds, settings)
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            message = f"Paddle cannot quantise this graph: {type(error).__name__}: {error}"
            raise RunFailed(message.strip(), str(fp32), "use it in fp32 or bf16") from error
        _keep_output_names(read_program(graph_files(out)[0]), program)
        if settings.round_type == "adaround" or settings.bias_correction:
            wanted = {"adaround": settings.round_type == "adaround", "bias_correction": settings.bias_correction}
            refine(smooth, program, out, feeds, **wanted)


def _quantize(
    world: StaticWorld, program: Program, fp32: Path, out: Path, feeds: list[Batch], settings: PtqSettings
) -> None:
    with quiet_quantisers(), fast_kl():
        ptq = PostTrainingQuantization(
            world.executor,
            str(fp32.parent),
            scope=world.scope,
            model_filename=fp32.name + PROGRAM,
            params_filename=fp32.name + PARAMETERS,
            # The only input that it accepts is a data loader; each of its items is fed to the executor.
            data_loader=paddle.io.DataLoader(
                _Batches(feeds), batch_size=None, collate_fn=lambda batch: batch, return_list=True
            ),
            batch_nums=len(feeds),
            algo=settings.algo,
            quantizable_op_type=list(PRODUCTS),
            weight_quantize_type=settings.weight_quantize_type,
            onnx_format=True,
            skip_tensor_list=[*settings.skip, *_in_32_bits(program)],
        )
        ptq.quant_config = ProductsOnly(PRODUCTS)
        ptq.quantize()
        ptq.save_quantized_model(str(out.parent), out.name + PROGRAM, out.name + PARAMETERS)


def _in_32_bits(program: Program) -> list[str]:
    """The inputs of products whose weight is too narrow for int8, or transposed: Paddle measures such a weight by its
    rows and rounds it by its columns (docs/upstream.md, InsertQuantizeLinear)."""
    return [
        op.inputs["X"][0]
        for op, weight in _products(program)
        if weight.shape[-1] < NARROW or _is_transposed(op)
    ]


def _is_transposed(product: Operator) -> bool:
    return any(product.attributes.get(name, False) for name in TRANSPOSED)


def _products(program: Program) -> list[tuple[Operator, ProgramVariable]]:
    """The products with a weight, each with it."""
    products = [(op, program.variables[op.inputs["Y"][0]]) for op in program.operators if op.type in PRODUCTS]
    return [(op, factor) for op, factor in products if factor.persistable]


class _Batches(paddle.io.Dataset):
    def __init__(self, batches: Sequence[Batch]):
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        return self.batches[index]


def _keep_output_names(written: Program, program: Program) -> None:
    """Restore output names. Saving multiplies each output by 1 and gives the result a new name."""
    pairs = [(new, old) for new, old in zip(written.fetches, program.fetches, strict=True) if new != old]
    names = dict(pairs) | {old: f"{old}.unscaled" for _, old in pairs}
    written.file.write_bytes(renamed_variables(written.serialized, names))


# -- outlier columns of what products read, divided (smoothing.py) ----------------------------------------------------


def smooth_activations(fp32: Path, out: Path, feeds: Sequence[Batch], settings: PtqSettings = STANDARD) -> Path:
    """Write OUT.*, FP32.* with the outlier columns of what products read divided, and the rows of their weights
    multiplied; it computes the same. Returns `out`, or `fp32` where nothing is divided."""
    desc, arrays = read_parameters(fp32)
    program, block = read_program(graph_files(fp32)[0]), desc.blocks[0]
    weights = _weights_by_activation(program, arrays, settings.skip)
    widths = {name: len(arrays[met[0]]) for name, met in weights.items()}
    columns = _measure_columns(fp32, feeds, widths) if widths else {}
    per_column = settings.weight_quantize_type != "abs_max"
    divisors = {}
    for name, each in columns.items():
        met = [arrays[weight] for weight in weights[name]]
        if (found := each.divisors(met, symmetric=True, per_column=per_column)) is not None:
            divisors[name] = found
    if not divisors:
        return fp32
    kept, done = [], set()
    for op in block.ops:
        if op.type in PRODUCTS and only(op.inputs, "X") in divisors:
            name, weight = only(op.inputs, "X"), only(op.inputs, "Y")
            smooth = f"{name}.smooth"
            if name not in done:
                done.add(name)
                factors = declare(block, f"{name}.factors", "float32", divisors[name].shape, persistable=True)
                arrays[factors] = 1 / divisors[name]
                declare(block, smooth, "float32", [*program.variables[name].shape[:-1], widths[name]])
                kept.append(operator(block, "elementwise_mul", {"X": name, "Y": factors}, {"Out": smooth}, axis=-1))
            set_argument(op.inputs, "X", smooth)
            arrays[weight] = arrays[weight] * divisors[name][:, None]
        kept.append(op)
    replace_operators(block, kept)
    write_parameters(out, desc, arrays)
    return out


def _weights_by_activation(
    program: Program, arrays: Mapping[str, np.ndarray], skip: Collection[str]
) -> dict[str, list[str]]:
    """The weights that an activation meets in products, where the activation may be divided: all of these products
    become int8 and read it column by column, and nothing else reads their weights."""
    own = {op.inputs["Y"][0] for op in _matrix_products(program, arrays)}
    weights: dict[str, list[str]] = {}
    excluded = set(_in_32_bits(program))
    for op in program.operators:
        if op.type not in PRODUCTS or not program.variables[op.inputs["Y"][0]].persistable:
            continue
        name, weight = op.inputs["X"][0], op.inputs["Y"][0]
        last = len(program.variables[name].shape) - 1
        flattened = op.attributes.get("x_num_col_dims", last) != last  # by `mul`
        if weight not in own or flattened or not set(skip).isdisjoint(op.reads):
            excluded.add(name)
        weights.setdefault(name, []).append(weight)
    return {name: met for name, met in weights.items() if name not in excluded}


def _measure_columns(fp32: Path, feeds: Sequence[Batch], widths: Mapping[str, int]) -> dict[str, Columns]:
    """Run the fp32 graph and measure the columns of these variables. `widths`: how many, by name; a program need not
    say it."""
    with static_world() as world:
        program, _, _ = paddle.static.load_inference_model(str(fp32), world.executor)
        outputs = []
        # With a prefix, since names are counted from 0 here, and the graph has such names already.
        with paddle.static.program_guard(program), paddle.utils.unique_name.guard("columns."):
            for name, width in widths.items():
                rows = paddle.reshape(program.global_block().var(name), [-1, width])
                # Not rows * rows: Paddle 3.1 gives the result a name without the prefix.
                outputs += [rows.min(axis=0), rows.max(axis=0), paddle.square(rows).mean(axis=0)]
        seen = [world.executor.run(program, feed=feed, fetch_list=outputs, scope=world.scope) for feed in feeds]
    return columns_of(widths, seen)


# -- better int8 weights than rounding to nearest, judged by the outputs on calibration rows --------------------------
#
# `adaround` rounds a weight up or down such that the output of its product changes least, which is the objective of
# AdaRound (arXiv:2004.10568, equation 13). The paper relaxes the choice and trains it. Here coordinate descent
# minimises the same quadratic form, so the result is never worse than rounding to nearest. `bias_correction` restores
# the spread of each column (arXiv:1810.05723) and adds the mean error of the outputs to the bias.
#
# Paddle 2.6.2 accepts both options, but in its onnx_format the first ruins the weights and the second has no effect
# (docs/upstream.md, QuantWeightPass).

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
    statistics = _measure_inputs(fp32, feeds, {products[weight.name].inputs["X"][0] for weight in weights})
    for weight in weights:
        product, original = products[weight.name], originals[weight.name]
        inputs = statistics[product.inputs["X"][0]]
        if adaround:
            weight = replace(weight, steps=rounded(original, weight, inputs))
        if bias_correction:
            weight = replace(weight, bounds=spread_as(original, weight))
            bias = _bias(program, product, arrays)
            if bias is not None:
                arrays[bias] = arrays[bias] + mean_error(original, weight, inputs)
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
        # A change of one rounding by `by` changes the quadratic form by 2 * by * slope + by^2 * form[row, row].
        by = other[row] - steps[row]
        change[row] = np.where(by * (2 * slope[row] + by * form[row, row]) < 0, by, 0)
        slope += np.outer(form[:, row], change[row])
        steps[row] += change[row]
        other[row] -= change[row]
    return change


def spread_as(original: np.ndarray, weight: Int8Weight) -> np.ndarray:
    """The bounds that give `weight` the standard deviation of `original`, per column or overall."""
    axis = None if weight.bounds.size == 1 else 0
    std = weight.values.std(axis=axis)
    # A column of zeros has no spread to restore; the inner `where` keeps it from being divided by.
    factor = np.where(std > 0, original.std(axis=axis) / np.where(std > 0, std, 1), 1)
    return (weight.bounds * factor).astype(weight.bounds.dtype)


def mean_error(original: np.ndarray, weight: Int8Weight, inputs: Inputs) -> np.ndarray:
    """The mean error of the outputs for these inputs, [n]."""
    return (inputs.total / inputs.rows @ (original - weight.values)).astype(np.float32)


def _by_column(weight: Int8Weight) -> bool:
    return weight.steps.ndim == 2 and (weight.axis == 1 or weight.bounds.size == 1)


def _matrix_products(program: Program, parameters: Mapping[str, np.ndarray]) -> Iterable[Operator]:
    """Products x @ W with a matrix that has no other reader."""
    for op in program.operators:
        if op.type in PRODUCTS and not _is_transposed(op):
            weight = op.inputs["Y"][0]
            if weight in parameters and parameters[weight].ndim == 2 and len(_readers(program, weight)) == 1:
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


def _measure_inputs(fp32: Path, feeds: Sequence[Batch], names: set[str]) -> dict[str, Inputs]:
    """Run the fp32 graph and collect the statistics of these variables."""
    statistics: dict[str, Inputs] = {}
    with static_world() as world:
        program, _, _ = paddle.static.load_inference_model(str(fp32), world.executor)
        order = sorted(names)
        for feed in feeds:
            outputs = world.executor.run(program, feed=feed, fetch_list=order, scope=world.scope)
            for name, output in zip(order, outputs, strict=True):
                rows = output.reshape(-1, output.shape[-1])
                inputs = Inputs(len(rows), rows.sum(axis=0), rows.T @ rows)
                statistics[name] = statistics[name] + inputs if name in statistics else inputs
    return statistics
