"""`nlpctl train --folds N --seeds A,B`: one recipe trained several times, and what that says of its scores.

    read the rows -> cut them into folds -> train each run -> predict the rows that it did not see -> one page
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.config.user_code import require_named
from nlpctl.data.inspection.duplicates import NEAR
from nlpctl.data.partition import fold_rows
from nlpctl.errors import Interrupted, Problem, UserError
from nlpctl.experiments.held_out import (
    HELD,
    PREDICTIONS,
    PROBABILITIES,
    SCORES,
    fold_name,
    gather,
    is_predicted,
    predict_held_out,
)
from nlpctl.experiments.repeats_report import Spread, as_json, repeats_page, spreads
from nlpctl.experiments.series import (
    AGAIN,
    Series,
    SeriesRun,
    TrainingRows,
    open_series,
    read_rows,
    refuse_early,
    resolve_values,
    train_member,
)
from nlpctl.experiments.training_pool import training_pool
from nlpctl.files import read_json, write_json_atomic, write_text_atomic
from nlpctl.layout import LOGS, REPORT
from nlpctl.names import and_more, counted
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import LET_GO, wait_until_free
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker_slots import ParallelConfig, WorkerSlots, worker_slots
from nlpctl.tasks.degenerate import HINT, degenerate_reason

# --------------------------------------------------------------------------------------------------
# The runs of a series, trained side by side. Each ends with the predictions of the rows that it did not see.

HeldOutRows = tuple[Sequence[int], int]  # rows by their indexes, and the number of their fold


def train_side_by_side(
    series: Series, slots: WorkerSlots, held_out: Callable[[SeriesRun], HeldOutRows | None], command: Sequence[str]
) -> None:
    """Train all members, each in a process at one of `slots`. `held_out`: the rows that a run predicts; None: none.

    Errors as of `Series.train`, the first of any run; the others save a checkpoint before it is raised.
    """
    left = _unfinished(series, held_out)
    workers = len(slots.runtimes)
    # A named data set is downloaded once per node.
    files = () if series.recipe.data.dataset is not None else tuple(map(str, series.rows.files))
    console.note(f"{counted(workers, 'workers')}, {counted(len(left), 'runs')}")
    jobs = ((MemberWorker.train, series.member_recipe(member), held_out(member), command) for member in left)
    with (
        training_pool(slots, series.folder, files, MemberWorker, series.recipe) as pool,
        series.progress(left, workers) as progress,
    ):

        def begin(number: int) -> None:
            progress.begin(series.run(left[number]).path, series.size(left[number]))

        for number, _, _ in pool.results(jobs, begin, progress.tick):
            run = series.run(left[number]).path
            progress.end(run)
            console.note(f"{series.place(left[number])} is finished{progress.left_in_words()}: {run}")


def _unfinished(series: Series, held_out: Callable[[SeriesRun], HeldOutRows | None]) -> list[SeriesRun]:
    """The members that are not trained, or whose rows are not predicted."""
    return [
        member
        for member in series.members
        if not (series.run(member).is_finished and (held_out(member) is None or is_predicted(series, member)))
    ]


class MemberWorker:
    """What the process of a worker holds; its method is the job.

    `runtime`: what it may use of its machine; `recipe`: of the whole series, whose rows it reads once some of them are
    to be predicted.
    """

    def __init__(self, runtime: RuntimeSection, recipe: Recipe):
        self._runtime, self._recipe = runtime, recipe
        self._rows: TrainingRows | None = None

    def train(self, recipe: Recipe, held_out: HeldOutRows | None, command: Sequence[str]) -> None:
        """`recipe`: of a run, from `Series.member_recipe`."""
        recipe = replace(recipe, runtime=self._runtime)
        run = RunDirectory(recipe.run_dir)
        wait_until_free(run.path, LET_GO)
        if not run.is_finished:
            train_member(recipe, command)
        if held_out is not None:
            if self._rows is None:
                self._rows = read_rows(self._recipe)
            predict_held_out(recipe, self._rows, *held_out)


KIND = "folds"
SUMMARY = "scores.json"
OWN = (HELD, PREDICTIONS, PROBABILITIES, SUMMARY, REPORT, LOGS)


@dataclass(frozen=True)
class RepeatsResult:
    """The folder of all runs, their names, and the spread of their scores by split; "held out": rows of no training.

    `predictions`: one for every training row; None without folds.
    """

    folder: Path
    runs: tuple[str, ...]
    scores: dict[str, dict[str, Spread]]
    predictions: Path | None

    def to_json(self) -> dict[str, Any]:
        content = {"folder": self.folder, "runs": list(self.runs), "scores": as_json(self.scores)}
        return {**content, "predictions": self.predictions, "report": self.folder / REPORT}


def train_folds_and_seeds(
    recipe: Recipe,
    *,
    folds: int | None,
    seeds: Sequence[int] = (),
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
) -> RepeatsResult:
    """Train `recipe` once per fold and seed, in folders of recipe.run_dir, with `workers` runs side by side.

    `folds`: how many; None: every run trains on all rows. `seeds`: by default that of the recipe. A row is in one fold,
    together with its near-duplicates and the rows of its group, and is predicted by the runs that did not see it.
    `cluster`: the address of a Ray cluster, whose nodes train them; by default as many at a time as it has room for.
    UserError as of `train`; also: the task answers no single rows, or there are too few rows. Interrupted: Ctrl-C.
    """
    _refuse(recipe, folds, seeds)
    seeds = tuple(seeds) or (recipe.training.seed,)
    runs = (folds or 1) * len(seeds)
    parallel = ParallelConfig(None if workers is None else min(workers, runs), cluster)
    with contextlib.ExitStack() as stack:
        slots = None
        if parallel.divides:
            slots = stack.enter_context(worker_slots(recipe.runtime, parallel, runs))
            recipe = replace(recipe, runtime=replace(recipe.runtime, devices=()))  # each worker has its own card
        return _train_all(recipe, slots, folds, seeds, resume, overwrite, command)


def _train_all(
    recipe: Recipe,
    slots: WorkerSlots | None,
    folds: int | None,
    seeds: Sequence[int],
    resume: bool,
    overwrite: bool,
    command: Sequence[str],
) -> RepeatsResult:
    """`slots`: where the runs are trained; None: in this process."""
    recipe = resolve_values(recipe, resume)
    refuse_early(recipe, KIND, resume=resume, overwrite=overwrite)
    rows = read_rows(recipe)
    parts = None if folds is None else _folds(recipe, rows, folds)
    members = _members(parts, seeds, len(rows))
    plan = {"folds": folds, "seeds": list(seeds), "group": recipe.data.columns.group}
    options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "own": OWN, "one_vocabulary": True}
    with open_series(recipe, rows, KIND, members, plan, **options) as series:

        def held_out(member: SeriesRun) -> HeldOutRows | None:
            if parts is None:
                return None
            fold = members.index(member) % len(parts)
            return parts[fold], fold + 1

        if slots is not None:
            train_side_by_side(series, slots, held_out, command)
        else:
            train_one_by_one(series, held_out, command)
        predictions = None if parts is None else gather(series, parts, seeds)
        metrics = _metrics(series)
        by_split = spreads(metrics)
        _warn_of_useless(recipe.task, metrics)
        write_json_atomic(series.folder / SUMMARY, as_json(by_split))
        sizes = None if parts is None else [len(part) for part in parts]
        write_text_atomic(series.folder / REPORT, repeats_page(series, metrics, by_split, sizes))
        series.finish()
    return RepeatsResult(series.folder, tuple(member.name for member in members), by_split, predictions)


def _refuse(recipe: Recipe, folds: int | None, seeds: Sequence[int]) -> None:
    require_named(recipe)
    if folds is not None and folds < 2:
        raise UserError(f"{folds} is no number of folds", "@[folds]", "ask for 2 or more, such as 5")
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise UserError(f"the seed {twice[0]} is there twice", "@[seeds]", "name each seed once")
    if folds is not None and not task_info(recipe.task).by_row:
        known = ", ".join(task.name for task in known_tasks() if task.by_row)
        message = f"rows of {recipe.task} are not answered one by one, so none can be held out"
        raise UserError(message, "@[folds]", f"use @[seeds]; folds are for {known}")


def _folds(recipe: Recipe, rows: TrainingRows, count: int) -> list[list[int]]:
    group, together = recipe.data.columns.group, rows.rows.split_together
    return fold_rows(rows.read, count, recipe.training.seed, together=together, group_by=group, near=NEAR)


def _members(parts: Sequence[Sequence[int]] | None, seeds: Sequence[int], count: int) -> list[SeriesRun]:
    if parts is None:
        return [SeriesRun(f"seed-{seed}", seed) for seed in seeds]
    taken = [tuple(sorted({*range(count)} - {*part})) for part in parts]
    return [SeriesRun(fold_name(seed, fold, seeds), seed, own) for seed in seeds for fold, own in enumerate(taken)]


def train_one_by_one(
    series: Series, held_out: Callable[[SeriesRun], HeldOutRows | None], command: Sequence[str]
) -> None:
    """Train all members in this process. `held_out`, errors: as of `train_side_by_side`."""
    left = _unfinished(series, held_out)
    with series.progress(left) as progress:
        for member in left:
            progress.begin(series.run(member).path, series.size(member))
            series.train(member, command)
            own = held_out(member)
            if own is not None:
                console.note(f"{member.name}: predicting the {len(own[0]):,} rows that it did not see")
                try:
                    with sigterm_interrupts():
                        predict_held_out(series.member_recipe(member), series.rows, *own)
                except KeyboardInterrupt:
                    raise Interrupted("interrupted", str(series.folder), AGAIN) from None
            progress.end(series.run(member).path)


def _warn_of_useless(task: str, metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Each run has said so itself, but those that were trained beside each other in their logs."""
    told = {
        name: next(filter(None, (degenerate_reason(task, report) for report in reports.values())), None)
        for name, reports in metrics.items()
    }
    useless = [f"{name}: {what}" for name, what in told.items() if what is not None]
    if useless:
        runs = f"{len(useless)} of {counted(len(metrics), 'runs')}"
        console.warn(str(Problem(f"the models of {runs} are of no use: {and_more(useless, 3)}", hint=HINT)))


def _metrics(series: Series) -> dict[str, dict[str, Any]]:
    """Per run its reports by split."""
    found = {}
    for member in series.members:
        held_out = series.folder / HELD / member.name / SCORES
        own = {"held out": read_json(held_out)} if held_out.is_file() else {}
        found[member.name] = own | dict(series.run(member).read_metrics())
    return found
