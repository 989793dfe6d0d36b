"""The scores of a trained model: opened from disk, tuned and calibrated on dev, scored on dev and test.

    RUN/metrics.json     {"dev": report, "test": report}
        mistakes.json    the worst rows of the first of these splits, with the places of their lines
        tallies/         what each row adds to the scores; slices.json
        model/           gets the thresholds of the task, and its calibration

`nlpctl eval RUN` gives the same scores, since both open the model from the same files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import ExampleList, ExampleReader, places
from nlpctl.data.training_data import TrainingData
from nlpctl.engines.pipeline import evaluation_pipeline
from nlpctl.engines.trained import TrainedModel, load_network
from nlpctl.files import write_json_atomic
from nlpctl.layout import USER_SCORES
from nlpctl.models.folder import calibrate_model, tune_labels
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, worst
from nlpctl.tasks.calibration import LEAST, calibrated, tell_uncalibrated
from nlpctl.tasks.degenerate import warn_of_missing_labels
from nlpctl.tasks.intervals import full_report
from nlpctl.tasks.slices import slices_of_run
from nlpctl.tasks.tallies import save_tallies
from nlpctl.training.dev_scores import UserMetrics
from nlpctl.training.plateau import warn_if_useless
from nlpctl.training.prepare import PreparedTraining

MOST = 50  # most rows in mistakes.json
LONGEST = 1000  # characters of a text in it


def score_best_model(prepared: PreparedTraining, run: RunDirectory) -> TrainedModel:
    """Open `run.model` from disk, score it, and write what this module's docstring lists; warn if it is of no use."""
    recipe, data = prepared.recipe, prepared.data
    model = load_network(recipe, str(run.model))
    console.note(f"model {run.model} on {prepared.setup.device}{_precisions(recipe)}")
    batch_size = recipe.training.per_device_eval_batch_size
    metrics = score_run(run, data, model, batch_size)
    if prepared.user_code.metrics is not None:
        for split, examples in (("dev", data.dev), ("test", data.test)):
            if examples is not None:
                metrics[split][USER_SCORES] = _user_scores(prepared.user_code.metrics, model, examples, batch_size)
    write_json_atomic(run.metrics_file, metrics)
    steps = run.read_manifest().steps or {}
    frozen = bool(prepared.model.changes.frozen)
    warn_if_useless(recipe, run, metrics, batch=steps.get("global_batch", 0), frozen=frozen)
    return model


def _precisions(recipe: Recipe) -> str:
    """Why these scores may differ from those on dev during the training, for people."""
    during = next((each for each in ("bf16", "fp16") if getattr(recipe.training, each)), None)
    return "" if during is None else f": scored in 32 bits (during the training in {during})"


def score_run(run: RunDirectory, data: TrainingData, model: TrainedModel, batch_size: int) -> dict[str, Any]:
    """Score the model in `run` on dev and test, and write mistakes.json and the slices for the first of them.

    Thresholds of the task are tuned on dev first, and its probabilities calibrated, and both are stored with the model.
    """
    splits = {name: examples for name, examples in (("dev", data.dev), ("test", data.test)) if examples is not None}
    if not splits:
        return {}
    with console.progress(sum(map(len, splits.values())), "score", lines=False) as bar:
        predictions = {
            name: model.predictions(examples, batch_size, done=bar.advance) for name, examples in splits.items()
        }
    task = model.task
    if data.dev is not None:
        task = task.tuned(data.dev, predictions["dev"])
        tune_labels(run.model, task.labels.names, task.thresholds)
        if task.recipe.training.calibrate:
            task = calibrated(task, data.dev, predictions["dev"], "dev")
            why = f"dev has fewer than {LEAST} decisions"
            tell_uncalibrated(task, task.confidences(data.dev, predictions["dev"]), why, run.path)
        if task.calibration is not None:
            calibrate_model(run.model, task.calibration)
    first = next(iter(splits))
    write_json_atomic(run.mistakes_file, describe_mistakes(task, data, first, splits[first], predictions[first]))
    reports = {}
    for name, examples in splits.items():
        reports[name], tallies = full_report(task, examples, predictions[name], data.groups.get(name))
        warn_of_missing_labels(task.name, name, reports[name])
        if tallies is not None:
            save_tallies(run.tallies_file(name), tallies)
            if name == first:
                slices = slices_of_run(task, data.rows, examples, reports[name], tallies)
                write_json_atomic(run.slices_file, {"split": name, **slices})
    return reports


def _user_scores(
    metrics: UserMetrics, model: TrainedModel, examples: ExampleList, batch_size: int
) -> dict[str, float | None]:
    """The scores of the user's compute_metrics, which reads outputs and labels instead of predictions."""
    rows: dict[Any, Any] = {}

    def watch(*step: Any) -> None:
        rows.update(metrics.rows(*step))

    evaluation_pipeline(model.task, model.encoder, model.predictor).predictions(examples, batch_size, watch)
    scores = metrics.scores(rows)
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}  # JSON has no NaN


def describe_mistakes(
    task: Task, data: TrainingData, split: str, examples: ExampleList, predictions: Sequence[Any]
) -> dict[str, Any]:
    """The content of mistakes.json: the number of wrong rows of `split`, and the worst of them with their lines."""
    rows, mistakes = data.rows, task.mistakes(examples, predictions)
    chosen = worst(mistakes, MOST)
    wrong = [examples[mistake.row] for mistake in chosen]
    # Examples keep no line numbers, which would cost memory for every row; the file is read again for these few.
    where = places(open_split(rows, split), ExampleReader(rows, data.labels), wrong) if wrong else []
    return {
        "split": split,
        "rows": len(examples),
        "wrong": len(mistakes),
        "worst": [
            {
                "where": place,
                "texts": {column: _cut(text) for column, text in rows.passages(example).items()},
                "expected": _cut(mistake.expected),
                "given": _cut(mistake.given),
                "size": mistake.size,
            }
            for mistake, example, place in zip(chosen, wrong, where, strict=True)
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
