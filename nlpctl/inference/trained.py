"""The trained model that a command is to use: found from what the user gave, then opened as it lies there."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.errors import UserError
from nlpctl.layout import CHECKPOINTS, MODEL, TASK
from nlpctl.models.export_folder import ExportManifest, read_manifest
from nlpctl.models.folder import read_trained_card
from nlpctl.models.source import ModelSource, resolve_source
from nlpctl.models.sums import check_model_sums
from nlpctl.runtime.process import ProcessSetup, configure_paddle, prepare_process, quiet_import, quiet_libraries

if TYPE_CHECKING:
    from nlpctl.data.text_encoder import TextEncoder
    from nlpctl.inference.engine import Predictor
    from nlpctl.tasks.base import Task


@dataclass(frozen=True)
class TrainedModel:
    """A network ready to answer, with the task that reads its answers."""

    task: Task
    encoder: TextEncoder
    predictor: Predictor


def find_trained_model(recipe: Recipe) -> str:
    """Folder or name of the model that `recipe` stands for. Looks at files only; imports no Paddle.

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
    """UserError where files of a model folder are not those that were written (runtime.trust_edits: may be edited)."""
    if source.folder is not None and source.kind != "export":
        check_model_sums(source.folder, trust_edits=recipe.runtime.trust_edits)


def open_network(recipe: Recipe, source: str) -> TrainedModel:
    """The network that `find_trained_model` found, computed by dygraph. UserError where it was never trained."""
    setup = prepared(recipe)
    if recipe.inference.precision not in ("auto", "fp32"):
        message = f"dygraph computes in fp32, not in {recipe.inference.precision}"
        hint = "leave it out, or take another engine: --engine paddle, --engine onnxruntime"
        raise UserError(message, where=recipe.where("inference.precision"), hint=hint)
    model = load_network(recipe, source)
    console.note(f"model {source} on {setup.device}")
    return model


def load_network(recipe: Recipe, source: str) -> TrainedModel:
    """The network of `source` with its task, whatever recipe.inference says. Call `prepared` before."""
    from nlpctl.data.labels import LabelSet
    from nlpctl.data.tokenizers import build_encoder
    from nlpctl.inference.engine import DygraphPredictor
    from nlpctl.models.network import check_length
    from nlpctl.tasks.base import make_task, task_class


    model = task_class(recipe.task).load_trained(recipe, source)
    check_length(model.network, recipe.data.max_seq_length, recipe.where("data.max_seq_length"))
    task = make_task(recipe, LabelSet(model.labels), model.thresholds)
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
    return TrainedModel(task, encoder, DygraphPredictor(model.network))


def open_export(recipe: Recipe, folder: Path, batch_size: int) -> TrainedModel:
    """An export with the engine and precision that the recipe asks for. UserError where this machine has none."""
    manifest = read_manifest(folder)
    check_export(recipe, manifest)
    setup = prepared(recipe)
    from nlpctl.inference.auto import open_predictor
    from nlpctl.inference.samples import read_description

    task, encoder = read_description(folder, recipe)
    predictor = open_predictor(folder, manifest, recipe.inference, setup, batch_size)
    console.note(f"export {folder} on {setup.device}: {predictor.engine} {predictor.precision}")
    return TrainedModel(task, encoder, predictor)


def check_export(recipe: Recipe, manifest: ExportManifest) -> None:
    """UserError where the export cannot do what `recipe` asks: it is of another task, or takes shorter texts only."""
    if recipe.task != manifest.task:
        hint = f"give the export itself in place of a recipe, or say task: {manifest.task}"
        raise UserError(f"this export is of {manifest.task}, not of {recipe.task}", recipe.where("task"), hint)
    if recipe.data.max_seq_length > manifest.max_seq_length:
        message = f"{recipe.data.max_seq_length} tokens are more than the export takes ({manifest.max_seq_length})"
        raise UserError(message, where=recipe.where("data.max_seq_length"), hint="lower it, or export the model again")


def prepared(recipe: Recipe) -> ProcessSetup:
    """The process as the recipe's runtime section wants it, with Paddle and PaddleNLP imported in it."""
    setup = prepare_process(one_process(recipe.runtime), recipe.training.seed)
    configure_paddle(setup, recipe.training.seed)
    with quiet_import():
        import paddlenlp  # noqa: F401
    quiet_libraries()
    return setup


def one_process(runtime: RuntimeSection) -> RuntimeSection:
    """`runtime` for a command that runs in this process alone, whatever trained the model: at most one card."""
    cards = () if runtime.device == "cpu" else runtime.devices[:1]
    return dataclasses.replace(runtime, devices=cards, nproc=1)


def model_fingerprint(source: str) -> dict[str, Any]:
    """What tells this model from another of the same name: path, size and time of its weights."""
    folder = resolve_source(source).folder
    if folder is None:
        return {"model": source}
    files = sorted(path for path in Path(folder).iterdir() if path.is_file())
    return {"model": str(folder), "files": [[path.name, path.stat().st_size, path.stat().st_mtime] for path in files]}
