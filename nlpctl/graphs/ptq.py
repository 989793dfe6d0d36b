"""A Paddle graph in int8, by PaddlePaddle's post-training quantisation, corrected for oneDNN.

Weights become int8; the input of each product with a weight gets a fixed scale from calibration rows. The settings are
those with which int8 decided like fp32, scored in Paddle Inference with oneDNN. Paddle's own kernels only simulate
int8, so their scores say nothing about the engine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import paddle
from paddle.static.quantization import PostTrainingQuantization

from nlpctl.data.collate import Batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.formats.program import Program, read_program
from nlpctl.graphs import NARROW
from nlpctl.graphs.calibration import Calibration, no_rows
from nlpctl.graphs.graph_files import PARAMETERS, PROGRAM
from nlpctl.graphs.onednn_program import write_onednn_program
from nlpctl.graphs.program_edit import graph_files
from nlpctl.graphs.rounding import refine
from nlpctl.graphs.static_mode import StaticWorld, quiet_quantisers, static_world
from nlpctl.graphs.to_static import renamed_variables
from nlpctl.upstream.kl_threshold import fast_kl
from nlpctl.upstream.static_int8 import ProductsOnly

PRODUCTS = ("matmul", "matmul_v2", "mul")
STANDARD = Calibration()


def quantize(fp32: Path, out: Path, batches: Iterable[Batch], calibration: Calibration = STANDARD) -> tuple[str, ...]:
    """Write OUT.pdmodel and OUT.pdiparams, the graph FP32.pdmodel in int8; returns the weights that became int8.

    Inputs and outputs keep their names. Batches may have more keys than the graph has inputs; 16 of 32 rows are
    enough. They are held in memory. UserError if there are none, or nothing in the graph can be int8; RunFailed if
    Paddle fails. Static mode is switched off again.
    """
    with tempfile.TemporaryDirectory(prefix=".ptq-", dir=out.parent) as temporary:
        simulated = Path(temporary, "simulated")
        simulate(fp32, simulated, batches, calibration)
        weights = write_onednn_program(simulated, out)
    if not weights:
        message = "nothing in this graph can be int8: it has no wide product with a weight matrix"
        raise UserError(message, str(fp32), "use it in fp32 or bf16")
    return weights


def simulate(fp32: Path, out: Path, batches: Iterable[Batch], calibration: Calibration = STANDARD) -> None:
    """Write OUT.*, which simulates int8 in fp32; otherwise like `quantize`."""
    calibration.check()
    program = read_program(graph_files(fp32)[0])
    feeds = [{name: batch[name] for name in program.feeds} for batch in batches]
    if not feeds:
        raise no_rows()
    with static_world() as world:
        try:
            _quantize(world, program, fp32, out, feeds, calibration)
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            message = f"Paddle cannot quantise this graph: {type(error).__name__}: {error}"
            raise RunFailed(message.strip(), str(fp32), "use it in fp32 or bf16") from error
    _keep_output_names(read_program(graph_files(out)[0]), program)
    if calibration.round_type == "adaround" or calibration.bias_correction:
        wanted = {"adaround": calibration.round_type == "adaround", "bias_correction": calibration.bias_correction}
        refine(fp32, program, out, feeds, **wanted)


def _quantize(
    world: StaticWorld, program: Program, fp32: Path, out: Path, feeds: list[Batch], calibration: Calibration
) -> None:
    with quiet_quantisers(), fast_kl():
        ptq = PostTrainingQuantization(
            world.executor,
            str(fp32.parent),
            scope=world.scope,
            model_filename=fp32.name + PROGRAM,
            params_filename=fp32.name + PARAMETERS,
            data_loader=_loader(feeds),
            batch_nums=len(feeds),
            algo=calibration.algo,
            quantizable_op_type=list(PRODUCTS),
            weight_quantize_type=calibration.weight_quantize_type,
            onnx_format=True,
            skip_tensor_list=[*calibration.skip, *_into_narrow_products(program)],
        )
        ptq.quant_config = ProductsOnly(PRODUCTS)
        ptq.quantize()
        ptq.save_quantized_model(str(out.parent), out.name + PROGRAM, out.name + PARAMETERS)


def _into_narrow_products(program: Program) -> list[str]:
    """The inputs of products whose weight is too narrow for int8."""
    products = [op for op in program.operators if op.type in PRODUCTS]
    weights = [(op.inputs["X"][0], program.variables[op.inputs["Y"][0]]) for op in products]
    return [name for name, weight in weights if weight.persistable and weight.shape[-1] < NARROW]


class _Batches(paddle.io.Dataset):
    def __init__(self, batches: Sequence[Batch]):
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        return self.batches[index]


def _loader(batches: Sequence[Batch]) -> paddle.io.DataLoader:
    """A data loader, the only input that PostTrainingQuantization accepts; each item is fed to the executor."""
    return paddle.io.DataLoader(_Batches(batches), batch_size=None, collate_fn=_as_it_is, return_list=True)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _keep_output_names(written: Program, program: Program) -> None:
    """Restore output names. Saving multiplies each output by 1 and gives the result a new name."""
    pairs = [(new, old) for new, old in zip(written.fetches, program.fetches, strict=True) if new != old]
    names = dict(pairs) | {old: f"{old}.unscaled" for _, old in pairs}
    written.file.write_bytes(renamed_variables(written.serialized, names))
