"""`nlpctl train`."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.options import load_command_recipe
from nlpctl.cli.output import Json, give, score_tables, tell_next, tell_trained
from nlpctl.cli.peers import (
    MasterOption,
    NnodesOption,
    NodeRankOption,
    WaitOption,
    machines_of,
    peers_of,
    refuse_meeting,
)
from nlpctl.cli.values import LARGEST
from nlpctl.config.positions import located
from nlpctl.config.user_code import with_names_of
from nlpctl.console import display
from nlpctl.errors import UserError
from nlpctl.launch.peers import WAIT_SECONDS
from nlpctl.layout import REPORT
from nlpctl.names import full_width_signs
from nlpctl.report.language import say
from nlpctl.report.text import show_table
from nlpctl.runtime.ranks import is_child


def train(
    ctx: typer.Context,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="Recipe file, name of a shipped recipe, or run directory.")
    ],
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint.")] = False,
    more: Annotated[
        int | None,
        typer.Option("--continue", metavar="N", help="Train a finished run for N more epochs, in a new run."),
    ] = None,
    overfit: Annotated[
        bool, typer.Option("--overfit-batch", help="Only test whether the network can learn one batch by heart.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing run.")] = False,
    folds: Annotated[
        int | None,
        typer.Option("--folds", metavar="N", help="N runs, each without a fold of the rows, which it predicts."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A,B,...", help="Train one run (or all folds) with each seed.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=256, metavar="N", help="Runs of folds and seeds side by side."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="A Ray cluster for these, or for --nnodes: auto, ray://HOST:PORT."),
    ] = None,
    nnodes: NnodesOption = None,
    master: MasterOption = None,
    node_rank: NodeRankOption = None,
    wait: WaitOption = WAIT_SECONDS,
    json: Json = False,
) -> None:
    """Train a model, keep the best, score it on dev and test.

    Everything is written to training.output_dir: recipe, manifest, events, checkpoints, model, metrics, and
    report.html, a page of all of this.

    On several machines, take a Ray cluster, or let a scheduler start this command once per process (docs/cluster.md).

    Examples:

      nlpctl train quickstart

      nlpctl train my.yaml --device gpu --learning_rate 3e-5 --set data.max_seq_length=256

      nlpctl train my.yaml --resume

      nlpctl train outputs/my_run --continue 2

      nlpctl train my.yaml --overfit-batch --max_steps 300

      nlpctl train my.yaml --folds 5 --workers 2

      nlpctl train my.yaml --cluster auto --nnodes 2 --nproc 4

      srun nlpctl train my.yaml --nnodes auto
    """
    many = {"--folds": folds, "--seeds": seeds}
    if overfit:
        others = {"--resume": resume, "--continue": more, "--overwrite": overwrite, "--nnodes": nnodes}
        others |= {"--master": master, "--node_rank": node_rank, "--workers": workers, "--cluster": cluster}
        _overfit_batch(recipe, ctx, json, forbidden={**others, **many})
        return
    if folds is not None or seeds is not None:
        single = {"--continue": more, "--nnodes": nnodes, "--master": master, "--node_rank": node_rank}
        for name, other in single.items():
            if other is not None:
                _refuse_together(name, many)
        flags = {"workers": workers, "cluster": cluster, "resume": resume, "overwrite": overwrite}
        _train_many(recipe, ctx, folds, seeds, flags, json)
        return
    for name, value in (("--workers", workers), ("--cluster", cluster if nnodes is None else None)):
        if value is not None:
            hint = "a single run takes several cards with --devices, and several machines with --nnodes"
            raise UserError(f"{name} is for the runs of --folds and --seeds", name, hint)
    with contextlib.ExitStack() as stack:
        peers, ranks = None, None
        if cluster is None:
            peers = stack.enter_context(peers_of(nnodes, master, node_rank, wait))
        else:
            refuse_meeting(master, node_rank)
        origin, given, own = None, [], None
        if more is not None:
            from nlpctl.training.continued import overrides_for_more_epochs, run_to_continue

            origin, own = run_to_continue(recipe)
            recipe, given = str(origin.run.path), overrides_for_more_epochs(origin.recipe, origin.run.path, more)
        resolved = load_command_recipe(recipe, ctx, given)
        resolved = resolved if own is None else with_names_of(resolved, own)  # the user's recipe named it, not its run
        stack.enter_context(located(resolved))
        if cluster is not None:
            from nlpctl.launch.ray_launch import ray_ranks

            machines, runtime = machines_of(nnodes or ""), resolved.runtime
            if runtime.devices:
                raise UserError("Ray gives every process its card", "runtime.devices", "say how many: --nproc K")
            ranks = stack.enter_context(ray_ranks(cluster, machines, runtime.nproc, runtime))
        from nlpctl.training.train import train as run_training

        result = run_training(
            resolved, resume=resume, overwrite=overwrite, origin=origin, command=sys.argv, peers=peers, ranks=ranks
        )
        if is_child() and (peers is None or not peers.first):
            return
    if json:
        give({"run": result.run.path, "model": result.run.model, "metrics": result.metrics})
        return
    score_tables(result.metrics)
    tell_trained(result.run, resolved, result.metrics)


def _train_many(
    recipe: str, ctx: typer.Context, folds: int | None, seeds: str | None, flags: Mapping[str, Any], json: bool
) -> None:
    numbers = _parse_seeds(seeds)
    resolved = load_command_recipe(recipe, ctx)
    from nlpctl.config.tasks import task_info
    from nlpctl.experiments.repeats import train_folds_and_seeds
    from nlpctl.experiments.repeats_report import spread_tables

    with located(resolved):
        result = train_folds_and_seeds(resolved, folds=folds, seeds=numbers, command=sys.argv, **flags)
    if json:
        give(result.to_json())
        return
    for table in spread_tables(result.scores):
        show_table(table, apart=True)
    if result.predictions is not None:
        console.note(say("a prediction for every training row: {}", display(result.predictions)))
    console.note(say("report: {}", display(result.folder / REPORT)))
    info, name = task_info(resolved.task), display(result.folder)
    audit = [f"nlpctl data audit {shlex.quote(name)}"] if result.predictions is not None and info.labelled else []
    ensemble = f"nlpctl ensemble {shlex.quote(name)} -o {shlex.quote(f'{name}_ensemble')}"
    tell_next(*audit, *([] if info.ensemble_average is None else [ensemble]))


def _parse_seeds(text: str | None) -> list[int]:
    """The numbers of --seeds, [] without it. UserError for what is no whole number up to LARGEST."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    digits = len(str(LARGEST))  # int() refuses thousands of them
    wrong = [word for word in words if not (word.isascii() and word.isdecimal() and len(word) <= digits)]
    wrong = wrong or [word for word in words if int(word) > LARGEST]
    if wrong:
        hint = f"whole numbers up to {LARGEST:,}, such as 1,2,3{full_width_signs(wrong[0])}"
        raise UserError(f"{wrong[0]!r} is not a seed", "--seeds", hint)
    return [int(word) for word in words]


def _refuse_together(one: str, others: Mapping[str, Any]) -> None:
    """UserError if one of the other flags is given, too."""
    for flag, given in others.items():
        if given:
            raise UserError(f"{flag} and {one} cannot be combined", where=flag, hint="keep one of them")


def _overfit_batch(recipe: str, ctx: typer.Context, json: bool, forbidden: Mapping[str, Any]) -> None:
    """Test whether one batch is learned by heart; RunFailed if it is not. UserError for a flag of `forbidden`."""
    _refuse_together("--overfit-batch", forbidden)
    resolved = load_command_recipe(recipe, ctx)
    from nlpctl.training.overfit import overfit_batch

    with located(resolved):
        result = overfit_batch(resolved)
    if json:
        give(result)
