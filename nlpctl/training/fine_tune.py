"""Fine-tuning by a recipe: build, train, and keep the best model in the run directory."""

from __future__ import annotations

import functools
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from paddlenlp.trainer.trainer_callback import TrainerState

from nlpctl import console
from nlpctl.config.schema import OptimizerSection, Recipe
from nlpctl.config.tasks import scores, task_info
from nlpctl.data.balance import balanced
from nlpctl.data.batching import lost_worker_told
from nlpctl.data.encoders import build_encoder
from nlpctl.data.examples import ExampleList
from nlpctl.data.places import FeatureList
from nlpctl.data.splits import TrainingData
from nlpctl.data.streaming import StreamingExamples
from nlpctl.data.text_encoder import TextEncoder
from nlpctl.errors import RunFailed
from nlpctl.files import staged_dir
from nlpctl.layout import MANIFEST
from nlpctl.models.changes import describe_changes
from nlpctl.models.folder import ModelCard, make_card, save_model_folder
from nlpctl.models.load import LoadedModel
from nlpctl.models.network import check_length
from nlpctl.models.sums import write_model_sums
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.interrupt import stops_later
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task
from nlpctl.training.arguments import training_arguments
from nlpctl.training.callbacks import EarlyStopping, EventRecorder, ProgressLines, go_on_recording
from nlpctl.training.checkpoints import TRAINING_STATE_FILES, read_state
from nlpctl.training.diagnosis import diagnosed
from nlpctl.training.guards import BadStep
from nlpctl.training.oom import recorded_division
from nlpctl.training.optimizer import describe_groups, parameter_report
from nlpctl.training.sums import damage_of
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


def make_ready(recipe: Recipe, setup: ProcessSetup, task: Task, data: TrainingData) -> Ready:
    """Build the recipe's network, and check the data against it. Writes nothing.

    UserError: the model cannot be used, or labels or lengths in the recipe do not fit the rows.
    """
    model = _build_model(recipe, setup, task, data)
    return Ready(recipe, setup, task, _training_rows(recipe, task, data), model)


def _build_model(recipe: Recipe, setup: ProcessSetup, task: Task, data: TrainingData) -> LoadedModel:
    model = task.build_model(data.texts)
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
    task.see_training(drawn)
    return replace(data, train=drawn)


def fine_tune(ready: Ready, run: RunDirectory, checkpoint: Path | None, loss: TrainingLoss | None = None) -> None:
    """Train from `checkpoint`, or from the start when it is None; `run.model` then holds the best model.

    Every process of a multi-process run calls this; process 0 writes. `loss`: replaces the task's own.
    """
    recipe, setup, task, data, model = ready.recipe, ready.setup, ready.task, ready.data, ready.model
    card = make_card(recipe, task.labels.names)
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
    early = _early_stopping(recipe)
    events = EventLog(run.events_file)
    trainer = RecipeTrainer(
        recipe,
        training_arguments(recipe, run, setup.device),
        task,
        loss,
        model,
        card,
        encoder,
        train=_train_features(recipe, setup, data, task, encoder, own_loss=loss is None),
        dev=data.dev,
        callbacks=[EventRecorder(events), ProgressLines(scores(task.name)), *([early] if early else [])],
        events=events,
    )
    state = _train(trainer, data, early, checkpoint)
    trainer.complete()
    if setup.rank == 0:
        _keep_model(recipe, run, model, card, state)


def _train(
    trainer: RecipeTrainer, data: TrainingData, early: EarlyStopping | None, checkpoint: Path | None
) -> TrainerState:
    state = read_state(checkpoint) if checkpoint is not None else None
    events, runtime = trainer.events, trainer.recipe.runtime
    division = recorded_division(events, 0 if state is None else state.global_step)
    if division is not None:
        console.note(f"after out-of-memory: micro-batch {division.batch_size}, accumulation {division.parts}")
        trainer.divide(division)
    if trainer.is_world_process_zero():
        go_on_recording(events, state)
    if early is not None and state is not None and early.exhausted(state):
        return state  # early stopping had ended the run, which was killed before its model was written
    watchdog = watched(trainer.model, runtime.watchdog_minutes, events, lambda: trainer.state.global_step)
    with lost_worker_told(), stops_later() as stop, watchdog:
        try:
            trainer.run(checkpoint, stop)
        except BadStep as bad:
            parts = trainer.args.gradient_accumulation_steps
            raise diagnosed(bad, trainer, lambda step: trainer.batches.placed(step, parts, data)) from None
    return trainer.state


def _keep_model(
    recipe: Recipe, run: RunDirectory, model: LoadedModel, card: ModelCard, state: TrainerState
) -> None:
    """Write run.model: the files of the best checkpoint if one was chosen, otherwise the current network."""
    best = state.best_model_checkpoint if recipe.training.load_best_model_at_end else None
    with staged_dir(run.model) as folder:
        if best is None:
            save_model_folder(folder, model.network, model.tokenizer, card)
        else:
            checkpoint = run.checkpoints / Path(best).name
            if damage := damage_of(checkpoint):
                hint = f"run {run.to_go_on()} to continue from a checkpoint before it"
                raise RunFailed(f"the best checkpoint is damaged: {damage}", where=str(checkpoint), hint=hint)
            for file in checkpoint.iterdir():
                if file.name not in TRAINING_STATE_FILES:
                    shutil.copyfile(file, folder / file.name)
            if not (folder / MANIFEST).is_file():  # checkpoints of older versions have none
                write_model_sums(folder)


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


def _early_stopping(recipe: Recipe) -> EarlyStopping | None:
    """Watches metric_for_best_model; PaddleNLP uses "loss" (lower is better) by default."""
    if recipe.early_stopping.patience is None:
        return None
    metric = recipe.training.metric_for_best_model or "loss"
    greater = recipe.training.greater_is_better
    if greater is None:
        greater = task_info(recipe.task).greater_is_better(metric)
    return EarlyStopping(recipe.early_stopping, metric, greater)


def _describe(recipe: Recipe, model: LoadedModel, setup: ProcessSetup) -> None:
    report = parameter_report(model, recipe)
    origin = "from scratch" if model.source is None else f"from {model.source.name}"
    console.note(f"{type(model.network).__name__} {origin}: {report['total']:,} parameters, on {setup.device}")
    lines = [] if model.extension is None else model.extension.describe()
    lines += describe_changes(model.network, model.changes)
    if recipe.optimizer != OptimizerSection():
        lines += ["trained with:", *describe_groups(report["optimizer"])]
    for line in lines:
        console.note(line)
    if model.source is not None and model.fresh:
        console.note(f"newly initialised: {', '.join(model.fresh)}")
