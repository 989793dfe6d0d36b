"""`nlpctl export`: a trained network as graphs that answer without its code, each compared with it before it is kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nlpctl
from nlpctl.config.schema import Recipe
from nlpctl.errors import Problem, RunFailed, UserError
from nlpctl.models.export_folder import Check, ExportManifest, Graph, read_manifest, write_manifest
from nlpctl.models.folder import make_card
from nlpctl.models.source import resolve_source
from nlpctl.runners.trained import prepared
from nlpctl.runtime import console
from nlpctl.runtime.files import staged_dir, writing
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.layout import EXPORT, MODEL
from nlpctl.runtime.process import ProcessSetup, quiet_libraries
from nlpctl.runtime.versions import installed_versions

if TYPE_CHECKING:
    from nlpctl.export.parity import Parity
    from nlpctl.inference.engine import Predictor

FORMATS, PRECISIONS = ("paddle", "onnx"), ("fp32", "int8")
ROWS = 256  # that are compared


@dataclass(frozen=True)
class ExportResult:
    """The folder that was written and what is in it."""

    folder: Path
    manifest: ExportManifest


def export(
    recipe: Recipe,
    source: str,
    *,
    formats: Sequence[str] = ("paddle",),
    precisions: Sequence[str] = ("fp32",),
    output: Path | None = None,
    overwrite: bool = False,
    data: Path | None = None,
    rows: int = ROWS,
) -> ExportResult:
    """Write graphs of the model that `find_trained_model` found as `source`, into `output` or the run's export/.

    Every graph is compared with the network on `rows` rows of `data` or of the run's own files. RunFailed, and
    nothing is written, where one is farther from it than the task allows; UserError where the model or the place
    is wrong.
    """
    final = output if output is not None else default_output(recipe, source)
    refuse_output(final, source, overwrite)
    with sigterm_interrupts(), ExitStack() as stack:
        with writing(final, "name another folder: -o FOLDER"):
            folder = stack.enter_context(staged_dir(final))
        manifest = _write(recipe, source, folder, formats, precisions, data, rows)
    return ExportResult(final, manifest)


def default_output(recipe: Recipe, source: str) -> Path:
    """export/ in the run directory that `source` is, or lies in. UserError for a model that is not of a run."""
    folder = resolve_source(source).folder
    if folder is not None and folder.name == MODEL and folder.parent.resolve() == recipe.run_dir.resolve():
        return folder.parent / EXPORT
    raise UserError("say where to write the export", where="-o", hint="the model is not in a run: -o FOLDER")


def refuse_output(output: Path, source: str, overwrite: bool) -> None:
    """UserError where `output` is the model, is there already and not to be replaced, or is no export."""
    hint = "name another folder: -o FOLDER"
    if not output.exists():
        return
    if not output.is_dir():
        raise UserError("this is a file, not a folder", where=str(output), hint=hint)
    folder = resolve_source(source).folder
    if folder is not None and output.resolve() in (folder, *folder.parents):
        raise UserError("this holds the model itself", where=str(output), hint=hint)
    if not any(output.iterdir()):
        return
    if not overwrite:
        raise UserError("is there already", where=str(output), hint="use --overwrite, or name another folder: -o")
    read_manifest(output)


def _write(
    recipe: Recipe,
    source: str,
    folder: Path,
    formats: Sequence[str],
    precisions: Sequence[str],
    data: Path | None,
    rows: int,
) -> ExportManifest:
    setup = prepared(recipe)
    from nlpctl.data.kinds import task_rows
    from nlpctl.data.labels import LabelSet
    from nlpctl.data.tokenizers import build_encoder
    from nlpctl.export.folder import write_description
    from nlpctl.export.parity import Parity
    from nlpctl.export.rows import rows_to_compare
    from nlpctl.export.to_graph import input_specs, write_paddle_graph
    from nlpctl.inference.engine import DygraphPredictor
    from nlpctl.models.length import check_length
    from nlpctl.tasks.registry import TASKS, make_task

    quiet_libraries()
    model = TASKS[recipe.task].load_trained(recipe, source)
    check_length(model.network, recipe.data.max_seq_length, recipe.where("data.max_seq_length"))
    task = make_task(recipe, LabelSet(model.labels), model.thresholds)
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
    compared = rows_to_compare(task_rows(recipe.task, recipe.data), data, model.tokenizer, rows, masked=task.hides)
    console.note(f"comparing on {len(compared.examples)} rows: {compared.origin}")
    parity = Parity(task, encoder, compared.examples, DygraphPredictor(model.network).outputs)
    inputs = input_specs(parity.cases[0].batch)
    outputs = write_paddle_graph(model.network, inputs, folder / "model")
    write_description(folder, model.network, model.tokenizer, make_card(recipe, model.labels, model.thresholds))
    manifest = ExportManifest(
        task=recipe.task,
        inputs=inputs,
        outputs=outputs,
        max_seq_length=recipe.data.max_seq_length,
        graphs=(Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams")),),
        rows=len(compared.examples),
        source=str(source),
        versions={"nlpctl": nlpctl.__version__, **installed_versions()},
    )
    graphs = tuple(_checked(folder, manifest, graph, setup, parity) for graph in manifest.graphs)
    manifest = dataclasses.replace(manifest, graphs=graphs)
    write_manifest(folder, manifest)
    return manifest


def _checked(folder: Path, manifest: ExportManifest, graph: Graph, setup: ProcessSetup, parity: Parity) -> Graph:
    from nlpctl.export.to_graph import TranslatedPredictor

    found = parity.difference(TranslatedPredictor(folder / "model").outputs)
    if not (found.relative <= 1e-4 and found.agreement >= 0.99):
        raise RunFailed(f"the graph differs from the network: by {found.largest:.3g}, {len(found.changed)} rows")
    return dataclasses.replace(graph, checks=(Check("paddle", "fp32", found.largest, found.agreement),))
