"""A training run, from the checked network to its scores, for `nlpctl train` and `nlpctl compress`.

    ready = make_ready(recipe, setup, task, data)    # fine_tune.py: the network and its rows; nothing is written yet
    begin_run(...)                                   # begin.py: create or resume the run directory
    train_and_score(ready, run, checkpoint)          # RUN/model, metrics.json, mistakes.json

A caller may call begin_run first if it stores the initial network in the run directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.data.examples import ExampleList, ExampleReader
from nlpctl.data.open_split import open_split
from nlpctl.data.places import places
from nlpctl.data.splits import TrainingData
from nlpctl.files import write_json_atomic
from nlpctl.inference.pipeline import scoring
from nlpctl.inference.trained import TrainedModel, load_network
from nlpctl.layout import OWN_SCORES
from nlpctl.models.folder import calibrate_model, tune_labels
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task
from nlpctl.tasks.calibrate import calibrated
from nlpctl.tasks.intervals import full_report
from nlpctl.tasks.mistakes import worst
from nlpctl.tasks.slices import slices_of_run
from nlpctl.tasks.tallies import save_tallies
from nlpctl.training.diagnosis import warn_if_useless
from nlpctl.training.fine_tune import Ready, fine_tune
from nlpctl.training.judging import Judging
from nlpctl.training.optimizer import parameter_report
from nlpctl.training.own_metrics import told_scores
from nlpctl.training.trainer import TrainingLoss

MOST = 50  # most rows in mistakes.json
LONGEST = 1000  # characters of a text in it


@dataclass(frozen=True)
class Trained:
    """The best model, opened from the run directory, and its scores: {"dev": report, "test": report}."""

    model: TrainedModel
    metrics: dict[str, Any]


def train_and_score(
    ready: Ready,
    run: RunDirectory,
    from_checkpoint: bool,
    *,
    loss: TrainingLoss | None = None,
    finish: Callable[[Path], None] | None = None,
    judging: Judging | None = None,
) -> Trained | None:
    """Train in this process and, in process 0, score the best model. None in the other processes of a run.

    `from_checkpoint`: resume from the last checkpoint if there is one. `loss`: replaces the task's own. `finish`:
    called with the folder of the best model before it is scored. `judging`: as for fine_tune.
    """
    if ready.setup.rank == 0:
        run.update_manifest(parameters=parameter_report(ready.model, ready.recipe))
    checkpoint = run.last_checkpoint() if from_checkpoint else None
    if checkpoint is not None:
        console.note(f"resuming from {checkpoint}")
    fine_tune(ready, run, checkpoint, loss, judging)
    if ready.setup.rank != 0:
        return None
    if finish is not None:
        finish(run.model)
    model = load_network(ready.recipe, str(run.model))  # opened from disk, so that scores equal those of `nlpctl eval`
    console.note(f"model {run.model} on {ready.setup.device}")
    batch_size = ready.recipe.training.per_device_eval_batch_size
    metrics = score_run(run, ready.data, model, batch_size)
    if ready.parts.metrics is not None:
        for name in metrics:
            examples = ready.data.dev if name == "dev" else ready.data.test
            metrics[name][OWN_SCORES] = _own_scores(ready, model, examples, batch_size)
    write_json_atomic(run.metrics_file, metrics)
    steps = run.read_manifest().get("steps") or {}
    frozen = bool(ready.model.changes.frozen)
    warn_if_useless(ready.recipe, run, metrics, batch=steps.get("global_batch", 0), frozen=frozen)
    return Trained(model, metrics)


def score_run(run: RunDirectory, data: TrainingData, model: TrainedModel, batch_size: int) -> dict[str, Any]:
    """Score the model in `run` on dev and test, and write mistakes.json and the slices for the first of them.

    Thresholds of the task are tuned on dev first, and its probabilities calibrated, and both are stored with the model.
    """
    splits = {name: examples for name, examples in (("dev", data.dev), ("test", data.test)) if examples is not None}
    if not splits:
        return {}
    predictions = {name: model.predictions(examples, batch_size) for name, examples in splits.items()}
    task = model.task
    if data.dev is not None:
        task = task.tuned(data.dev, predictions["dev"])
        tune_labels(run.model, task.labels.names, task.thresholds)
        if task.recipe.training.calibrate:
            task = calibrated(task, data.dev, predictions["dev"], "dev")
        if task.calibration is not None:
            calibrate_model(run.model, task.calibration)
    split = next(iter(splits))
    write_json_atomic(run.mistakes_file, describe_mistakes(task, data, split, splits[split], predictions[split]))
    reports = {}
    for name, examples in splits.items():
        reports[name], tallies = full_report(task, examples, predictions[name], data.groups.get(name))
        if tallies is not None:
            save_tallies(run.tallies_file(name), tallies)
            if name == split:
                found = slices_of_run(task, data.rows, examples, reports[name], tallies)
                write_json_atomic(run.slices_file, {"split": name, **found})
    return reports


def _own_scores(
    ready: Ready, model: TrainedModel, examples: ExampleList, batch_size: int
) -> dict[str, float | None]:
    """The scores of compute_metrics."""
    metrics, rows = ready.parts.metrics, {}

    def watch(*step: Any) -> None:
        rows.update(metrics.rows(*step))

    scoring(model.task, model.encoder, model.predictor).predictions(examples, batch_size, watch)
    return told_scores(metrics.scores(rows))


def describe_mistakes(
    task: Task, data: TrainingData, split: str, examples: ExampleList, predictions: Sequence[Any]
) -> dict[str, Any]:
    """The content of mistakes.json: the number of wrong rows of `split`, and the worst of them with their lines."""
    rows, found = data.rows, task.mistakes(examples, predictions)
    chosen = worst(found, MOST)
    wrong = [examples[mistake.row] for mistake in chosen]
    where = places(open_split(rows, split), ExampleReader(rows, data.labels), wrong) if wrong else []
    return {
        "split": split,
        "rows": len(examples),
        "wrong": len(found),
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
