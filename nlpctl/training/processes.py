"""One training in several processes, of this machine or of a Ray cluster: the parent, which trains nothing itself.

    the parent     holds the run directory; starts the processes, and starts them again after out-of-memory
      a process    runs `nlpctl train` as well (train.py), as one rank of all

The parent stays without Paddle, which would take memory of the cards. Processes that a scheduler starts have none: they
meet as peers (launch/peers.py).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from nlpctl import console
from nlpctl.config.dump import dump_recipe
from nlpctl.config.schema import Recipe
from nlpctl.config.user_code import import_code, named_code
from nlpctl.data.rows.examples import require_full_batch
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import TrainingData, read_training_data
from nlpctl.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USER, RunFailed, UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.launch.launch import launch
from nlpctl.launch.ray_launch import RayRanks
from nlpctl.layout import RECIPE
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.process import one_process, prepare_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker import Worker, listen_for_interrupts
from nlpctl.training.oom import recorded_division
from nlpctl.training.run_setup import TrainOptions, open_run
from nlpctl.training.several_machines import compare_machines, launch_on_machines
from nlpctl.training.user_loss import CRITERION, import_loss

_GRACE = 5.0  # seconds for the process that imports the user's code to end by itself


def train_in_processes(
    recipe: Recipe, run: RunDirectory, options: TrainOptions, processes: int, device: str, ranks: RayRanks | None
) -> None:
    """Train in `processes`: of this machine, or `ranks` of a Ray cluster.

    Raises what `train` does. RunFailed, UserError or KeyboardInterrupt for the process that failed first.
    """
    check_imports(recipe)
    # A named data set is read with Paddle, so it is left to the processes.
    data = None if recipe.data.dataset is not None else read_and_check_splits(recipe, processes)
    if ranks is not None:
        compare_machines(ranks, recipe, data, run)
    with open_run(recipe, run, options, data, device=device, processes=processes) as resume:
        code = launch_again_after_oom(recipe, run, processes, resume, ranks)
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if code != EXIT_OK:
            kind = UserError if code == EXIT_USER else RunFailed
            raise kind(
                f"training in {processes} processes ended with exit code {code}",
                where=str(run.logs),
                hint="the failing process's last lines are above; this folder holds one log per process",
            )


def read_and_check_splits(recipe: Recipe, processes: int) -> TrainingData:
    """All splits, checked; UserError if dataloader_drop_last would drop all training rows."""
    data = read_training_data(task_rows(recipe.task, recipe.data))
    training = recipe.training
    if training.dataloader_drop_last and data.train is not None and recipe.data.batch_tokens is None:
        global_batch = training.per_device_train_batch_size * training.gradient_accumulation_steps * processes
        require_full_batch(len(data.train), global_batch)
    return data


def launch_again_after_oom(
    recipe: Recipe, run: RunDirectory, processes: int, resume: bool, ranks: RayRanks | None
) -> int:
    """Run all processes until they end, and return the exit code of the first that failed, else 0.

    One that runs out of memory notes smaller micro-batches in events.jsonl and fails, since the others wait for its
    gradients; then all start again from the last checkpoint, with these.
    """
    log = EventLog(run.events_file)
    # Not the run's recipe.yaml: what only that names is no code to run. This one was checked, and is the user's.
    file = run.logs / RECIPE
    with writing(run.path, "choose a writable training.output_dir with free space"):
        file.parent.mkdir(exist_ok=True)
        write_text_atomic(file, dump_recipe(recipe))
    while True:
        before = recorded_division(log, sys.maxsize)
        if ranks is not None:
            code = launch_on_machines(ranks, recipe, run, resume)
        else:
            argv = ["train", str(file), *(["--resume"] if resume else [])]
            code = launch(argv, processes, recipe.runtime.devices, run.logs)
        division = recorded_division(log, sys.maxsize)
        if code != EXIT_FAILED or division is None or division == before:
            return code
        console.warn(f"out of memory: all processes restart with micro-batches of {division.batch_size} rows")
        resume = True


# -- the user's code ---------------------------------------------------------------------------------


def check_imports(recipe: Recipe) -> None:
    """UserError if code that `recipe` names cannot be imported, or takes other arguments.

    They are imported in a process of their own, since most import Paddle. Functions over rows are left out where this
    process calls them anyway.
    """
    code = [(kind, name) for kind, name in named_code(recipe)
            if not kind.key.startswith("data.") or recipe.data.dataset is not None]  # fmt: skip
    if not code:
        return
    worker = Worker(_importer, recipe, grace=_GRACE, daemon=True)
    try:
        worker.start()
        for kind, name in code:
            worker.ask((kind, name), kind.key)
    finally:
        worker.end()


def _importer(recipe: Recipe) -> Callable[[Any], None]:
    listen_for_interrupts()
    # An import must not take memory of the GPUs, which are for the processes of the training.
    prepare_process(dataclasses.replace(one_process(recipe.runtime), device="cpu", devices=()), recipe.training.seed)
    return _import


def _import(named: Any) -> None:
    kind, name = named
    imports = import_loss if kind == CRITERION else import_code
    imports(kind, name)
