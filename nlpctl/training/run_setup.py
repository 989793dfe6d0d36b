"""Taking the run directory of a training: creating or resuming it, and what happens when the training has ended.

Imports no Paddle, since the parent of several processes, which holds their run directory, must stay without.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl import console
from nlpctl.checksums import sums_of
from nlpctl.config.dump import dump_recipe
from nlpctl.config.paths import further_files, parameter_files
from nlpctl.config.schema import Recipe
from nlpctl.config.user_code import code_sums, kind_of_code
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import UserError
from nlpctl.names import counted
from nlpctl.report.language import in_language
from nlpctl.report.model import Table
from nlpctl.report.text import aligned
from nlpctl.runs.clean import tidy
from nlpctl.runs.report import renew_report
from nlpctl.runs.time_shares import advice, is_sound, rows_of, total_of
from nlpctl.runs.tracking import tracked
from nlpctl.runtime.process import library_environment
from nlpctl.runtime.run_directory import FURTHER, RunDirectory, RunManifest, describe_run
from nlpctl.runtime.versions import installed_versions
from nlpctl.training.checkpoints import set_damaged_aside
from nlpctl.training.continued import FACT, Finished, take_over
from nlpctl.training.oom import MicroBatching

PLANNED = "planned_processes"  # in the manifest


@dataclass(frozen=True)
class TrainOptions:
    """What `nlpctl train` is asked besides the recipe. `origin`: the finished run to go on from, which must have seen
    the same data. `command`: for the manifest."""

    resume: bool = False
    overwrite: bool = False
    origin: Finished | None = None
    command: Sequence[str] = ()


@contextlib.contextmanager
def open_run(
    recipe: Recipe, run: RunDirectory, options: TrainOptions, data: TrainingData | None, *, device: str, processes: int
) -> Iterator[bool]:
    """Hold the run directory while a training runs inside this context; gives whether it goes on from a checkpoint.

    The manifest says in any case how the training ended. After a good end, report.html is written, and where the time
    went is printed. `data`: None if child processes read the data. `processes`: on all nodes. UserError as in
    `RunDirectory.begin`; nothing is written before.
    """
    with tracked(recipe, run) as tell_mlflow:
        facts = {"device": device, "processes": processes}
        begin_run(recipe, run, options, facts, data)
        tell_mlflow()
        with run.recorded():
            # First: killed in it, the best of the other run may stand there alone, from which nothing can go on.
            goes_on = take_over(run) or options.resume
            if options.resume:  # once, before any process of the run looks for its checkpoint
                set_damaged_aside(run, keeps_best=bool(recipe.training.load_best_model_at_end))
            yield goes_on
        tidy(run, recipe.training.save_total_limit, model_is_best=bool(recipe.training.load_best_model_at_end))
        renew_report(run.path)
    time: Any = run.read_manifest().time
    if not is_sound(time):
        return
    with in_language("en"):  # as all messages are
        _tell_shares(time, recipe, device)


def _tell_shares(time: Mapping[str, Any], recipe: Recipe, device: str) -> None:
    rows = [[title, f"{seconds:.1f}", f"{share:.0%}"] for title, seconds, share in rows_of(time)]
    rows.append(["total", f"{total_of(time):.1f}", "100%"])
    console.note(aligned(Table(["time of the training", "seconds", "share"], rows)))
    for line in advice(time, recipe, device):
        console.note(line)


def begin_run(
    recipe: Recipe, run: RunDirectory, options: TrainOptions, facts: Mapping[str, Any], data: TrainingData | None
) -> None:
    """Write recipe.yaml and manifest.json of a new or resumed training in `run`, and lock it.

    `facts`: further entries of the manifest. `data`: None if child processes read the data. UserError as in
    `RunDirectory.begin`.
    """
    functions, origin, planned = code_sums(recipe), options.origin, facts["processes"]
    if options.resume or origin is not None:
        planned = _planned_processes(recipe, run, planned, origin)
    if options.resume:
        _compare_functions(run, functions, "the run began", "train again with @[overwrite=true]")
    files = [*(data.files if data else ()), *parameter_files(recipe.model)]
    known = describe_run(options.command, recipe.training.seed, files, installed_versions())
    known[FURTHER] = sums_of(further_files(recipe))
    known["environment"] = library_environment(recipe.runtime, os.environ)
    manifest = {**facts, PLANNED: planned, **known, "functions": functions}
    manifest["skipped_rows"] = data.skipped if data else {}
    if origin is not None:
        manifest[FACT] = origin.fact()
        otherwise = "start a new run from its model: model.name_or_path"
        _compare_functions(origin.run, functions, "the finished run", otherwise)
        origin.run.refuse_if_different(origin.run.read_manifest(), manifest, otherwise)
    run.begin(manifest, dump_recipe(recipe), resume=options.resume, overwrite=options.overwrite)


def planned_processes(manifest: RunManifest) -> int:
    """The processes among which the recipe's batches are divided as it says: those with which the run began."""
    return manifest.planned_processes or manifest.processes or 1


def _planned_processes(recipe: Recipe, run: RunDirectory, processes: int, origin: Finished | None) -> int:
    """Those of the run that goes on, or of `origin`. UserError if `processes` cannot make its steps."""
    before = run if origin is None else origin.run
    planned = planned_processes(before.read_manifest()) if before.manifest_file.is_file() else processes
    training, by_tokens = recipe.training, recipe.data.batch_tokens is not None
    division = MicroBatching(training.per_device_train_batch_size, training.gradient_accumulation_steps)
    if planned != processes and (by_tokens or division.among(planned, processes) is None):
        rows = "data.batch_tokens" if by_tokens else f"a step of {planned * division.batch_size * division.parts} rows"
        raise UserError(
            f"the run began with {counted(planned, 'processes')}, and {counted(processes, 'processes')} cannot divide "
            f"{rows} evenly",
            where=str(before.path),
            hint=f"go on with {planned}, or with another number that divides it",
        )
    return planned


def _compare_functions(
    run: RunDirectory, functions: Mapping[str, Mapping[str, str]], since: str, otherwise: str
) -> None:
    if run.manifest_file.is_file():
        refuse_changed_functions(run.read_manifest().functions, functions, since, otherwise)


def refuse_changed_functions(
    began: Mapping[str, Mapping[str, str]], functions: Mapping[str, Mapping[str, str]], since: str, otherwise: str
) -> None:
    """UserError if the source of user code changed on which the weights depend; other changes are told.

    `began`, `functions`: the sums of the user's code (`code_sums`) then and now. `since`: what began then, and
    `otherwise`: what else to do, in words.
    """
    for key, names in functions.items():
        changed = [name for name, sha in names.items() if began.get(key, {}).get(name, sha) != sha]
        if changed and kind_of_code(key).changes_training:
            raise UserError(
                f"the source of {', '.join(changed)} changed since {since}",
                where=key,
                hint=f"restore the file, or {otherwise}",
            )
        if changed:
            console.warn(f"{key}: the source of {', '.join(changed)} changed since {since}")
