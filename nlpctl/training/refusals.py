"""What `nlpctl train` refuses before it reads the data and imports Paddle: all that recipe, flags and folders show.

Nothing is written until then. What needs the data or the network is checked where these are read and built
(data/training_data.py, training/prepare.py); `RunDirectory.begin` checks once more what needs the lock of the run.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from nlpctl.config.checks import MLFLOW, refuse_half_precision_on_cpu, refuse_wrong_sharding
from nlpctl.config.dump import forbidden_changes
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.launch.launch import processes_wanted
from nlpctl.launch.peers import Peers
from nlpctl.launch.ray_launch import RayRanks
from nlpctl.layout import real_path
from nlpctl.models.find import check_edits
from nlpctl.models.source import resolve_source
from nlpctl.names import and_more
from nlpctl.outputs import refuse_below_file
from nlpctl.runs.tracking import tracking_uri
from nlpctl.runtime.device import choose_device
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.ranks import RANK, WORLD_SIZE, is_child, not_started_here, port_range
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.continued import stops_at
from nlpctl.training.run_setup import TrainOptions
from nlpctl.training.several_machines import refuse_nproc


def check_before_reading(
    recipe: Recipe,
    run: RunDirectory,
    options: TrainOptions,
    peers: Peers | None = None,
    ranks: RayRanks | None = None,
) -> tuple[int, str]:
    """The number of processes to start (1: train in this one) and the device, "gpu" or "cpu".

    UserError for the first thing that is wrong. `run`: only the process that will hold it looks into it: not a rank,
    whose parent does, and of `peers` the first.
    """
    # The machine.
    if peers is not None:
        refuse_nproc(recipe)
        peers.take_card(recipe.runtime.devices, recipe.runtime.device)
    if ranks is not None:
        processes, device = ranks.world, ranks.device
    else:
        processes = processes_wanted(recipe.runtime)
        if processes > 1:
            port_range()  # where they meet
        cards = () if is_child() else recipe.runtime.devices  # a rank takes the card that its variables name
        # Several processes without a list of GPUs run on the CPU.
        device = choose_device("cpu" if processes > 1 and not cards else recipe.runtime.device, cards)
    if device == "cpu":
        refuse_half_precision_on_cpu(recipe, cpu_info().trains_in_bfloat16)
    if is_child() and peers is None:
        if not run.manifest_file.is_file() or run.read_manifest().state != "running":
            raise not_started_here(f"unset {WORLD_SIZE} {RANK}; for several: @[runtime.nproc], @[runtime.devices]")
        return processes, device
    refuse_wrong_sharding(recipe, peers is not None or ranks is not None)
    if peers is not None and not peers.first:
        _check_model(recipe)
        return processes, device

    # The run directory.
    if run.is_of_compress:  # its recipe lacks the teacher, so training it here would differ silently
        further = "to train it further, name it as model.name_or_path, with another training.output_dir"
        raise UserError(
            "this network was trained by `nlpctl compress`; `nlpctl train` neither resumes nor replaces it",
            where=str(run.path),
            hint=further if run.is_finished else f"run {run.to_go_on()} to continue",
        )
    origin = options.origin
    if origin is not None:  # it is only read; the new run must see its steps with the same settings
        if real_path(run.path).is_relative_to(real_path(origin.run.path)):
            hint = "leave out @[training.output_dir], or name a folder outside of it"
            raise UserError("the finished run itself is never changed", where="training.output_dir", hint=hint)
        if changed := forbidden_changes(origin.recipe, recipe, "continue"):
            raise UserError(
                f"the recipe differs from that of the finished run: {and_more(changed, 10)}",
                where=recipe.where(changed[0]),
                hint="leave it out; for other data or settings start a new run from the model: model.name_or_path",
            )
        if stops_at(origin.checkpoint, recipe):
            raise UserError(
                "early stopping would end the run before its first step: its last evaluations brought no improvement",
                where=recipe.where("early_stopping.patience"),
                hint="give more patience, or leave it out",
            )
    run.check(resume=options.resume, overwrite=options.overwrite)
    if options.resume and run.made_by is not None:  # of one that is replaced, the recipe is none of an ensemble
        message = f"this run is of `nlpctl {run.made_by}`, not of `nlpctl train`, which cannot go on with it"
        raise UserError(message, str(run.path), f"call {run.to_go_on()}")
    if recipe.training.logging_dir is not None:
        refuse_below_file(Path(recipe.training.logging_dir), recipe.where("training.logging_dir"))

    # The recipe.
    _check_model(recipe)
    if options.resume and run.recipe_file.exists():
        if changed := forbidden_changes(recipe_of(run.path), recipe, "resume"):
            raise UserError(
                f"the recipe changed since the run began: {and_more(changed, 10)}",
                where=recipe.where(changed[0]),
                hint=f"continue with the run's own values: `nlpctl train {shlex.quote(str(run.path))} --resume`, "
                "or train again with @[overwrite=true]",
            )
    if MLFLOW in (recipe.training.report_to or ()):
        tracking_uri()
    return processes, device


def _check_model(recipe: Recipe) -> None:
    """UserError if the model to start from is not there, or its files are not those that were written."""
    if recipe.model.name_or_path is not None:
        check_edits(resolve_source(recipe.model.name_or_path), recipe)
