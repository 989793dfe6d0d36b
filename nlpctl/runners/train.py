"""`nlpctl train`: from a recipe to a run directory with the best model and its scores."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nlpctl.config.checks import refuse_half_precision_on_cpu
from nlpctl.config.dump import dump_recipe, flat, recipe_values
from nlpctl.config.load import load_recipe
from nlpctl.config.paths import parameter_files
from nlpctl.config.schema import Recipe
from nlpctl.data.examples import require_full_batch
from nlpctl.data.kinds import task_rows
from nlpctl.data.splits import TrainingData, read_training_data
from nlpctl.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USER, RunFailed, UserError
from nlpctl.files import write_json_atomic
from nlpctl.models.folder import write_labels
from nlpctl.models.source import resolve_source
from nlpctl.runners.mistakes import describe_mistakes
from nlpctl.runners.report import write_report
from nlpctl.runtime import console
from nlpctl.runtime.device import choose_device
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.launch import launch, processes_wanted
from nlpctl.runtime.process import ProcessSetup, configure_paddle, prepare_process, quiet_libraries
from nlpctl.runtime.ranks import is_child
from nlpctl.runtime.run_directory import RunDirectory, describe_run
from nlpctl.runtime.versions import installed_versions
from nlpctl.training.oom import recorded_division
from nlpctl.upstream.parameter_names import fresh_parameter_names

if TYPE_CHECKING:
    from nlpctl.inference.trained import TrainedModel
    from nlpctl.models.load import LoadedModel
    from nlpctl.tasks.base import Task

# What may differ between a run and its resumption: where and how it computes, and what it prints.
FREE_TO_CHANGE = ("runtime", "guards", "training.output_dir", "training.logging_dir", "training.disable_tqdm",
                  "training.dataloader_num_workers", "training.save_total_limit")  # fmt: skip


Begin = Callable[[TrainingData | None], None]  # takes the run directory, once everything is checked


@dataclass(frozen=True)
class TrainResult:
    """Where the run lies and how its best model scores: {"dev": report, "test": report}."""

    run: RunDirectory
    metrics: dict[str, Any]


def train(
    recipe: Recipe, *, resume: bool = False, overwrite: bool = False, command: Sequence[str] = ()
) -> TrainResult:
    """Train as `recipe` says; the result is on disk in `recipe.run_dir`.

    Raises UserError for what is wrong in recipe or data, before anything is written; RunFailed when the
    training itself fails; Interrupted after Ctrl-C. In the last two cases `resume=True` goes on from the
    last checkpoint to the same weights as an uninterrupted run.
    """
    run = RunDirectory(recipe.run_dir)
    processes = processes_wanted(recipe.runtime)
    device = _device(recipe, processes)
    if device == "cpu":
        refuse_half_precision_on_cpu(recipe)
    if is_child():  # one of several processes; the parent keeps the run directory's books
        return TrainResult(run, _train_as_child(recipe, run, resume))
    _refuse_early(recipe, run, resume, overwrite)
    facts = {"device": device, "processes": processes}
    begin = functools.partial(_begin, recipe, run, facts, command, resume=resume, overwrite=overwrite)
    if processes > 1:
        _train_in_processes(recipe, run, processes, begin, resume)
    else:
        _train_in_this_process(recipe, run, begin, resume)
    _report(run)
    return TrainResult(run, json.loads(run.metrics_file.read_text(encoding="utf-8")))


def _report(run: RunDirectory) -> None:
    """Write the page of the run, which is finished whether or not there is room for it."""
    try:
        write_report(run.path)
    except UserError as error:
        console.warn(f"no report: {error}")


def _train_in_this_process(recipe: Recipe, run: RunDirectory, begin: Begin, resume: bool) -> None:
    setup = prepare_process(recipe.runtime, recipe.training.seed)  # before the data: a named set imports Paddle
    data = _read_data(recipe, processes=1)
    configure_paddle(setup, recipe.training.seed)
    with fresh_parameter_names():  # the optimizer's state is keyed by them
        ready = _make_ready(recipe, setup, data)  # before `begin`: a bad model must not cost the run that is there
        begin(data)
        with run.recorded():
            _train_and_score(recipe, run, ready, resume)


def _train_in_processes(recipe: Recipe, run: RunDirectory, processes: int, begin: Begin, resume: bool) -> None:
    # The parent must stay without Paddle: a named data set, which imports it, is left to the children.
    begin(None if recipe.data.dataset is not None else _read_data(recipe, processes))
    with run.recorded():
        code = _launch(recipe, run, processes, resume)
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if code != EXIT_OK:
            kind = UserError if code == EXIT_USER else RunFailed
            raise kind(
                f"training in {processes} processes ended with exit code {code}",
                where=str(run.logs),
                hint="the failing process's last lines are above; this folder holds one log per process",
            )


def _launch(recipe: Recipe, run: RunDirectory, processes: int, resume: bool) -> int:
    """Run all processes, again where one of them lacked memory and left a note of smaller parts; the exit code."""
    log = EventLog(run.events_file)
    while True:
        before = recorded_division(log, sys.maxsize)
        argv = ["train", str(run.recipe_file), *(["--resume"] if resume else [])]
        code = launch(argv, processes, recipe.runtime.devices, run.logs)
        division = recorded_division(log, sys.maxsize)
        if code != EXIT_FAILED or division == before:
            return code
        console.warn(f"out of memory: all processes start again, with {division.batch_size} rows at a time each")
        resume = True


def _train_as_child(recipe: Recipe, run: RunDirectory, resume: bool) -> dict[str, Any]:
    setup = prepare_process(recipe.runtime, recipe.training.seed)
    data = read_training_data(task_rows(recipe.task, recipe.data))
    if setup.rank == 0:  # the parent does not read a named data set, and writes the manifest only before and after
        run.update_manifest(skipped_rows=data.skipped)
    configure_paddle(setup, recipe.training.seed)
    with fresh_parameter_names():
        return _train_and_score(recipe, run, _make_ready(recipe, setup, data), resume)


def _begin(
    recipe: Recipe,
    run: RunDirectory,
    facts: dict[str, Any],
    command: Sequence[str],
    data: TrainingData | None,
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Take the run directory. `data` is None where the children read it."""
    files = [*(data.files if data else ()), *parameter_files(recipe.model)]
    facts |= describe_run(command, recipe.training.seed, files, installed_versions())
    facts["skipped_rows"] = data.skipped if data else {}
    run.begin(facts, dump_recipe(recipe), resume=resume, overwrite=overwrite)


def _read_data(recipe: Recipe, processes: int) -> TrainingData:
    """All splits, checked; UserError where dataloader_drop_last would leave nothing of the training rows."""
    data = read_training_data(task_rows(recipe.task, recipe.data))
    training = recipe.training
    if training.dataloader_drop_last and data.train is not None:
        global_batch = training.per_device_train_batch_size * training.gradient_accumulation_steps * processes
        require_full_batch(len(data.train), global_batch)
    return data


def _refuse_early(recipe: Recipe, run: RunDirectory, resume: bool, overwrite: bool) -> None:
    """What can be told before the data are read and Paddle is imported."""
    _refuse_network_of_compress(run)
    run.check(resume=resume, overwrite=overwrite)
    if recipe.model.name_or_path is not None:
        resolve_source(recipe.model.name_or_path)
    if resume and run.recipe_file.exists():
        _refuse_changed_recipe(recipe, run)


def _refuse_network_of_compress(run: RunDirectory) -> None:
    """What it learns from, such as a teacher, is not in its recipe: trained here, it would only look like the same."""
    if run.is_of_compress:
        further = "to train it further, name it as model.name_or_path, with another training.output_dir"
        raise UserError(
            "`nlpctl compress` makes this network; `nlpctl train` neither goes on with it nor replaces it",
            where=str(run.path),
            hint=further if run.is_finished else f"{run.to_go_on()} goes on",
        )


def _device(recipe: Recipe, processes: int) -> str:
    """ "gpu" or "cpu"; several processes without a list of cards run on the CPU."""
    cards = () if is_child() else recipe.runtime.devices  # a launched process sees no others
    return choose_device("cpu" if processes > 1 and not cards else recipe.runtime.device, cards)


@dataclass(frozen=True)
class _Ready:
    """Everything that training needs, checked."""

    setup: ProcessSetup
    data: TrainingData
    task: Task
    model: LoadedModel


def _make_ready(recipe: Recipe, setup: ProcessSetup, data: TrainingData) -> _Ready:
    """Build the network. Writes nothing; UserError when the model cannot be used."""
    # Imported only now: device, threads and flags had to be set before Paddle was.
    from nlpctl.tasks.registry import make_task
    from nlpctl.training.fine_tune import build_model, training_rows

    quiet_libraries()
    task = make_task(recipe, data.labels)
    model = build_model(recipe, setup, task, data)
    return _Ready(setup, training_rows(recipe, task, data), task, model)


def _train_and_score(recipe: Recipe, run: RunDirectory, ready: _Ready, resume: bool) -> dict[str, Any]:
    """Train in this process and, in process 0, score the model; returns the scores."""
    from nlpctl.training.fine_tune import fine_tune
    from nlpctl.training.optimizer import parameter_report

    if ready.setup.rank == 0:
        run.update_manifest(parameters=parameter_report(ready.model, recipe))
    checkpoint = run.last_checkpoint() if resume else None
    if resume:
        console.note(f"going on from {checkpoint}" if checkpoint else f"no checkpoint in {run.path}: from the start")
    fine_tune(recipe, ready.setup, run, ready.task, ready.model, ready.data, checkpoint)
    if ready.setup.rank != 0:
        return {}
    from nlpctl.inference.trained import open_network

    model = open_network(recipe, ready.setup, str(run.model))  # as it lies on disk: the scores are those of `nlpctl eval`
    metrics = _score(recipe, run, ready.data, model)
    write_json_atomic(run.metrics_file, metrics)
    _draw_graph(recipe, run, ready.data, model)
    return metrics


def _score(recipe: Recipe, run: RunDirectory, data: TrainingData, model: TrainedModel) -> dict[str, Any]:
    """Scores on dev and test; the rows of the first of them that the model is most wrong about are written down.

    What the task tunes is tuned on dev first, and kept with the model.
    """
    splits = {name: examples for name, examples in (("dev", data.dev), ("test", data.test)) if examples is not None}
    if not splits:
        return {}
    batch_size = recipe.training.per_device_eval_batch_size
    predictions = {name: model.predictions(examples, batch_size) for name, examples in splits.items()}
    task = model.task
    if data.dev is not None:
        task = task.tuned(data.dev, predictions["dev"])
        write_labels(run.model, task.labels.names, task.thresholds)
    metrics = {name: task.report(examples, predictions[name]) for name, examples in splits.items()}
    split, examples = next(iter(splits.items()))
    mistakes = describe_mistakes(task, data.rows, data.labels, split, examples, predictions[split])
    write_json_atomic(run.mistakes_file, mistakes)
    return metrics


def _draw_graph(recipe: Recipe, run: RunDirectory, data: TrainingData, model: TrainedModel) -> None:
    """The network as VisualDL shows it. `model` is of no use afterwards."""
    from nlpctl.training.arguments import logging_dir, reports_to_visualdl
    from nlpctl.training.graph_log import write_graph

    if reports_to_visualdl(recipe):
        task, encoder = model.task, model.encoder
        feature = next(part for example in data.training_examples() for part in task.features(example, encoder))
        batch = task.collator(encoder, labelled=False)([feature])
        write_graph(model.predictor.network, batch, logging_dir(recipe, run))


def _refuse_changed_recipe(recipe: Recipe, run: RunDirectory) -> None:
    """A resumed run follows the recipe that it began with."""
    began = flat(recipe_values(load_recipe(run.path, purpose="apply"), everything=True))
    now = flat(recipe_values(recipe, everything=True))
    changed = sorted(
        name for name in began.keys() | now.keys()
        if began.get(name) != now.get(name) and not name.startswith(FREE_TO_CHANGE)
    )  # fmt: skip
    if changed:
        raise UserError(
            f"the recipe changed since the run began: {', '.join(changed)}",
            where=recipe.where(changed[0]),
            hint=f"go on with the run's own values: `nlpctl train {run.path} --resume`, "
            "or train again with --overwrite",
        )
