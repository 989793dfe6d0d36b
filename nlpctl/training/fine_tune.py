"""Fine-tuning by a recipe: build, train, and keep the best model in the run directory."""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddlenlp.trainer.trainer_callback import TrainerCallback, TrainerState

from nlpctl import console
from nlpctl.config.schema import OptimizerSection, Recipe
from nlpctl.config.tasks import scores
from nlpctl.data.balance import balanced
from nlpctl.data.batches.batching import lost_worker_as_error
from nlpctl.data.batches.streaming import StreamingExamples
from nlpctl.data.functions import parts_blamed
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import ExampleList, ExampleReader, FeatureList, places
from nlpctl.data.splits import TrainingData
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.engines.pipeline import scoring
from nlpctl.engines.trained import TrainedModel, load_network
from nlpctl.errors import RunFailed, UserError
from nlpctl.files import staged_dir, write_json_atomic
from nlpctl.layout import MANIFEST, OWN_SCORES, checkpoint_step
from nlpctl.models.changes import describe_changes
from nlpctl.models.folder import ModelCard, calibrate_model, make_card, save_model_folder, tune_labels
from nlpctl.models.load import LoadedModel
from nlpctl.models.model_manifest import write_model_sums
from nlpctl.models.network import check_length
from nlpctl.models.parameters import matching, named, trains
from nlpctl.names import counted
from nlpctl.runs.time_shares import TimeShares, is_sound, summary
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.interrupt import stops_later
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, worst
from nlpctl.tasks.calibration import calibrated
from nlpctl.tasks.intervals import full_report
from nlpctl.tasks.slices import slices_of_run
from nlpctl.tasks.tallies import save_tallies
from nlpctl.training.arguments import training_arguments
from nlpctl.training.callbacks import (
    EarlyStopping,
    EventRecorder,
    Judged,
    ProgressLines,
    StepLogger,
    TimeLeft,
    go_on_recording,
    of_all_processes,
)
from nlpctl.training.checkpoint_choice import damage_of
from nlpctl.training.checkpoints import TRAINING_STATE_FILES, read_state
from nlpctl.training.dev_scores import told_scores
from nlpctl.training.diagnosis import diagnosed, not_learning, warn_if_useless
from nlpctl.training.early_stopping import TrialPruner, patience_of
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.training.guards import BadStep
from nlpctl.training.learning import LossCourse
from nlpctl.training.oom import MicroBatching, recorded_division
from nlpctl.training.optimizer import describe_groups, parameter_report
from nlpctl.training.own_parts import OwnParts, load_parts, try_parts
from nlpctl.training.run_setup import planned_processes
from nlpctl.training.trainer import RecipeTrainer, TrainingLoss
from nlpctl.training.watchdog import watched


@dataclass(frozen=True)
class Ready:
    """Everything that a training needs, already checked. `data.train`: the training rows, balanced by label if
    configured."""

    recipe: Recipe
    setup: ProcessSetup
    task: Task
    data: TrainingData
    model: LoadedModel
    parts: OwnParts


def make_ready(
    recipe: Recipe, setup: ProcessSetup, task: Task, data: TrainingData, *, own_loss: bool = True
) -> Ready:
    """Build the recipe's network, and check the data against it. Writes nothing.

    `own_loss`: the task's loss is used; another one, as in a compression, trains all of the network.

    UserError: the model cannot be used, labels or lengths in the recipe do not fit the rows, or a part of the user's
    own does not work.
    """
    parts = load_parts(recipe, task)
    model = _build_model(recipe, setup, task, data, task.fitted_layers if own_loss else ())
    ready = Ready(recipe, setup, task, _training_rows(recipe, task, data), model, parts)
    try_parts(parts, setup, task, ready.data, model, build_encoder(model.tokenizer, recipe.data.tokenizer))
    return ready


def _build_model(
    recipe: Recipe, setup: ProcessSetup, task: Task, data: TrainingData, fitted: Sequence[str]
) -> LoadedModel:
    """`fitted`: the layers that no gradient trains."""
    model = task.build_model(data.texts)
    parameters = named(model.network)
    for name in (name for layer in fitted for name in matching(layer, parameters)):
        parameters[name].stop_gradient = True
    check_length(model.network, recipe.data.max_seq_length, recipe.where("data.max_seq_length"))
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
    for split, examples in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        if examples is not None:
            task.check_data(split, examples, encoder)
    _describe(recipe, model, setup)
    return model


def _training_rows(recipe: Recipe, task: Task, data: TrainingData) -> TrainingData:
    """`data` with the training rows balanced by label if the recipe asks for it. Also passes them to `task`."""
    if data.train is None:
        return data
    drawn = _balanced(recipe, data.train, task)
    task.collect_statistics(drawn)
    return replace(data, train=drawn)


def fine_tune(
    ready: Ready,
    run: RunDirectory,
    checkpoint: Path | None,
    loss: TrainingLoss | None = None,
    judging: TrialPruner | None = None,
) -> None:
    """Train from `checkpoint`, or from the start when it is None; `run.model` then holds the best model.

    Every process of a multi-process run calls this; process 0 writes. `loss`: replaces the task's own. Pruned if
    `judging` says that it is not worth going on.
    """
    recipe, setup, task, data, model = ready.recipe, ready.setup, ready.task, ready.data, ready.model
    card = make_card(recipe, task.labels.names)
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
    patience = patience_of(recipe)
    early = None if patience is None else EarlyStopping(patience)
    events = EventLog(run.events_file)
    course = None if run.is_of_compress else _course(ready, checkpoint, loss)
    steps = StepLogger(run, None if data.train is None else len(data.train), course)
    times = TimeShares()
    left = TimeLeft(times, *(0 if split is None else len(split) for split in (data.dev, data.test)))
    told: list[TrainerCallback] = [left, EventRecorder(events, left), ProgressLines(scores(task.name), left), steps]
    told += [early] if early else []
    told += [Judged(judging)] if judging else []
    trainer = RecipeTrainer(
        recipe,
        training_arguments(recipe, run, setup.device),
        task,
        ready.parts,
        loss,
        model,
        card,
        encoder,
        train=_train_features(recipe, setup, data, task, encoder, own_loss=loss is None),
        dev=data.dev,
        callbacks=told,
        events=events,
        times=times,
        course=course,
    )
    steps.own_schedule = lambda: trainer.own_schedule
    trainer.guard.told = functools.partial(not_learning, trainer)
    shares = [trainer.times.seconds]
    try:
        state = _train(trainer, data, early, checkpoint, planned_processes(run.read_manifest()))
        trainer.complete()
        shares = of_all_processes(trainer.times.seconds)
    finally:
        if setup.rank == 0:
            _record(run, trainer, shares, steps.began_at, fitted_parameters(task, model.network))
    if setup.rank == 0:
        _keep_model(recipe, run, model, card, state)


def _course(ready: Ready, checkpoint: Path | None, loss: TrainingLoss | None) -> LossCourse | None:
    """What watches whether the loss falls; None: nothing does, or it is not known how far it should."""
    task, train = ready.task, ready.data.train
    if ready.recipe.guards.not_learning == "ignore" or ready.setup.rank != 0 or loss is not None:
        return None
    own = ready.parts.criterion is not None  # what a guess costs by a loss of the user's own is not known
    constant = None if train is None or own else task.constant_loss(train)
    return LossCourse(constant, from_start=_trains_new(ready.model) and checkpoint is None)


def _trains_new(model: LoadedModel) -> bool:
    """Whether gradients train new parameters, whose first steps are a guess."""
    parameters = named(model.network)
    return any(name in parameters and not parameters[name].stop_gradient for name in model.fresh)


def fitted_parameters(task: Task, network: Any) -> list[str]:
    """The names of the parameters that the task sets, and no gradient trains."""
    parameters = named(network)
    names = [name for layer in task.fitted_layers for name in matching(layer, parameters)]
    return [name for name in names if parameters[name].stop_gradient]


def _record(
    run: RunDirectory, trainer: RecipeTrainer, shares: list[dict[str, float]], began_at: int, fitted: list[str]
) -> None:
    """Write to the manifest where the time went, which parameters no gradient reached, and which were `fitted`."""
    if not sum(shares[0].values()) and not fitted:
        return
    with contextlib.suppress(OSError, UserError):  # on a full disk, the error that ended the training is to be told
        manifest = run.read_manifest()
        facts: dict[str, Any] = {}
        if sum(shares[0].values()):
            before = manifest.get("time")
            steps = trainer.state.global_step - began_at
            facts["time"] = summary(shares, steps, before if is_sound(before) else None)
        about = {} if trainer.guard.unreached is None else {"unreached": trainer.guard.unreached}
        about |= {"fitted": fitted} if fitted else {}
        if about:
            facts["parameters"] = {**manifest.get("parameters", {}), **about}
        run.update_manifest(**facts)


def _train(
    trainer: RecipeTrainer, data: TrainingData, early: EarlyStopping | None, checkpoint: Path | None, planned: int
) -> TrainerState:
    """`planned`: the processes for which the recipe's batches are meant."""
    state = read_state(checkpoint) if checkpoint is not None else None
    events, runtime = trainer.events, trainer.recipe.runtime
    _divide(trainer, recorded_division(events, 0 if state is None else state.global_step), planned)
    if trainer.is_world_process_zero():
        go_on_recording(events, state)
    if not trains(trainer.loaded.network):
        console.note("the encoder is fixed (model.freeze): no step is trained, the rest is fitted to its vectors")
        return trainer.state
    if early is not None and state is not None and early.exhausted(state):
        return state  # early stopping had ended the run, which was killed before its model was written
    watchdog = watched(trainer.model, runtime.watchdog_minutes, events, lambda: trainer.state.global_step)
    faster = fast_cpu(trainer.recipe, trainer.args.device, trainer.loaded.network)
    with parts_blamed(trainer.recipe), lost_worker_as_error(), stops_later() as stop, watchdog, faster:
        try:
            trainer.run(checkpoint, stop)
        except BadStep as bad:
            parts = trainer.args.gradient_accumulation_steps
            raise diagnosed(bad, trainer, lambda step: trainer.batches.placed(step, parts, data)) from None
    return trainer.state


def _divide(trainer: RecipeTrainer, recorded: MicroBatching | None, planned: int) -> None:
    """Divide every update as after an earlier lack of memory (`recorded`), and among the processes that there are."""
    args = trainer.args
    given = MicroBatching(args.per_device_train_batch_size, args.gradient_accumulation_steps)
    processes = max(args.dataset_world_size, 1)
    # What was recorded may be of another number of processes: only its micro-batch is known to fit.
    division = given.among(planned, processes, None if recorded is None else recorded.batch_size)
    if division is None or division == given:
        return
    why = "after out-of-memory" if processes == planned else f"planned for {counted(planned, 'processes')}"
    console.note(f"{why}: micro-batch {division.batch_size}, accumulation {division.parts}")
    trainer.divide(division)


def _keep_model(
    recipe: Recipe, run: RunDirectory, model: LoadedModel, card: ModelCard, state: TrainerState
) -> None:
    """Write run.model: the files of the best checkpoint if one was chosen, otherwise the current network."""
    best = state.best_model_checkpoint if recipe.training.load_best_model_at_end else None
    with staged_dir(run.model) as folder:
        console.note(_kept(recipe, state))
        if best is None:
            save_model_folder(folder, model.network, model.tokenizer, card)
        else:
            checkpoint = run.checkpoints / Path(best).name
            if damage := damage_of(checkpoint):
                hint = f"run {run.to_go_on()} to continue from a checkpoint before it"
                raise RunFailed(f"the best checkpoint is damaged: {damage}", where=str(checkpoint), hint=hint)
            for file in checkpoint.iterdir():
                # The model folder is a checkpoint without what only a resume needs.
                if file.name not in TRAINING_STATE_FILES:
                    shutil.copyfile(file, folder / file.name)
            if not (folder / MANIFEST).is_file():  # checkpoints of older versions have none
                write_model_sums(folder)


def _kept(recipe: Recipe, state: TrainerState) -> str:
    """Which step the model is of, and why."""
    if not recipe.training.load_best_model_at_end or state.best_model_checkpoint is None:
        return f"kept: the model of the last step, {state.global_step:,}"
    metric = (recipe.training.metric_for_best_model or "loss").removeprefix("eval_")
    step = checkpoint_step(Path(state.best_model_checkpoint))
    return f"kept: the model of step {step:,}, the best by {metric} on dev ({state.best_metric:.4f})"


def _train_features(
    recipe: Recipe, setup: ProcessSetup, data: TrainingData, task: Task, encoder: TextEncoder, own_loss: bool
) -> ExampleList | StreamingExamples:
    """The training features: the examples, cut into windows if the task does so. `own_loss`: those that the task's own
    loss is made for."""
    if data.train is not None and own_loss:
        return task.training_features(data.train, encoder)
    if data.train is not None:
        return FeatureList(data.train, functools.partial(task.features, encoder=encoder))
    return StreamingExamples(
        data.source,
        data.reader,
        features=functools.partial(task.features, encoder=encoder),
        batch_size=recipe.training.per_device_train_batch_size,
        shuffle_buffer=recipe.data.shuffle_buffer,
        seed=recipe.training.seed,
        on_bad_row=recipe.data.on_bad_row,
        world_size=setup.world_size,
        rank=setup.rank,
        rows=data.streamed,
        fix=f"restore the training data, then run {RunDirectory(recipe.run_dir).to_go_on()} to continue from the last "
        "checkpoint",
    )


def _balanced(recipe: Recipe, examples: ExampleList, task: Task) -> ExampleList:
    balance = recipe.data.balance
    if balance.method is None and not balance.counts:
        return examples
    drawn, before, after = balanced(examples, task.labels, balance, recipe.training.seed)
    told = ", ".join(f"{name} {before[name]:,} -> {after[name]:,}" for name in before)
    console.note(f"training rows drawn by label: {told}")
    return drawn


def _describe(recipe: Recipe, model: LoadedModel, setup: ProcessSetup) -> None:
    report = parameter_report(model, recipe)
    origin = "from scratch" if model.source is None else f"from {model.source.name}"
    console.note(f"{type(model.network).__name__} {origin}: {report['total']:,} parameters, on {setup.device}")
    lines = [] if model.head_note is None else [model.head_note]
    lines += [] if model.extension is None else model.extension.describe()
    lines += describe_changes(model.network, model.changes)
    if recipe.optimizer != OptimizerSection():
        lines += ["trained with:", *describe_groups(report["optimizer"])]
    for line in lines:
        console.note(line)
    if model.source is not None and model.fresh:
        console.note(f"newly initialised: {', '.join(model.fresh)}")


# A training run, from the checked network to its scores, for `nlpctl train` and `nlpctl compress`.
#
# ready = make_ready(recipe, setup, task, data)    # fine_tune.py: the network and its rows; nothing is written yet
# begin_run(...)                                   # run_setup.py: create or resume the run directory
# train_and_score(ready, run, checkpoint)          # RUN/model, metrics.json, mistakes.json
#
# A caller may call begin_run first if it stores the initial network in the run directory.


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
    judging: TrialPruner | None = None,
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
