"""`nlpctl train`: from a recipe to a run directory with the best model and its scores.

    refuse what files show -> read the data -> import Paddle, build the network -> take the run directory -> train

Nothing is written before the last check, so that a mistake costs neither time nor an existing run. From the network
on, training/fine_tune.py continues; with several processes (started by launch/launch.py), in each of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.checks import refuse_half_precision_on_cpu, refuse_wrong_sharding
from nlpctl.config.dump import changed_keys, dump_recipe
from nlpctl.config.own_code import require_named
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import resolved
from nlpctl.data.rows.examples import require_full_batch
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.splits import TrainingData, read_training_data
from nlpctl.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USER, RunFailed, UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.launch.launch import launch, processes_wanted
from nlpctl.launch.node_launch import Coordinator
from nlpctl.launch.nodes import Nodes
from nlpctl.layout import RECIPE, real_path
from nlpctl.models.find import check_edits
from nlpctl.models.source import resolve_source
from nlpctl.names import and_more
from nlpctl.outputs import refuse_below_file
from nlpctl.report.model import Table
from nlpctl.report.text import aligned
from nlpctl.runs.report import renew_report
from nlpctl.runs.time_shares import advice, is_sound, rows_of, total_of
from nlpctl.runs.tracking import tracked
from nlpctl.runtime.device import choose_device
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import ProcessSetup, configure_paddle, prepare_process, quiet_libraries
from nlpctl.runtime.ranks import RANK, WORLD_SIZE, is_child
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.checkpoint_choice import settle_checkpoints
from nlpctl.training.continued import Finished, stops_at, take_over
from nlpctl.training.early_stopping import TrialPruner
from nlpctl.training.oom import recorded_division
from nlpctl.training.own_imports import check_imports
from nlpctl.training.run_setup import begin_run
from nlpctl.training.several_nodes import agree, follow_node_0, head_of, refuse_unnamed_cards
from nlpctl.upstream.parameter_names import fresh_parameter_names

if TYPE_CHECKING:
    from nlpctl.training.fine_tune import Ready, Trained

# Creates or resumes the run directory, for so many processes; see begin_run.
Begin = Callable[[TrainingData | None, int], None]


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
    nodes: Nodes | None = None,
    judging: TrialPruner | None = None,
) -> TrainResult:
    """Train as `recipe` says; the result is on disk in `recipe.run_dir`. `origin`: the finished run to go on from.
    `nodes`: the other nodes of a training on several; on any but node 0, nothing is written and there are no scores.
    `judging`: of a training in this process alone; Pruned if it says that it is not worth going on.

    Raises UserError for mistakes in recipe or data, before anything is written; RunFailed when the training itself
    fails; Interrupted after Ctrl-C. In the last two cases `resume=True` goes on from the last checkpoint to the same
    weights as an uninterrupted run. In one of several processes, which `launch` started, the result has no scores: the
    parent has them.
    """
    require_named(recipe)
    recipe = resolved(recipe)  # the run directory holds this one
    run = RunDirectory(recipe.run_dir)
    processes = processes_wanted(recipe.runtime)
    device = _device(recipe, processes, nodes)
    if device == "cpu":
        refuse_half_precision_on_cpu(recipe, cpu_info().trains_in_bfloat16)
    if is_child():
        _train_as_child(recipe, run, resume)
        return TrainResult(run, {})
    refuse_wrong_sharding(recipe, nodes is not None)
    if nodes is not None and not nodes.is_head:
        _refuse_wrong_model(recipe)
        agree(nodes, recipe, _checked_data(recipe, processes), processes, device)
        follow_node_0(nodes, recipe, processes)
        return TrainResult(run, {})
    _refuse_early(recipe, run, resume, overwrite, origin)

    with tracked(recipe, run) as tell_mlflow:

        def begin(data: TrainingData | None, processes: int) -> None:
            facts = {"device": device, "processes": processes}
            choices = {"resume": resume, "overwrite": overwrite, "origin": origin}
            begin_run(recipe, run, facts, data, command=command, **choices)
            tell_mlflow()

        if processes > 1 or nodes is not None:
            data = _checked_data(recipe, processes)
            world = processes if nodes is None else agree(nodes, recipe, data, processes, device)
            begin(data, world)
            head = None if nodes is None else head_of(nodes, run)
            _train_in_processes(recipe, run, processes, world, resume, head)
        else:
            _train_in_this_process(recipe, run, begin, resume, judging)
        renew_report(run.path)
    _tell_time(recipe, run, device)
    return TrainResult(run, json.loads(run.metrics_file.read_text(encoding="utf-8")))


def _tell_time(recipe: Recipe, run: RunDirectory, device: str) -> None:
    """Print where the time of the training went, and what to change."""
    found = run.read_manifest().get("time")
    if not is_sound(found):
        return
    rows = [[title, f"{seconds:.1f}", f"{share:.0%}"] for title, seconds, share in rows_of(found)]
    rows.append(["total", f"{total_of(found):.1f}", "100%"])
    console.note(aligned(Table(["time of the training", "seconds", "share"], rows)))
    for line in advice(found, recipe, device):
        console.note(line)


# -- in one process --------------------------------------------------------------------------


def _train_in_this_process(
    recipe: Recipe, run: RunDirectory, begin: Begin, resume: bool, judging: TrialPruner | None
) -> None:
    setup = prepare_process(recipe.runtime, recipe.training.seed)  # before the data: a named set imports Paddle
    data = _read_data(recipe, processes=1)
    configure_paddle(setup, recipe.training.seed)
    with fresh_parameter_names():  # optimizer state is keyed by parameter names
        ready = _make_ready(recipe, setup, data)  # before `begin` replaces an existing run
        begin(data, 1)
        with run.recorded():
            _settle(recipe, run, resume)
            _train(ready, run, take_over(run) or resume, judging)


def _read_data(recipe: Recipe, processes: int) -> TrainingData:
    """All splits, checked; UserError if dataloader_drop_last would drop all training rows."""
    data = read_training_data(task_rows(recipe.task, recipe.data))
    training = recipe.training
    if training.dataloader_drop_last and data.train is not None and recipe.data.batch_tokens is None:
        global_batch = training.per_device_train_batch_size * training.gradient_accumulation_steps * processes
        require_full_batch(len(data.train), global_batch)
    return data


def _make_ready(recipe: Recipe, setup: ProcessSetup, data: TrainingData) -> Ready:
    """Build the network, and warn of training rows that are cut. Writes nothing.

    UserError if the model cannot be used.
    """
    # Imported only now: device, threads and flags had to be set before Paddle was.
    from nlpctl.data.text.tokenizers import build_encoder
    from nlpctl.models.network import max_positions
    from nlpctl.tasks.base import make_task
    from nlpctl.training.cut_rows import warn_of_cut_rows
    from nlpctl.training.fine_tune import make_ready

    quiet_libraries()
    ready = make_ready(recipe, setup, make_task(recipe, data.labels), data)
    if setup.rank == 0:
        encoder = build_encoder(ready.model.tokenizer, recipe.data.tokenizer)
        warn_of_cut_rows(ready.task, data, encoder, max_positions(ready.model.network))
    return ready


def _train(ready: Ready, run: RunDirectory, resume: bool, judging: TrialPruner | None = None) -> None:
    """Train in this process and, in process 0, score the model and draw the network."""
    from nlpctl.training.fine_tune import train_and_score

    if resume and run.last_checkpoint() is None:
        console.note(f"no checkpoint in {run.path}: starting from the beginning")
    trained = train_and_score(ready, run, from_checkpoint=resume, judging=judging)
    if trained is not None:
        _draw_graph(ready, run, trained)


def _draw_graph(ready: Ready, run: RunDirectory, trained: Trained) -> None:
    """Draw the network for VisualDL. The model in `trained` is unusable afterwards."""
    from nlpctl.training.arguments import logging_dir, reports_to_visualdl
    from nlpctl.training.graph_log import write_graph

    if reports_to_visualdl(ready.recipe):
        task, encoder = trained.model.task, trained.model.encoder
        feature = next(part for example in ready.data.training_examples() for part in task.features(example, encoder))
        batch = task.collator(encoder, labelled=False)([feature])
        write_graph(trained.model.predictor.network, batch, logging_dir(ready.recipe, run))


# -- in several processes --------------------------------------------------------------------


def _checked_data(recipe: Recipe, processes: int) -> TrainingData | None:
    """The data as the parent of several processes checks them, and the user's own parts.

    The parent must stay without Paddle: a named data set, which imports it, is left to the children, and is None here.
    """
    check_imports(recipe)
    return None if recipe.data.dataset is not None else _read_data(recipe, processes)


def _train_in_processes(
    recipe: Recipe, run: RunDirectory, processes: int, world: int, resume: bool, head: Coordinator | None
) -> None:
    """Train in `processes` on this node, of `world` in all. `head`: the other nodes."""
    with run.recorded():
        _settle(recipe, run, resume)  # once, for all processes
        code = _launch(recipe, run, processes, take_over(run) or resume, head)
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if code != EXIT_OK:
            kind = UserError if code == EXIT_USER else RunFailed
            raise kind(
                f"training in {world} processes ended with exit code {code}",
                where=str(run.logs),
                hint="the failing process's last lines are above; this folder holds one log per process",
            )


def _settle(recipe: Recipe, run: RunDirectory, resume: bool) -> None:
    if resume:
        settle_checkpoints(run, keeps_best=recipe.training.load_best_model_at_end)


def _launch(recipe: Recipe, run: RunDirectory, processes: int, resume: bool, head: Coordinator | None) -> int:
    """Run all processes; restart them with smaller micro-batches after out-of-memory. Returns the exit code."""
    log = EventLog(run.events_file)
    # Not the run's recipe.yaml: what only that names is no code to run. This one was checked, and is the user's.
    file = run.logs / RECIPE
    with writing(run.path, "choose a writable training.output_dir with free space"):
        file.parent.mkdir(exist_ok=True)
        write_text_atomic(file, dump_recipe(recipe))
    while True:
        before = recorded_division(log, sys.maxsize)
        argv = ["train", str(file), *(["--resume"] if resume else [])]
        if head is not None:
            head.resume = resume
        code = launch(argv, processes, recipe.runtime.devices, run.logs, head=head)
        division = recorded_division(log, sys.maxsize)
        if code != EXIT_FAILED or division == before:
            return code
        console.warn(f"out of memory: all processes restart with micro-batches of {division.batch_size} rows")
        resume = True


def _train_as_child(recipe: Recipe, run: RunDirectory, resume: bool) -> None:
    """Train as one of several processes; the parent maintains the run directory."""
    _refuse_without_parent(run)
    setup = prepare_process(recipe.runtime, recipe.training.seed)
    data = read_training_data(task_rows(recipe.task, recipe.data))
    if setup.rank == 0:  # the parent does not read a named data set, and writes the manifest only before and after
        run.update_manifest(skipped_rows=data.skipped)
    configure_paddle(setup, recipe.training.seed)
    with fresh_parameter_names():
        _train(_make_ready(recipe, setup, data), run, resume)


def _refuse_without_parent(run: RunDirectory) -> None:
    """UserError if nlpctl did not start this process: then the variable is a leftover, or another launcher's."""
    if not run.manifest_file.is_file() or run.read_manifest()["state"] != "running":
        message = f"{WORLD_SIZE} says that this is one of several processes, but nlpctl has not started them"
        raise UserError(message, where=WORLD_SIZE, hint=f"unset {WORLD_SIZE} {RANK}; for several: --nproc, --devices")


# -- what is refused before anything is read -------------------------------------------------


def _refuse_early(
    recipe: Recipe, run: RunDirectory, resume: bool, overwrite: bool, origin: Finished | None
) -> None:
    """Checks that run before the data is read and Paddle is imported."""
    _refuse_network_of_compress(run)
    if origin is not None:
        _refuse_changed_origin(recipe, run, origin)
    run.check(resume=resume, overwrite=overwrite)
    if resume and run.made_by is not None:  # of one that it replaces, the recipe is none of an ensemble
        message = f"this run is of `nlpctl {run.made_by}`, not of `nlpctl train`, which cannot go on with it"
        raise UserError(message, str(run.path), f"call {run.to_go_on()}")
    if recipe.training.logging_dir is not None:
        refuse_below_file(Path(recipe.training.logging_dir), recipe.where("training.logging_dir"))
    _refuse_wrong_model(recipe)
    if resume and run.recipe_file.exists():
        _refuse_changed_recipe(recipe, run)


def _refuse_wrong_model(recipe: Recipe) -> None:
    """UserError if the model to start from is not there, or its files are not those that were written."""
    if recipe.model.name_or_path is not None:
        check_edits(resolve_source(recipe.model.name_or_path), recipe)


def _refuse_network_of_compress(run: RunDirectory) -> None:
    """UserError for a network of `nlpctl compress`. Its recipe lacks the teacher, so training it here would differ
    silently."""
    if run.is_of_compress:
        further = "to train it further, name it as model.name_or_path, with another training.output_dir"
        raise UserError(
            "this network was trained by `nlpctl compress`; `nlpctl train` neither resumes nor replaces it",
            where=str(run.path),
            hint=further if run.is_finished else f"run {run.to_go_on()} to continue",
        )


def _device(recipe: Recipe, processes: int, nodes: Nodes | None) -> str:
    """ "gpu" or "cpu"; several processes without a list of GPUs run on the CPU."""
    cards = () if is_child() else recipe.runtime.devices  # a launched process sees only its own GPU
    device = choose_device("cpu" if processes > 1 and not cards else recipe.runtime.device, cards)
    if nodes is not None:
        refuse_unnamed_cards(recipe, device)
    return device


def _refuse_changed_origin(recipe: Recipe, run: RunDirectory, origin: Finished) -> None:
    """UserError if a continued run would write into the finished one, or see its steps with other settings."""
    if real_path(run.path).is_relative_to(real_path(origin.run.path)):
        hint = "leave out --output_dir, or name a folder outside of it"
        raise UserError("the finished run itself is never changed", where="training.output_dir", hint=hint)
    changed = changed_keys(origin.recipe, recipe, "continue")
    if changed:
        raise UserError(
            f"the recipe differs from that of the finished run: {and_more(changed, 10)}",
            where=recipe.where(changed[0]),
            hint="leave it out; for other data or settings start a new run from the model: model.name_or_path",
        )
    if stops_at(origin.checkpoint, recipe):
        message = "early stopping would end the run before its first step: its last evaluations brought no improvement"
        raise UserError(message, recipe.where("early_stopping.patience"), "give more patience, or leave it out")


def _refuse_changed_recipe(recipe: Recipe, run: RunDirectory) -> None:
    """UserError if the recipe of a resumed run changed."""
    changed = changed_keys(recipe_of(run.path), recipe, "resume")
    if changed:
        raise UserError(
            f"the recipe changed since the run began: {and_more(changed, 10)}",
            where=recipe.where(changed[0]),
            hint=f"continue with the run's own values: `nlpctl train {run.path} --resume`, "
            "or train again with --overwrite",
        )
