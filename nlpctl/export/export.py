"""`nlpctl export`: a trained network as graphs that run without its code, each compared with the network."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import nlpctl
from nlpctl import console
from nlpctl.config.own_code import require_rows_named
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import scores, task_info
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import require_rows, rows_to_calibrate, rows_to_compare
from nlpctl.errors import RunFailed, UserError
from nlpctl.export import layouts
from nlpctl.export.plan import BY_FORMAT, Plan, check_names
from nlpctl.files import staged_dir, writing
from nlpctl.graphs.graph_files import OWN_GRAPHS
from nlpctl.layout import EXPORT, EXPORT_MANIFEST, MODEL, RECIPE, real_path
from nlpctl.models.confidence import write_calibration
from nlpctl.models.export_folder import (
    ExportManifest,
    read_checked_manifest,
    refuse_foreign_files,
    write_manifest,
)
from nlpctl.models.folder import make_card, save_description
from nlpctl.models.model_manifest import weights_sum
from nlpctl.models.source import resolve_source
from nlpctl.names import did_you_mean
from nlpctl.outputs import refuse_inputs, refuse_part
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.process import ProcessSetup, set_up_process
from nlpctl.runtime.versions import engine_versions

if TYPE_CHECKING:
    from nlpctl.data.batches.collate import Batch

ROWS = 256  # rows that are compared by default
QUICK_ROWS = 32  # rows compared before another engine runs a model folder
CALIBRATION_ROWS, CALIBRATION_BATCH = 512, 32
ELSEWHERE = "name another folder: -o FOLDER"


@dataclass(frozen=True)
class Wanted:
    """What to export: formats, precisions and rows to compare. `data`: a file of rows, default: those of the run.

    `onnx`: as in Plan. `timing`: most seconds for timing the engines; 0: they are not timed. `scored`: lower precisions
    are scored on dev.
    """

    formats: tuple[str, ...] = ("paddle",)
    precisions: tuple[str, ...] = ("fp32",)
    data: Path | None = None
    rows: int = ROWS
    onnx: tuple[str, str] = BY_FORMAT
    timing: float = 0.0
    scored: bool = False

    def __post_init__(self) -> None:
        check_names(self.formats, self.precisions)


@dataclass(frozen=True)
class ExportResult:
    """The written folder and its manifest."""

    folder: Path
    manifest: ExportManifest


def export(
    recipe: Recipe,
    source: str,
    wanted: Wanted,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    layout: str | None = None,
) -> ExportResult:
    """Write graphs of the model that `find_trained_model` found as `source`, to `output` or into the run.

    Every graph is compared with the network. RunFailed, with nothing left behind, if a difference exceeds the tolerance
    of the task. `layout`: arrange the export for another server; then `source` may be an export. UserError if the
    model, the rows or the output folder is wrong.
    """
    if layout is not None:
        _check_layout(layout, source, wanted)
    elif resolve_source(source).kind == "export":
        hint = "give what it was made from: nlpctl export RUN; or arrange it for a server: --layout"
        raise UserError("this is an export already", where=source, hint=hint)
    final = output if output is not None else _default_output(recipe, source, layout)
    with sole_writer(final):
        _refuse_output(final, source, layout, overwrite)
        return _export(recipe, source, wanted, final, layout)


def _export(recipe: Recipe, source: str, wanted: Wanted, final: Path, layout: str | None) -> ExportResult:
    if wanted.data is not None:
        require_rows(task_rows(recipe.task, recipe.data), wanted.data)
    else:
        require_rows_named(recipe.data)
    setup = set_up_process(recipe)
    with sigterm_interrupts(), ExitStack() as stack:
        with writing(final, ELSEWHERE):
            folder = stack.enter_context(staged_dir(final))
        if layout is None:
            return ExportResult(final, write_export(recipe, setup, source, folder, final, wanted))
        made, manifest = stack.enter_context(_exported(recipe, setup, source, wanted))
        _write_layout(layout, made, manifest, folder, _model_name(recipe, source))
    return ExportResult(final, manifest)


def _check_layout(name: str, source: str, wanted: Wanted) -> None:
    """UserError for an unknown layout, or if the exported formats do not include the layout's format."""
    if name not in layouts.LAYOUTS:
        known = tuple(layouts.LAYOUTS)
        hint = f"of {', '.join(known)}"
        raise UserError(f"there is no layout {name!r}{did_you_mean(name, known)}", "--layout", hint)
    format, found = layouts.layout(name).FORMAT, resolve_source(source)
    if format not in wanted.formats and found.kind != "export":
        raise UserError(f"{name} takes {format} graphs", "--format", f"leave it out, or give --format {format}")
    if found.kind == "export":
        _refuse_what_it_lacks(found.folder, format, wanted)


def _refuse_what_it_lacks(export: Path, format: str, wanted: Wanted) -> None:
    """UserError if an export, which is only arranged, was not made as `wanted`."""
    if wanted.data is not None:
        raise UserError("an export is arranged as it is, not compared again", "--data", "leave it out, or give the run")
    graphs = [graph for graph in read_checked_manifest(export).graphs if graph.format == format]
    held = {name for graph in graphs for name in (graph.precision, f"{graph.precision}-{graph.method}")}
    missing = [name for name in wanted.precisions if name not in held and name != "fp32"]  # which is the default
    if missing:
        hint = "give the run or the model that it was made from"
        raise UserError(f"the export {export} holds no {missing[0]} graph in {format}", "--precision", hint)


@contextlib.contextmanager
def temporary_export(recipe: Recipe, setup: ProcessSetup, source: str) -> Iterator[Path]:
    """A temporary export of a model folder for the engine and precision of recipe.inference."""
    inference = recipe.inference
    formats = ("onnx",) if inference.engine == "onnxruntime" else ("paddle",)
    precisions = (inference.precision if inference.precision in OWN_GRAPHS[formats[0]] else "fp32",)
    console.note(f"exporting {source} for {inference.engine}; `nlpctl export` stores the graphs, which saves this step")
    with _exported(recipe, setup, source, Wanted(formats, precisions, rows=QUICK_ROWS)) as (folder, manifest):
        if not any(graph.precision == precisions[0] for graph in manifest.graphs):
            where, hint = recipe.where("inference.precision"), "take --precision fp32, or auto"
            raise RunFailed(f"no {precisions[0]} graph of this model passed the comparison", where, hint)
        yield folder


@contextlib.contextmanager
def _exported(
    recipe: Recipe, setup: ProcessSetup, source: str, wanted: Wanted
) -> Iterator[tuple[Path, ExportManifest]]:
    """`source` if it is an export, else a temporary export of it."""
    found = resolve_source(source)
    if found.kind == "export":
        yield found.folder, read_checked_manifest(found.folder)
        return
    with tempfile.TemporaryDirectory(prefix="nlpctl-export-") as name:
        yield Path(name), write_export(recipe, setup, source, Path(name), Path(name), wanted)


def _write_layout(name: str, made: Path, manifest: ExportManifest, repository: Path, model: str) -> None:
    with writing(repository, ELSEWHERE):
        layouts.layout(name).write_repository(made, manifest, repository, model)


def _default_output(recipe: Recipe, source: str, layout: str | None) -> Path:
    """export/ in the run directory that holds `source`. UserError for a model outside a run."""
    folder = resolve_source(source).folder
    if folder is not None:
        run = folder.resolve().parent
        of_run = folder.name in (MODEL, EXPORT) and run == recipe.run_dir.resolve()
        if of_run or (folder.name == EXPORT and (run / RECIPE).is_file()):  # an export's recipe knows no run directory
            return folder.parent / (EXPORT if layout is None else layout)
    raise UserError("no output folder: the model is not in a run", where="-o", hint="use -o FOLDER")


def _refuse_output(output: Path, source: str, layout: str | None, overwrite: bool) -> None:
    """UserError if `output` is the model, is not an export, or exists and must not be replaced."""
    refuse_part(output)
    if is_free(output, source):
        return
    if not overwrite:
        raise UserError("already exists", where=str(output), hint="use --overwrite, or name another folder: -o")
    if not _replaceable(output, layout):
        raise UserError("is not an export and is not replaced", where=str(output), hint=ELSEWHERE)
    refuse_inputs(output)
    if layout is None:
        refuse_foreign_files(output)


def is_free(output: Path, source: str) -> bool:
    """Whether `output` is missing or empty. UserError if it is a file, or holds the model `source`."""
    if not output.exists():
        return True
    if not output.is_dir():
        raise UserError("this is a file, not a folder", where=str(output), hint=ELSEWHERE)
    folder = resolve_source(source).folder
    if folder is not None and real_path(output) in (folder, *folder.parents):
        raise UserError("this holds the model itself", where=str(output), hint=ELSEWHERE)
    return not any(output.iterdir())


def _replaceable(folder: Path, name: str | None) -> bool:
    return (folder / EXPORT_MANIFEST).is_file() if name is None else layouts.layout(name).is_repository(folder)


def _model_name(recipe: Recipe, source: str) -> str:
    """The model's name on another server: that of its run or folder."""
    folder = resolve_source(source).folder
    if folder is None:
        name = recipe.run_dir.name
    else:  # RUN/model and RUN/export are called RUN
        name = folder.resolve().parent.name if folder.name in (MODEL, EXPORT) else folder.name
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "model"


def export_versions() -> dict[str, str]:
    """Versions of nlpctl and of the packages that make or run graphs."""
    return {"nlpctl": nlpctl.__version__, **engine_versions()}


def write_export(
    recipe: Recipe, setup: ProcessSetup, source: str, folder: Path, final: Path, wanted: Wanted
) -> ExportManifest:
    """Write a complete export into an empty folder, which will be renamed to `final`.

    RunFailed if a requested graph cannot be made, or its outputs differ from the network's.
    """
    from nlpctl.data.text.tokenizers import store_tokenizer
    from nlpctl.engines.parity import Parity, batches_of
    from nlpctl.engines.samples import timing_batches
    from nlpctl.engines.speeds import SIZES
    from nlpctl.engines.trained import load_network
    from nlpctl.export.precisions import dev_scores, time_graphs
    from nlpctl.export.report import write_report
    from nlpctl.export.verify import compare_graphs, warn_refused
    from nlpctl.export.write_graphs import write_graphs
    from nlpctl.graphs.to_static import input_specs

    plan = Plan(wanted.formats, wanted.precisions, wanted.onnx)
    plan.check()
    model = load_network(recipe, source)
    task, encoder, tokenizer, network = model.task, model.encoder, model.encoder.tokenizer, model.predictor.network
    readers = task_rows(recipe.task, recipe.data)
    rows = rows_to_compare(readers, wanted.data, tokenizer, wanted.rows, masked=task.hides)
    if not rows.real:
        console.warn("no readable row in dev, test or train: compared on synthetic text; --data FILE gives real rows")
    parity = Parity(task, encoder, rows.examples, model.predictor.outputs)

    def calibration() -> Iterator[Batch]:
        examples = rows_to_calibrate(readers, wanted.data, tokenizer, CALIBRATION_ROWS, masked=task.hides)
        return batches_of(task, encoder, examples, CALIBRATION_BATCH)

    batch = parity.cases[0].batch
    card = make_card(recipe, task.labels.names, task.thresholds, task.calibration)
    with writing(final, ELSEWHERE):
        save_description(folder, tokenizer, card)
        if not task.needs_tokenizer:
            store_tokenizer(folder, encoder)
        network.config.architectures = [type(network).__name__]
        network.config.save_pretrained(str(folder))
        outputs, refused = write_graphs(folder, network, batch, task.output_names, plan, calibration)
    trained = resolve_source(source).folder
    manifest = ExportManifest(
        task=recipe.task,
        inputs=input_specs(batch),
        outputs=outputs,
        max_seq_length=recipe.data.max_seq_length,
        graphs=tuple(graph for graph in plan.graphs() if graph not in [each.graph for each in refused]),
        rows=len(rows.examples),
        source=source,
        versions=export_versions(),
        weights=None if trained is None else weights_sum(trained),
    )
    manifest, findings, beyond = compare_graphs(folder, manifest, plan, setup, parity)
    refused += beyond
    warn_refused(refused)
    if wanted.scored:
        metric = scores(recipe.task)[0]
        falling = metric in task_info(recipe.task).falling
        scored, ways = dev_scores(folder, manifest, setup, task, encoder, metric, falling)
        if ways:
            with writing(final, ELSEWHERE):
                write_calibration(folder, dataclasses.replace(task.calibration, ways=ways))
        manifest = dataclasses.replace(manifest, dev=scored)
    if wanted.timing:
        batches = timing_batches(task, encoder, rows.examples, SIZES)
        manifest = dataclasses.replace(manifest, speeds=time_graphs(folder, manifest, setup, batches, wanted.timing))
    with writing(final, ELSEWHERE):
        write_report(folder, manifest, rows, parity, findings, refused, setup)
        write_manifest(folder, manifest)
    return manifest
