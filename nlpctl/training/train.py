"""`nlpctl train`: from a recipe to a run directory with the best model and its scores.

    refuse what files show -> read the data -> import Paddle, build the network -> take the run directory
    -> train -> keep the best model -> score it from disk -> report

Nothing is written before the network stands, so that a mistake costs neither time nor an existing run. What is told
here happens in one process, or in each of several; processes.py starts these, and holds the run directory for them.
The trainings of `nlpctl compress` begin in a way of their own, and end with `train_and_score` like all others.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import resolve_by_model
from nlpctl.config.user_code import require_named, user_code_blamed
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.launch.peers import Peers
from nlpctl.launch.ray_launch import RayRanks
from nlpctl.models.hugging_face_hub import with_commit
from nlpctl.runtime.interrupt import stops_later
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_libraries
from nlpctl.runtime.ranks import is_child
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.continued import Finished, began_with
from nlpctl.training.early_stopping import TrialPruner
from nlpctl.training.processes import read_and_check_splits, train_in_processes
from nlpctl.training.refusals import check_before_reading
from nlpctl.training.run_setup import TrainOptions, open_run
from nlpctl.training.several_machines import agree, rank_0_takes_folder
from nlpctl.upstream.parameter_names import fresh_parameter_names

if TYPE_CHECKING:
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.training.prepare import PreparedTraining
    from nlpctl.training.progress import TrainingProgress
    from nlpctl.training.trainer import RecipeTrainer, TrainingLoss


@dataclass(frozen=True)
class TrainResult:
    """The run directory and the scores of its best model: {"dev": report, "test": report}."""

    run: RunDirectory
    metrics: dict[str, Any]


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    origin: Finished | None = None,
    command: Sequence[str] = (),
    peers: Peers | None = None,
    ranks: RayRanks | None = None,
    pruner: TrialPruner | None = None,
) -> TrainResult:
    """Train as `recipe` says; the result is on disk in `recipe.run_dir`. `origin`: the finished run to go on from.
    `peers`: the other processes of the training, if somebody else has started them; in any but the first nothing is
    written, and there are no scores. `ranks`: actors of a Ray cluster, which are to train in place of this process.
    `pruner`: of a training in this process alone; Pruned if it says that it is not worth going on.

    Raises UserError for mistakes in recipe or data, before anything is written; RunFailed when the training itself
    fails; Interrupted after Ctrl-C. In the last two cases `resume=True` goes on from the last checkpoint to the same
    weights as an uninterrupted run. In one of several processes, which `launch` started, the result has no scores: the
    parent has them.
    """
    require_named(recipe)
    run = RunDirectory(recipe.run_dir)
    recipe = with_commit(recipe, functools.partial(began_with, run, resume, origin))
    recipe = resolve_by_model(recipe)  # the run directory holds this one
    options = TrainOptions(resume, overwrite, origin, command)
    processes, device = check_before_reading(recipe, run, options, peers, ranks)
    if processes > 1 or ranks is not None:
        train_in_processes(recipe, run, options, processes, device, ranks)
    else:
        _train_in_this_process(recipe, run, options, device, pruner, peers)
    holds_run = not is_child() or (peers is not None and peers.first)
    metrics = dict(run.read_metrics()) if holds_run else {}
    return TrainResult(run, metrics)


def _train_in_this_process(
    recipe: Recipe,
    run: RunDirectory,
    options: TrainOptions,
    device: str,
    pruner: TrialPruner | None,
    peers: Peers | None,
) -> None:
    has_parent = is_child() and peers is None  # which holds the run directory
    setup = prepare_process(recipe.runtime, recipe.training.seed)  # before the data: a named set imports Paddle
    if has_parent:
        data = read_training_data(task_rows(recipe.task, recipe.data))
        if setup.rank == 0:  # the parent does not read a named data set, and writes the manifest only before and after
            run.update_manifest(skipped_rows=data.skipped)
    else:
        data = read_and_check_splits(recipe, processes=setup.world_size)
    configure_paddle(setup, recipe.training.seed)
    if peers is not None:
        agree(peers, recipe, data, device)

    # Imported only now: device, threads and flags had to be set before Paddle was.
    from nlpctl.tasks.base import make_task
    from nlpctl.training.graph_log import draw_graph
    from nlpctl.training.prepare import prepare_training, warn_of_truncated_rows

    quiet_libraries()
    with fresh_parameter_names():  # optimizer state is keyed by parameter names
        prepared = prepare_training(recipe, setup, make_task(recipe, data.labels), data)
        truncation = warn_of_truncated_rows(prepared, data) if setup.rank == 0 else None
        # From here on things are written. The run directory of several processes was taken by their parent, or is by
        # the first of them.
        taken: AbstractContextManager[bool] = (
            contextlib.nullcontext(options.resume) if has_parent
            else open_run(recipe, run, options, data, device=device, processes=setup.world_size)
        )  # fmt: skip
        if peers is not None:
            taken = rank_0_takes_folder(peers, taken, run)
        with taken as goes_on:
            if goes_on and run.last_checkpoint() is None:
                console.note(f"no checkpoint in {run.path}: starting from the beginning")
            if truncation is not None:  # a colleague who gets the model was not there when this was told
                run.update_manifest(truncated_rows=asdict(truncation))
            model = train_and_score(prepared, run, from_checkpoint=goes_on, pruner=pruner)
            if model is not None:
                draw_graph(prepared, run, model)


def train_and_score(
    prepared: PreparedTraining,
    run: RunDirectory,
    from_checkpoint: bool,
    *,
    loss: TrainingLoss | None = None,
    finish: Callable[[Path], None] | None = None,
    pruner: TrialPruner | None = None,
) -> TrainedModel | None:
    """Train in this process, in a run directory that is taken; in process 0, keep and score the best model.

    Returns this model, opened from the run directory; None in the other processes of a run. `from_checkpoint`: resume
    from the last checkpoint if there is one. `loss`: replaces the task's own. `finish`: called with the folder of the
    best model before it is scored. Pruned if `pruner` says that the training is not worth going on.
    """
    from nlpctl.training.final_scores import score_best_model
    from nlpctl.training.optimizer import parameter_report
    from nlpctl.training.prepare import describe_start, with_tokenizer_of
    from nlpctl.training.progress import TrainingProgress

    if prepared.setup.rank == 0:
        run.update_manifest(parameters=parameter_report(prepared.model, prepared.recipe))
    checkpoint = run.last_checkpoint() if from_checkpoint else None
    if checkpoint is None:
        describe_start(prepared.model)
    else:
        console.note(f"resuming from {checkpoint}")
        prepared = with_tokenizer_of(prepared, checkpoint)
    with TrainingProgress() as progress:
        _fine_tune(prepared, run, checkpoint, loss, progress, pruner)
        if prepared.setup.rank != 0:
            return None
        if finish is not None:
            finish(run.model)
        return score_best_model(prepared, run)  # from disk, so that scores equal those of `nlpctl eval`


def _fine_tune(
    prepared: PreparedTraining,
    run: RunDirectory,
    checkpoint: Path | None,
    loss: TrainingLoss | None,
    progress: TrainingProgress,
    pruner: TrialPruner | None,
) -> None:
    """Train from `checkpoint`, or from the start; then `run.model` holds the best model. When this returns, nothing
    refers to the trainer any more, so that the optimizer's memory is free for the scores."""
    from nlpctl.training.callbacks import standard_callbacks
    from nlpctl.training.checkpoints import keep_best_model
    from nlpctl.training.trainer import RecipeTrainer

    callbacks = functools.partial(standard_callbacks, progress=progress, pruner=pruner)
    trainer = RecipeTrainer(prepared, run, checkpoint, callbacks, loss)
    with trainer.facts_recorded():
        if trainer.go_on():
            _run_steps(trainer)
        trainer.fit_layers()
    if prepared.setup.rank == 0:
        keep_best_model(prepared.recipe, run, prepared.model, trainer.description, trainer.state)


def _run_steps(trainer: RecipeTrainer) -> None:
    """PaddleNLP's loop, and what is around every step of it."""
    from nlpctl.data.batches.batching import lost_worker_as_error
    from nlpctl.training.diagnosis import diagnosed
    from nlpctl.training.fast_cpu import fast_cpu
    from nlpctl.training.guards import BadStep
    from nlpctl.training.watchdog import watched_for_progress

    recipe, network = trainer.recipe, trainer.loaded.network
    minutes = recipe.runtime.watchdog_minutes
    with (
        user_code_blamed(recipe),
        lost_worker_as_error(),
        stops_later() as stop,  # Ctrl-C waits for the end of a step
        watched_for_progress(trainer.model, minutes, trainer.events, lambda: trainer.state.global_step),
        fast_cpu(recipe, trainer.args.device, network),
    ):
        try:
            trainer.run(stop)
        except BadStep as bad:  # the network still is as it was in that step, and its rows are read again
            raise diagnosed(bad, trainer) from None
