"""Find the trained model of a command. Reads files only; imports no Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.data.rows.labels import given_labels
from nlpctl.errors import UserError
from nlpctl.layout import CHECKPOINTS, CONFIG_FILES, MODEL, TASK
from nlpctl.models.export_folder import ExportManifest, read_manifest
from nlpctl.models.folder import read_trained_description
from nlpctl.models.head_labels import check_given_labels
from nlpctl.models.model_manifest import check_model_sums, parts_of
from nlpctl.models.source import ModelSource, resolve_source
from nlpctl.names import listed

# Keys of the network, which a graph holds as they were when it was exported.
_OF_GRAPHS = (
    *(f"retrieval.{name}" for name in ("pooling", "embedding_size", "activation", "normalize")),
    *(f"few_shot.{name}" for name in ("pooling", "layers")),
)


def find_trained_model(recipe: Recipe) -> str:
    """Folder or name of the model that `recipe` stands for.

    A model folder and a hub name stand for themselves, a run or recipe for the model of its run directory; a recipe
    that was never run may name a trained model. Raises UserError when there is no trained model.
    """
    if recipe.path is None and recipe.model.name_or_path is not None:  # a hub name, which has no run directory
        return _checked(recipe.model.name_or_path, recipe)
    if recipe.path is not None and (recipe.path.name == TASK or _of_saved_model(recipe, recipe.path)):
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


def _of_saved_model(recipe: Recipe, path: Path) -> bool:
    """Whether the recipe was made from the config of a model that PaddleNLP or Transformers saved."""
    return path.name in CONFIG_FILES and recipe.model.name_or_path == str(path.parent.absolute())


def _checked(name_or_path: str, recipe: Recipe) -> str:
    """The model's folder, or its hub name, once everything is right that can be seen without Paddle."""
    source = resolve_source(name_or_path)
    if source.folder is not None and source.kind in ("nlpctl", "export"):
        if source.kind == "export":
            read_manifest(source.folder)
        _check_labels(recipe, read_trained_description(source.folder).labels)
    elif source.folder is not None:
        check_given_labels(recipe, source.folder)
    check_edits(source, recipe)
    return source.name if source.folder is None else str(source.folder)


def _check_labels(recipe: Recipe, labels: tuple[str, ...]) -> None:
    """UserError if --labels names others than `labels`, those of a model of nlpctl, which a flag does not change."""
    by_flag = recipe.set_by_flag("data.labels") or recipe.set_by_flag("data.numbered_labels")
    given = given_labels(recipe.data) if by_flag else None
    if given is not None and set(given) != set(labels):
        hint = "leave @[data.labels] out; it names the labels of a model that PaddleNLP or Transformers saved"
        raise UserError(f"this model has labels of its own: {listed(labels)}", where="@[data.labels]", hint=hint)


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


def check_flags_for_export(recipe: Recipe) -> None:
    """UserError if a flag asks for another network than an export holds, which is made already."""
    for key in _OF_GRAPHS:
        if recipe.set_by_flag(key):
            hint = "leave it out, give the model that was exported, or export it again with this flag"
            raise UserError("an export computes as it was exported, whatever this says", recipe.where(key), hint)


def model_fingerprint(source: str) -> dict[str, Any]:
    """A fingerprint of the model: path, size and time of its weights."""
    folder = resolve_source(source).folder
    if folder is None:
        return {"model": source}
    files = [[path.name, path.stat().st_size, path.stat().st_mtime] for path in parts_of(Path(folder))]
    return {"model": str(folder), "files": files}
