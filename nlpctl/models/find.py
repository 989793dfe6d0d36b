"""Find the trained model of a command. Reads files only; imports no Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.layout import CHECKPOINTS, MANIFEST, MODEL, TASK
from nlpctl.models.export_folder import ExportManifest, read_manifest
from nlpctl.models.folder import read_trained_card
from nlpctl.models.source import ModelSource, resolve_source
from nlpctl.models.sums import check_model_sums


def find_trained_model(recipe: Recipe) -> str:
    """Folder or name of the model that `recipe` stands for.

    A model folder stands for itself, a run or recipe for the model of its run directory; a recipe that
    was never run may name a trained model. Raises UserError when there is no trained model.
    """
    if recipe.path is not None and recipe.path.name == TASK:
        return _checked(str(recipe.path.parent), recipe)
    if (recipe.run_dir / MODEL).is_dir() or (recipe.run_dir / CHECKPOINTS).is_dir():
        return _checked(str(recipe.run_dir), recipe)
    if recipe.model.name_or_path is not None:
        return _checked(recipe.model.name_or_path, recipe)
    raise UserError(
        "this recipe has not been trained yet",
        where=str(recipe.run_dir / MODEL),
        hint="run `nlpctl train` with it first, or give a run directory or model folder",
    )


def _checked(name_or_path: str, recipe: Recipe) -> str:
    """The model's folder, or its hub name, once everything is right that can be seen without Paddle."""
    source = resolve_source(name_or_path)
    if source.kind == "nlpctl":
        read_trained_card(source.folder)
    elif source.kind == "export":
        read_manifest(source.folder)
        read_trained_card(source.folder)
    check_edits(source, recipe)
    return source.name if source.folder is None else str(source.folder)


def check_edits(source: ModelSource, recipe: Recipe) -> None:
    """UserError if files of a model folder are not those that were written (runtime.trust_edits: may be edited)."""
    if source.folder is not None and source.kind != "export":
        check_model_sums(source.folder, trust_edits=recipe.runtime.trust_edits)


def check_export(recipe: Recipe, manifest: ExportManifest) -> None:
    """UserError if the export cannot do what `recipe` asks: it is of another task, or takes shorter texts only."""
    if recipe.task != manifest.task:
        hint = f"give the export itself in place of a recipe, or say task: {manifest.task}"
        raise UserError(f"this export is of {manifest.task}, not of {recipe.task}", recipe.where("task"), hint)
    if recipe.data.max_seq_length > manifest.max_seq_length:
        message = f"{recipe.data.max_seq_length} tokens exceed the limit of the export ({manifest.max_seq_length})"
        raise UserError(message, where=recipe.where("data.max_seq_length"), hint="lower it, or export the model again")


def model_fingerprint(source: str) -> dict[str, Any]:
    """A fingerprint of the model: path, size and time of its weights."""
    folder = resolve_source(source).folder
    if folder is None:
        return {"model": source}
    files = sorted(path for path in Path(folder).iterdir() if path.is_file() and path.name != MANIFEST)
    return {"model": str(folder), "files": [[path.name, path.stat().st_size, path.stat().st_mtime] for path in files]}
