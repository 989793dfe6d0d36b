"""`nlpctl calibrate`: fit the probabilities of a trained model to labelled rows, and keep this with the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.recipe_of import recipe_for_export, recipe_of
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.open_split import has_split
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import groups_of, read_labelled_split
from nlpctl.data.validate import refuse_columns
from nlpctl.errors import Interrupted, Problem, UserError
from nlpctl.files import write_json_atomic, writing
from nlpctl.inference.open_model import find_model, set_up_to_answer
from nlpctl.inference.seen_rows import warn_of_trained_rows
from nlpctl.layout import CALIBRATION, CONFIDENCE, ECE, MODEL, is_run
from nlpctl.models.calibration import Calibration, write_calibration
from nlpctl.models.export_folder import read_checked_manifest, write_manifest
from nlpctl.models.folder import calibrate_model
from nlpctl.models.source import resolve_source
from nlpctl.names import counted
from nlpctl.runs.report import renew_report
from nlpctl.runs.run_files import sound_manifest, sound_metrics
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory

if TYPE_CHECKING:
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import Task

_WRITABLE = "the model folder must be writable"


@dataclass(frozen=True)
class Calibrated:
    """`model`: the folder that was changed. `metrics`: the report of the split, with the new probabilities."""

    model: Path
    split: str
    calibration: Calibration
    metrics: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        own = self.calibration.to_json()
        return {"model": self.model, "split": self.split, "calibration": own, "metrics": {self.split: self.metrics}}


def calibrate(recipe: Recipe, split: str = "dev") -> Calibrated:
    """Fit the probabilities of the recipe's model to a split of its data, and write calibration.json into its folder.

    In an export that of every engine and precision that runs here and needs one of its own. Decisions stay the same.
    metrics.json and the page of the model's run tell the new probabilities.
    UserError: the task has no confidence, there is no such split, it has too few decisions, or the model is not one of
    nlpctl's.
    """
    if not task_info(recipe.task).reads("inference.min_confidence"):
        known = ", ".join(task.name for task in known_tasks() if task.reads("inference.min_confidence"))
        message = f"answers of {recipe.task} have no probability to calibrate"
        raise UserError(message, recipe.where("task"), f"calibrate is for {known}")
    if split not in SPLITS:
        raise UserError(f"there is no split {split!r}", where="@[split]", hint=f"one of {', '.join(SPLITS)}")
    source = resolve_source(find_model(recipe))
    folder = source.folder
    if folder is None or source.kind not in ("nlpctl", "export"):
        hint = "train it, or give the run, the model folder or the export"
        raise UserError("only models that nlpctl trained keep a calibration", str(folder or source.name), hint)
    if not has_split(recipe.data, split):
        hint = f"give it: nlpctl calibrate MODEL FILE, or @[data.{split}=FILE]"
        raise UserError(f"there is no {split} data", where=f"data.{split}", hint=hint)
    refuse_columns(recipe, (split,))
    setup = set_up_to_answer(recipe, str(folder))
    with sigterm_interrupts():
        if source.kind == "export":
            calibration, metrics = _of_export(recipe, setup, folder, split)
            with writing(folder, _WRITABLE):
                # Without the old file's checksum in between: a killed command then leaves an export that can be read.
                manifest = read_checked_manifest(folder)
                write_manifest(folder, manifest, unlisted=(CALIBRATION,))
                write_calibration(folder, calibration)
                write_manifest(folder, manifest)
        else:
            calibration, metrics = _of_network(recipe, folder, split)
    _warn_of_few(split, metrics)
    return Calibrated(folder, split, calibration, metrics)


def _warn_of_few(split: str, metrics: Mapping[str, Any]) -> None:
    """Warn where the split, by its size, cannot tell the probabilities from honest ones, so that what was fitted may be
    chance."""
    from nlpctl.tasks.calibration import MOST_OFF
    from nlpctl.tasks.confidence import chance_ece

    confidence = metrics[CONFIDENCE]
    before, bins = confidence["before"][ECE], confidence["before"]["reliability"]
    chance = chance_ece(bins)
    if MOST_OFF < chance and before <= chance:  # of many rows chance is little, and so is what is fitted then
        count = counted(sum(int(each[2]) for each in bins), confidence["of"])
        message = f"{split} has {count}, on which honest probabilities show an ECE of up to {chance:.3f} by chance; "
        message += f"these show {before:.3f}, so the calibration may not hold on other rows"
        console.warn(str(Problem(message, hint="fit it to more rows: nlpctl calibrate MODEL FILE")))


def _fitted(task: Task, split: str) -> Calibration:
    """The calibration of a task that was fitted to `split`. UserError if there was too little to fit to."""
    if task.calibration is None:
        from nlpctl.tasks.calibration import LEAST

        hint = "give a file with more rows: nlpctl calibrate MODEL FILE"
        raise UserError(f"{split} has fewer than {LEAST} decisions to fit to", where=f"data.{split}", hint=hint)
    return task.calibration


def _labelled(
    recipe: Recipe, split: str, labels: LabelSet, network: Path
) -> tuple[ExampleList, list[Any] | None]:
    """The examples of a split, and their data.columns.group. Warns of rows that `network` was trained on."""
    rows = task_rows(recipe.task, recipe.data)
    examples, _, _ = read_labelled_split(rows, split, labels)
    if split != "train":
        warn_of_trained_rows(network, rows, split, examples)
    return examples, groups_of(rows, split, labels, len(examples))


def _of_network(recipe: Recipe, folder: Path, split: str) -> tuple[Calibration, dict[str, Any]]:
    """Calibrate a network, in its folder and in what its run tells of it. The calibration, and the split's report."""
    from nlpctl.engines.trained import load_network
    from nlpctl.tasks.calibration import calibrated
    from nlpctl.tasks.intervals import full_report

    model = load_network(recipe, str(folder))
    examples, groups = _labelled(recipe, split, model.task.labels, folder)
    predictions = model.predictions(examples, recipe.training.per_device_eval_batch_size)
    task = calibrated(model.task.calibrated(None), examples, predictions, split)
    calibration, metrics = _fitted(task, split), full_report(task, examples, predictions, groups)[0]
    run = RunDirectory(folder.parent) if folder.name == MODEL and is_run(folder.parent) else None
    scores = {} if run is None else _rescored(run, recipe, replace(model, task=task))
    with writing(folder, _WRITABLE):
        calibrate_model(folder, calibration)
        if run is not None and scores:
            write_json_atomic(run.metrics_file, scores)
    if run is not None and scores:
        renew_report(run.path)
    return calibration, metrics


def _rescored(run: RunDirectory, recipe: Recipe, model: TrainedModel) -> dict[str, dict[str, Any]]:
    """metrics.json of the run with the confidence of its calibrated model; empty if it is not there, or damaged.

    Of rows that are not those of the training any more it tells no confidence: the old one is that of another state.
    """
    from nlpctl.tasks.base import make_task
    from nlpctl.tasks.intervals import confidence_of

    damage: list[Problem] = []
    metrics = sound_metrics(run.metrics_file, damage)
    for problem in damage:
        console.warn(str(problem))
    if damage:
        return {}
    own = recipe_of(run.path, named_by=recipe)
    task = make_task(own, model.task.labels, model.task.thresholds, model.task.calibration)
    for split, report in metrics.items():
        confidence: dict[str, Any] = {}
        try:
            examples = _scored_rows(run, own, split, task.labels)
            predictions = replace(model, task=task).predictions(examples, own.training.per_device_eval_batch_size)
            confidence = confidence_of(task, examples, predictions)
        except UserError as error:
            reason = error.problems[0].message
            console.warn(f"the run tells no confidence on {split} any more, since its rows are not there: {reason}")
        for name in {ECE, CONFIDENCE} - confidence.keys():
            report.pop(name, None)
        report.update(confidence)
    return metrics


def _scored_rows(run: RunDirectory, recipe: Recipe, split: str, labels: LabelSet) -> ExampleList:
    """The rows of a split on which the run was scored. UserError if they are not there any more."""
    examples, files, _ = read_labelled_split(task_rows(recipe.task, recipe.data), split, labels)
    known = sound_manifest(run.manifest_file, [])["data"]
    for file in files:
        if known.get(str(file)) not in (None, sha256_of(file)):
            raise UserError(f"{file} changed since the training", str(file), "restore the file")
    return examples


def _of_export(
    recipe: Recipe, setup: ProcessSetup, folder: Path, split: str
) -> tuple[Calibration, dict[str, Any]]:
    """The same of the export's fp32 graph, or of its only one; other ways to run it are compared with that."""
    from nlpctl.engines.choice import open_choice, runnable_here
    from nlpctl.engines.speeds import reason_of
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import task_and_encoder
    from nlpctl.tasks.calibration import calibrated, recalibrated
    from nlpctl.tasks.intervals import full_report

    recipe, manifest = recipe_for_export(recipe, folder), read_checked_manifest(folder)
    task, encoder = task_and_encoder(folder, recipe)
    if not task.graph_scores:
        raise UserError(f"a graph of {recipe.task} gives predictions that cannot be scored", str(folder))
    size = recipe.training.per_device_eval_batch_size
    network = folder if is_run(folder.parent) else Path(manifest.source)
    examples, groups = _labelled(recipe, split, task.labels, network)
    possible = runnable_here(manifest, setup)
    if not possible:
        hint = "calibrate the run that it was made from"
        hint += "" if setup.device == "cpu" else ", or name @[runtime.device=cpu]"
        raise UserError("this machine cannot run the export", str(folder), hint)
    first, *others = sorted(possible, key=lambda choice: choice.precision != "fp32")

    def predictions(choice: Any) -> list[list[Any]]:
        predictor = open_choice(folder, manifest, choice, setup, size)
        return TrainedModel(task, encoder, predictor).predictions(examples, size)

    answered = predictions(first)
    task = calibrated(task.calibrated(None), examples, answered, split)
    calibration, metrics = _fitted(task, split), full_report(task, examples, answered, groups)[0]
    own: dict[str, Calibration] = {}  # of those that need another one
    for each in others:
        try:
            other = recalibrated(task, examples, predictions(each), split).calibration
            if other is not None and other is not calibration:
                own[each.name] = other
        except Interrupted:
            raise
        except Exception as error:  # engines raise what they like
            console.warn(f"{each.name} keeps the calibration of {first.name}: it failed ({reason_of(error)})")
    return replace(calibration, ways=own), metrics
