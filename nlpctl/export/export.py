"""`nlpctl export`: a trained network as graphs that run without its code, each compared with the network."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nlpctl import console
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.user_code import require_rows_named
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import require_rows
from nlpctl.errors import RunFailed, UserError
from nlpctl.export import layouts
from nlpctl.export.layouts.listing import LISTING, changed_since, is_listed, write_listing
from nlpctl.export.layouts.weights import WEIGHTS, refuse_task
from nlpctl.export.request import ELSEWHERE, ROWS, ExportRequest
from nlpctl.files import staged_dir, writing
from nlpctl.graphs.graph_files import OWN_GRAPHS
from nlpctl.layout import EXPORT, EXPORT_MANIFEST, MODEL, RECIPE
from nlpctl.models.export_folder import (
    ExportManifest,
    read_checked_manifest,
    refuse_foreign_files,
)
from nlpctl.models.source import resolve_source
from nlpctl.names import did_you_mean
from nlpctl.outputs import refuse_folder
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.process import ProcessSetup, set_up_process

QUICK_ROWS = 32  # rows compared before another engine runs a model folder


@dataclass(frozen=True)
class ExportResult:
    """The written folder, and its manifest; None: it holds weights for other libraries, which `left_out` is not in."""

    folder: Path
    manifest: ExportManifest | None
    left_out: tuple[str, ...] = ()


def export(
    recipe: Recipe,
    source: str,
    request: ExportRequest,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    layout: str | None = None,
) -> ExportResult:
    """Write graphs of the model that `find_trained_model` found as `source`, to `output` or into the run.

    Every graph is compared with the network. RunFailed, with nothing left behind, if a difference exceeds the tolerance
    of the task. `layout`: arrange the export for another server; then `source` may be an export; or write weights for
    another library, without graphs. UserError if the model, the rows or the output folder is wrong.
    """
    if layout in WEIGHTS:
        _check_weights_layout(layout, recipe, source)
    elif layout is not None:
        _check_layout(layout, recipe, source, request)
        request = dataclasses.replace(request, formats=(layouts.layout(layout).FORMAT,))
    elif resolve_source(source).kind == "export":
        hint = "give what it was made from: nlpctl export RUN; or arrange it for a server: @[layout]"
        raise UserError("this is an export already", where=source, hint=hint)
    final = output if output is not None else _default_output(recipe, source, layout)
    with sole_writer(final):
        _refuse_output(final, source, layout, overwrite)
        if layout in WEIGHTS:
            return _export_weights(recipe, source, final, layout)
        if request.data is None:
            require_rows_named(recipe.data)
        _require_named_rows(recipe, request)
        setup = set_up_process(recipe)
        with sigterm_interrupts(), ExitStack() as stack:
            with writing(final, ELSEWHERE):
                folder = stack.enter_context(staged_dir(final))
            if layout is None:
                from nlpctl.export.write_export import write_export  # imports Paddle, for which the process is set up

                return ExportResult(final, write_export(recipe, setup, source, folder, final, request))
            made, manifest = stack.enter_context(existing_or_temporary(recipe, setup, source, request))
            with writing(final, ELSEWHERE):
                layouts.layout(layout).write_repository(made, manifest, folder, _model_name(recipe, source))
                write_listing(folder, layout)
        graphs = tuple(graph for graph in manifest.graphs if graph.format in request.formats)
        return ExportResult(final, dataclasses.replace(manifest, graphs=graphs))


def _require_named_rows(recipe: Recipe, request: ExportRequest) -> None:
    """UserError if rows that the command names cannot be read; those that a run was trained on may be gone."""
    rows = task_rows(recipe.task, recipe.data)
    if request.data is not None:
        require_rows(rows, request.data)
    for split in SPLITS:
        if has_split(recipe.data, split) and any(map(recipe.set_by_flag, ("data.dataset", f"data.{split}"))):
            next(iter(open_split(rows, split, labelled=False)), None)


def _export_weights(recipe: Recipe, source: str, final: Path, layout: str) -> ExportResult:
    set_up_process(recipe)
    with sigterm_interrupts(), ExitStack() as stack:
        with writing(final, ELSEWHERE):
            folder = stack.enter_context(staged_dir(final))
        from nlpctl.engines.engine import DygraphPredictor
        from nlpctl.engines.trained import load_network
        from nlpctl.export.layouts.hugging_face import write_weights

        model = load_network(recipe, source)
        assert isinstance(model.predictor, DygraphPredictor)
        of_model = resolve_source(source).folder or Path(source)
        with writing(final, ELSEWHERE):
            network = model.predictor.network
            left_out = write_weights(layout, recipe, model, network, folder, of_model, final.name)
            write_listing(folder, layout)
    return ExportResult(final, None, left_out)


def _check_weights_layout(layout: str, recipe: Recipe, source: str) -> None:
    """UserError if a layout of weights cannot hold the model, as far as that shows without the network."""
    if resolve_source(source).kind == "export":
        hint = "give the run or the model folder that it was made from"
        raise UserError("this is an export: it has graphs, whose weights bear no names", source, hint)
    refuse_task(layout, recipe)


def _check_layout(name: str, recipe: Recipe, source: str, request: ExportRequest) -> None:
    """UserError for an unknown layout, or if it does not hold what is asked for."""
    if name not in layouts.LAYOUTS:
        known = (*layouts.LAYOUTS, *WEIGHTS)
        hint = f"of {', '.join(known)}"
        raise UserError(f"there is no layout {name!r}{did_you_mean(name, known)}", "@[layout]", hint)
    module, model = layouts.layout(name), resolve_source(source)
    if module.FORMAT not in request.formats:
        hint = f"leave it out, or give @[formats={module.FORMAT}]"
        raise UserError(f"{name} takes {module.FORMAT} graphs", "@[formats]", hint)
    asked = next((each for each in request.precisions if not module.holds(each)), None)
    if asked is not None:
        raise UserError(f"{name} takes no graph of {asked}", "@[precisions]", "leave it out, or take another layout")
    if model.export is not None:
        _refuse_what_it_lacks(model.export, module.FORMAT, recipe, request)


def _refuse_what_it_lacks(export: Path, format: str, recipe: Recipe, request: ExportRequest) -> None:
    """UserError if an export, which is only arranged, was not made as `recipe` and `request` say."""
    flags = [str(origin) for key, origin in recipe.origins.items() if origin.by_flag and not key.startswith("runtime.")]
    flags += [flag for flag, given in (("@[data]", request.data), ("@[rows]", request.rows != ROWS)) if given]
    if flags:
        message = "an export is arranged as it is, not made or compared again"
        raise UserError(message, ", ".join(flags), "leave it out, or give the run")
    graphs = [graph for graph in read_checked_manifest(export).graphs if graph.format == format]
    held = {name for graph in graphs for name in (graph.precision, f"{graph.precision}-{graph.method}")}
    missing = [name for name in request.precisions if name not in held and name != "fp32"]  # which is the default
    if missing:
        hint = "give the run or the model that it was made from"
        raise UserError(f"the export {export} holds no {missing[0]} graph in {format}", "@[precisions]", hint)


@contextlib.contextmanager
def temporary_export(recipe: Recipe, setup: ProcessSetup, source: str) -> Iterator[Path]:
    """A temporary export of a model folder for the engine and precision of recipe.inference."""
    inference = recipe.inference
    formats = ("onnx",) if inference.engine == "onnxruntime" else ("paddle",)
    precisions = (inference.precision if inference.precision in OWN_GRAPHS[formats[0]] else "fp32",)
    console.note(f"exporting {source} for {inference.engine}; `nlpctl export` stores the graphs, which saves this step")
    request = ExportRequest(formats, precisions, rows=QUICK_ROWS)
    # `serve` has a handler of its own while it starts.
    unhandled = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    ends = sigterm_interrupts() if unhandled else contextlib.nullcontext()
    with ends, existing_or_temporary(recipe, setup, source, request) as (folder, manifest):
        if not any(graph.precision == precisions[0] for graph in manifest.graphs):
            where, hint = recipe.where("inference.precision"), "take @[precisions=fp32], or auto"
            raise RunFailed(f"no {precisions[0]} graph of this model passed the comparison", where, hint)
        yield folder


@contextlib.contextmanager
def existing_or_temporary(
    recipe: Recipe, setup: ProcessSetup, source: str, request: ExportRequest
) -> Iterator[tuple[Path, ExportManifest]]:
    """`source` if it is an export, else a temporary export of it."""
    export = resolve_source(source).export
    if export is not None:
        yield export, read_checked_manifest(export)
        return
    from nlpctl.export.write_export import write_export

    with tempfile.TemporaryDirectory(prefix="nlpctl-export-") as name:
        yield Path(name), write_export(recipe, setup, source, Path(name), Path(name), request)


def _default_output(recipe: Recipe, source: str, layout: str | None) -> Path:
    """export/ in the run directory that holds `source`. UserError for a model outside a run."""
    folder = resolve_source(source).folder
    if folder is not None:
        run = folder.resolve().parent
        of_run = folder.name in (MODEL, EXPORT) and run == recipe.run_dir.resolve()
        if of_run or (folder.name == EXPORT and (run / RECIPE).is_file()):  # an export's recipe knows no run directory
            return folder.parent / (EXPORT if layout is None else layout)
    raise UserError("no output folder: the model is not in a run", where="@[output]", hint="use @[output=FOLDER]")


def _refuse_output(output: Path, source: str, layout: str | None, overwrite: bool) -> None:
    """UserError if `output` holds the model, is not an export, or exists and must not be replaced."""
    folder = resolve_source(source).folder
    reads = () if folder is None else (folder,)
    if layout is None:
        refuse_folder(output, overwrite, "an export", _is_export, reads)
        refuse_foreign_files(output)
        return
    kind = f"an export to {layout} with a list of its files ({LISTING}; delete one that an earlier nlpctl wrote)"
    refuse_folder(output, overwrite, kind, lambda folder: is_listed(folder, layout), reads)
    if (changed := changed_since(output)) is not None:
        hint = "move it away, or name another folder: @[output=FOLDER]"
        raise UserError(f"is not replaced: {changed} was added or changed since", str(output), hint)


def _is_export(folder: Path) -> bool:
    return (folder / EXPORT_MANIFEST).is_file()


def _model_name(recipe: Recipe, source: str) -> str:
    """The model's name on another server: that of its run or folder."""
    folder = resolve_source(source).folder
    if folder is None:
        name = recipe.run_dir.name
    else:  # RUN/model and RUN/export are called RUN
        name = folder.resolve().parent.name if folder.name in (MODEL, EXPORT) else folder.name
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "model"
