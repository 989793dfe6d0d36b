"""Existing fp32 graphs, exported by nlpctl or PaddleNLP, as the source of a compression."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection
from pathlib import Path

from nlpctl import console
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.labels import LabelSet
from nlpctl.errors import RunFailed, UserError, of_the_machine
from nlpctl.export.strategies import BY_STRATEGY
from nlpctl.extras import require_onnx
from nlpctl.graphs.graph_files import ONNX, PARAMETERS, PREFIX, PROGRAM, paddle_files
from nlpctl.layout import CALIBRATION, EXPORT_MANIFEST, MANIFEST, REPORTS
from nlpctl.models.export_folder import ExportManifest, Graph, read_manifest, write_manifest
from nlpctl.models.folder import make_description, read_trained_description, write_description
from nlpctl.models.source import read_config, resolve_source
from nlpctl.runtime.versions import graph_versions

NOT_GRAPHS = (EXPORT_MANIFEST, *REPORTS)
_WEIGHTS = (".pdparams", ".safetensors", ".bin", ".pdmodel", ".pdiparams", ".onnx", ".info", ".index.json")


def copy_fp32(recipe: Recipe, export: Path, folder: Path) -> None:
    """The export without its 8-bit graphs, reading text and answering as `recipe` says.

    UserError if it holds no fp32 graph.
    """
    manifest = read_manifest(export)
    kept = require_fp32(manifest, export)
    dropped = {name for graph in manifest.graphs if graph not in kept for name in graph.files}
    copy_files(export, folder, dropped)
    describe(recipe, folder)
    # What was found out about the export as a whole does not hold for a part of it.
    of_part = dataclasses.replace(manifest, graphs=kept, source=str(export), chosen=None, speeds=None, dev=None)
    write_manifest(folder, dataclasses.replace(of_part, max_seq_length=recipe.data.max_seq_length))


def describe(recipe: Recipe, folder: Path) -> None:
    """Have the copy of an export or a model folder read text and answer as `recipe`, that of the command, says."""
    from nlpctl.tasks.base import trained_task

    found = read_trained_description(folder)
    recipe = dataclasses.replace(recipe, model=recipe_of(folder).model)  # the network is that of the source
    task = trained_task(recipe, LabelSet(found.labels), found.thresholds, found.calibration)
    write_description(folder, make_description(recipe, found.labels, task.thresholds, found.calibration))


def require_fp32(manifest: ExportManifest, export: Path) -> tuple[Graph, ...]:
    """The fp32 graphs of an export. UserError if it has none, as a compressed export."""
    graphs = tuple(graph for graph in manifest.graphs if graph.precision == "fp32" and graph.method is None)
    if not graphs:
        hint = "use the run, the model folder or the export that it was made from"
        raise UserError("this export holds no fp32 graph to start from", str(export), hint)
    return graphs


def copy_files(export: Path, folder: Path, dropped: Collection[str]) -> None:
    """Copy the files of an export except those of `dropped` graphs, export.json and reports."""
    left = {*dropped, *(f"{name}.info" for name in dropped), *NOT_GRAPHS}
    for path in export.iterdir():
        if path.is_file() and path.name not in left:
            shutil.copyfile(path, folder / path.name)


def import_static(recipe: Recipe, prefix: Path, source: str, folder: Path) -> None:
    """An export of a static model that was written elsewhere; text is encoded as for the model `source`.

    UserError if its inputs or outputs are not those of the task's network.
    """
    from nlpctl.engines.samples import sample_batches
    from nlpctl.formats.program import read_program
    from nlpctl.graphs.to_static import input_specs, name_outputs
    from nlpctl.tasks.base import task_and_encoder

    described = resolve_source(source).folder
    if described is None:
        raise UserError("a hub model does not say how this graph encodes text", source, "give a run or a folder")
    left = (*NOT_GRAPHS, MANIFEST, CALIBRATION)  # a graph from elsewhere may answer otherwise
    for path in described.iterdir():
        if path.is_file() and not path.name.endswith(_WEIGHTS) and path.name not in left:
            shutil.copyfile(path, folder / path.name)
    describe(recipe, folder)
    for ending in (PROGRAM, PARAMETERS):
        shutil.copyfile(prefix.with_name(prefix.name + ending), folder / f"{PREFIX}{ending}")
    task, own = task_and_encoder(folder, recipe)[0], recipe_of(folder)
    program = read_program(folder / f"{PREFIX}{PROGRAM}")
    feeds, fetches = program.feeds, program.fetches
    batch = sample_batches(folder, own, 1, 1)[0]
    unknown = sorted(set(feeds) - set(batch))
    if unknown or len(fetches) != len(task.output_names):
        message = (
            f"this graph has the inputs {', '.join(feeds)} and {len(fetches)} outputs; {recipe.task} needs the "
            f"inputs {', '.join(batch)} and {len(task.output_names)} outputs"
        )
        raise UserError(message, str(prefix), "check the task, or use the run itself")
    manifest = ExportManifest(
        task=recipe.task,
        inputs=input_specs({name: batch[name] for name in feeds}),
        outputs=name_outputs(folder / f"{PREFIX}{PROGRAM}", task.output_names),
        max_seq_length=own.data.max_seq_length,
        graphs=(Graph("paddle", "fp32", paddle_files(PREFIX)),),
        rows=0,
        source=str(prefix),
        versions=graph_versions(),
    )
    write_manifest(folder, manifest)


def add_onnx(folder: Path) -> None:
    """Add an ONNX graph to an export that has only Paddle graphs; a note if the conversion fails."""
    from nlpctl.graphs.onnx import write_onnx_graph

    manifest = read_manifest(folder)
    if any(graph.format == "onnx" for graph in manifest.graphs):
        return
    prefix = folder / manifest.graphs[0].files[0]
    try:
        require_onnx(*BY_STRATEGY)
        pad_id = int(read_config(folder).get("pad_token_id", 0))
        write_onnx_graph(prefix.with_suffix(""), folder / ONNX, pad_id, *BY_STRATEGY)
    except (RunFailed, UserError) as error:
        if of_the_machine(error) is not None:
            raise
        console.warn(f"Paddle graphs only, no ONNX graph: {error}")
        (folder / ONNX).unlink(missing_ok=True)
        return
    write_manifest(folder, dataclasses.replace(manifest, graphs=(*manifest.graphs, Graph("onnx", "fp32", (ONNX,)))))
