"""A trained model that answers: its task, its encoder, and an engine. Opened from a network, or from an export.

models/find.py finds it; inference/open_model.py says which of both a command opens.
The process must be set up before (runtime/process.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.engines.auto import OpenedEngine, RowCount, open_predictor
from nlpctl.engines.engine import DygraphPredictor, Predictor
from nlpctl.engines.pipeline import FeatureIndex, chunk_of, chunks, evaluation_pipeline
from nlpctl.errors import UserError
from nlpctl.models.export_folder import read_checked_manifest
from nlpctl.models.find import check_export
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Predictions, Task, task_and_encoder, task_class, trained_task


@dataclass(frozen=True)
class TrainedModel:
    """A network ready to answer, with the task that reads its answers."""

    task: Task
    encoder: TextEncoder
    predictor: Predictor
    find_faster: Callable[[], TrainedModel | None] | None = None  # as of OpenedEngine (engines/auto.py)

    def lengths(self, examples: Sequence[Any]) -> list[list[int]]:
        """How many tokens each feature of each labelled example has."""
        return evaluation_pipeline(self.task.measured(), self.encoder, self.predictor).lengths(examples)

    def predictions(
        self,
        examples: Sequence[Any],
        batch_size: int,
        chosen: Sequence[FeatureIndex] | None = None,
        done: Callable[..., object] | None = None,
    ) -> Predictions:
        """The predictions for labelled examples, in order, of the `measured` task; one per feature of an example.

        `chosen`: of examples of one chunk, the features that are computed; the predictions of the others are None.
        `done`: as of `Pipeline`.
        """
        pipeline = replace(evaluation_pipeline(self.task.measured(), self.encoder, self.predictor), done=done)
        predictions = Predictions()
        rows = chunks(examples, chunk_of(batch_size))
        for of_chunk in pipeline.stream(rows, batch_size, lambda _, predicted: predicted, chosen):
            predictions.add(of_chunk)
        return predictions


def refuse_precision(recipe: Recipe, setup: ProcessSetup) -> None:
    """UserError if the network is to answer in another precision than its own."""
    if recipe.inference.precision not in ("auto", "fp32"):
        message = f"dygraph computes in fp32, not in {recipe.inference.precision}"
        other = "onnxruntime" if (recipe.inference.precision, setup.device) == ("int8", "cpu") else "paddle"
        hint = f"leave it out, or use @[engine={other}]"
        raise UserError(message, where=recipe.where("inference.precision"), hint=hint)


def open_network(recipe: Recipe, setup: ProcessSetup, source: str) -> TrainedModel:
    """The network that `find_trained_model` found, run by dygraph in fp32. UserError if it was never trained."""
    model = load_network(recipe, source)
    console.note(f"model {source} on {setup.device}")
    return model


def load_network(recipe: Recipe, source: str) -> TrainedModel:
    """The network of `source` with its task, whatever recipe.inference says."""
    from nlpctl.models.network import check_length  # imports Paddle

    model = task_class(recipe.task).class_for(recipe).load_trained(recipe, source)
    check_length(model.network, recipe.data.max_seq_length, recipe.where("data.max_seq_length"))
    task = trained_task(recipe, LabelSet(model.labels), model.thresholds, model.calibration)
    encoder = build_encoder(model.tokenizer)
    return TrainedModel(task, encoder, DygraphPredictor(model.network))


def open_export(
    recipe: Recipe, setup: ProcessSetup, folder: Path, own: Recipe, batch_size: int, rows: RowCount = None
) -> TrainedModel:
    """An export with the requested engine and precision. UserError if this machine does not support them.

    `rows`: how many are to be answered, as `open_predictor` takes it. `own`: the export's own recipe
    (config/recipe_of.py). The files of `folder` must have been compared with their checksums (`find_trained_model`), or
    just been written.
    """
    manifest = read_checked_manifest(folder)
    check_export(recipe, manifest)
    task, encoder = task_and_encoder(folder, recipe)
    opened = open_predictor(folder, manifest, recipe.inference, setup, batch_size, own, rows)
    predictor = opened.predictor
    console.note(f"export {folder} on {setup.device}: {predictor.engine} {predictor.precision}")
    return _run_by(opened, task, encoder)


def _run_by(opened: OpenedEngine, task: Task, encoder: TextEncoder) -> TrainedModel:
    """The model with an opened engine, and the calibration of this engine; `task` has that of every engine."""
    calibration = task.calibration
    own = task if calibration is None else task.calibrated(calibration.for_engine(opened.choice_name))
    find_faster = opened.find_faster
    if find_faster is None:
        return TrainedModel(own, encoder, opened.predictor)

    def find_faster_model() -> TrainedModel | None:
        faster = find_faster()
        return None if faster is None else _run_by(faster, task, encoder)

    return TrainedModel(own, encoder, opened.predictor, find_faster_model)
