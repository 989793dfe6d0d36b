"""A complete export, in the order in which it happens: graphs written, compared, scored, timed; then its manifest."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import paddle

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import Batch
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import ComparedRows, rows_for_int8, rows_to_compare
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.parity import Parity, batches_of
from nlpctl.engines.samples import timing_batches
from nlpctl.engines.speeds import SIZES
from nlpctl.engines.trained import load_network
from nlpctl.errors import NlpctlError, Problem, RunFailed
from nlpctl.export.report import write_report
from nlpctl.export.request import ELSEWHERE, ExportRequest
from nlpctl.export.scores_and_speeds import dev_scores, time_graphs
from nlpctl.export.strategies import FP16, INT8, GraphBuildContext
from nlpctl.export.verify import RefusedGraph, compare_graphs, remove_graph
from nlpctl.files import writing
from nlpctl.graphs.graph_files import ONNX, ONNX_FP16, PREFIX
from nlpctl.graphs.onnx import is_own_onnx, write_fp16, write_onnx_graph, write_onnx_gru
from nlpctl.graphs.to_static import input_specs, write_paddle_graph
from nlpctl.models.calibration import write_calibration
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec, write_manifest
from nlpctl.models.folder import make_description, save_description
from nlpctl.models.model_manifest import weights_sum
from nlpctl.models.source import resolve_source
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.versions import graph_versions

INT8_ROWS, INT8_BATCH = 512, 32


def write_export(
    recipe: Recipe, setup: ProcessSetup, source: str, folder: Path, final: Path, request: ExportRequest
) -> ExportManifest:
    """Write a complete export into an empty folder, which will be renamed to `final`.

    RunFailed if a requested graph cannot be made, or its outputs differ from the network's.
    """
    request.require_packages()
    model = load_network(recipe, source)
    assert isinstance(model.predictor, DygraphPredictor)
    task, encoder, tokenizer, network = model.task, model.encoder, model.encoder.tokenizer, model.predictor.network
    readers = task_rows(recipe.task, recipe.data)
    rows = rows_to_compare(readers, request.data, tokenizer, request.rows, masked=task.masks_inputs)
    if not rows.real:
        console.warn("no readable row in dev, test or train: compared on synthetic text; @[data=FILE] gives real rows")
    parity = Parity(task, encoder, rows.examples, model.predictor.outputs)

    for_int8: list[ComparedRows] = []  # none, or those that some graph was calibrated on

    def int8_batches() -> Iterator[Batch]:
        if not for_int8:
            for_int8.append(rows_for_int8(readers, request.data, tokenizer, INT8_ROWS, masked=task.masks_inputs))
            if (origin := for_int8[0].origin) != "train":
                also = ", which they are compared on, too" if origin == rows.origin else ""
                message = f"no training rows can be read: graphs in 8 bits are calibrated on {origin}{also}"
                console.warn(f"{message}; @[data.train=FILE] gives some")
        return batches_of(task, encoder, for_int8[0].examples, INT8_BATCH)

    # What is read beside the graphs, and the graphs.
    batch = parity.cases[0].batch
    description = make_description(recipe, task.labels.names, task.thresholds, task.calibration)
    with writing(final, ELSEWHERE):
        save_description(folder, tokenizer, description)
        network.config.architectures = [type(network).__name__]
        network.config.save_pretrained(str(folder))
        outputs, refused = write_graphs(folder, network, batch, task.output_names, request, int8_batches)
    model_folder = resolve_source(source).folder
    manifest = ExportManifest(
        task=recipe.task,
        inputs=input_specs(batch),
        outputs=outputs,
        max_seq_length=recipe.data.max_seq_length,
        graphs=tuple(graph for graph in request.graphs() if graph not in [each.graph for each in refused]),
        rows=len(rows.examples),
        source=source,
        versions=graph_versions(),
        weights=None if model_folder is None else weights_sum(model_folder),
    )

    # Each graph in each engine against the network; those that may be missing and differ are deleted.
    manifest, findings, differing = compare_graphs(folder, manifest, request, setup, parity)
    refused += differing
    for each in refused:
        console.warn(f"{each.graph.files[0]} is left out: {each.reason}")

    # What "auto" chooses by: scores of lower precisions on dev, and speeds.
    if request.scored:
        on_dev, calibrations = dev_scores(folder, manifest, setup, task, encoder)
        if calibrations and task.calibration is not None:
            with writing(final, ELSEWHERE):
                write_calibration(folder, dataclasses.replace(task.calibration, ways=calibrations))
        manifest = dataclasses.replace(manifest, dev=on_dev)
    if request.timing:
        batches = timing_batches(task, encoder, rows.examples, SIZES)
        manifest = dataclasses.replace(manifest, speeds=time_graphs(folder, manifest, setup, batches, request.timing))

    with writing(final, ELSEWHERE):
        write_report(folder, manifest, rows, next(iter(for_int8), None), parity, findings, refused, setup)
        write_manifest(folder, manifest)
    return manifest


def write_graphs(
    folder: Path,
    network: paddle.nn.Layer,
    batch: Batch,
    output_names: Sequence[str],
    request: ExportRequest,
    int8_batches: Callable[[], Iterable[Batch]],
) -> tuple[tuple[TensorSpec, ...], list[RefusedGraph]]:
    """Write the requested graphs for batches like `batch`; returns their outputs and the graphs that were left out.

    `int8_batches` returns further ones, of training rows. RunFailed if a graph fails that the export may not lack.
    """
    prefix, refused = folder / PREFIX, []
    outputs = write_paddle_graph(network, batch, output_names, prefix)  # ONNX is made from it
    if "onnx" in request.formats and is_own_onnx(network):
        (ids,) = batch
        write_onnx_gru(network, ids, output_names, folder / ONNX)
    elif "onnx" in request.formats:
        write_onnx_graph(prefix, folder / ONNX, network.config.pad_token_id, *request.onnx)
    context = GraphBuildContext(folder, request.fp32(), folder, int8_batches)
    jobs: list[tuple[Graph, Callable[[], object]]] = [
        (graph, functools.partial(write_fp16, folder / ONNX, folder / ONNX_FP16)) for graph in request.fp16()
    ]
    jobs += [(strategy.graph, functools.partial(strategy.make_graph, context)) for strategy in request.int8()]
    for graph, make in jobs:
        try:
            make()
        except OSError:  # such as a full disk
            raise
        except Exception as error:  # the converters raise what they like
            if isinstance(error, NlpctlError):  # says the name of the staged input, which nobody will see
                problems = tuple(dataclasses.replace(each, where=graph.files[0]) for each in error.problems)
            else:
                work = {FP16: "the conversion", INT8: "quantisation"}[graph.precision]
                message = f"{work} fails: {type(error).__name__}: {error}"
                problems = (Problem(message, graph.files[0], "use it in fp32"),)
            if not request.may_lack(graph):
                raise RunFailed(problems=problems) from error
            remove_graph(folder, graph)
            refused.append(RefusedGraph(graph, problems))
    if "paddle" not in request.formats:
        for file in folder.glob(f"{PREFIX}.pd*"):
            file.unlink()
    return outputs, refused
