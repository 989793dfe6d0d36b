"""`nlpctl sweep`: trainings of one recipe with other values, and what they say of the values.

    FOLDER/trials/000, ...    each trial, an ordinary run
           study.journal      Optuna's record of them
           given.yaml         the recipe's file as it was when the sweep began
           best.yaml          the recipe of the best one, ready to train
           sweep.json         all trials, the best, how sure that is
           report.html        the same as a page
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.compress.costs import Clock
from nlpctl.config.keys import use_of
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe, SearchSection, parse_budget
from nlpctl.config.search_space import MOST_TRIALS, grid_size, trials_wanted
from nlpctl.config.tasks import greater_is_better
from nlpctl.config.user_code import require_named
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.documents import Document
from nlpctl.errors import Problem, RunFailed, UserError
from nlpctl.experiments.best_recipe import best_text, own_text
from nlpctl.experiments.series import FREE_SPACE, data_files, finish, go_on, open_folder, refuse_early, resolve_values
from nlpctl.experiments.study import FINISHED, RUNNING, Study, TrialRecord, require_optuna
from nlpctl.experiments.sweep_result import BEST, SweepResult, sweep_page
from nlpctl.experiments.trials import Trials, ranking, watched_metric
from nlpctl.files import write_json_atomic, write_text_atomic, writing
from nlpctl.layout import LOGS, RECIPE, REPORT, SWEEP_RESULT, TRIALS
from nlpctl.names import counted
from nlpctl.report.language import say, say_counted
from nlpctl.runs.runs import open_run, paired
from nlpctl.runtime.process import prepare_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker_slots import ParallelConfig, WorkerSlots, worker_slots

KIND = "sweep"
JOURNAL, GIVEN = "study.journal", "given.yaml"
OWN = (TRIALS, LOGS, JOURNAL, f"{JOURNAL}.lock", SWEEP_RESULT, GIVEN, BEST, REPORT)
EVALUATES_NEVER = "no"


def sweep(
    recipe: Recipe,
    output: Path | None = None,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
) -> SweepResult:
    """Try what recipe.search says, by default below the recipe's folder + "-sweep", with `workers` trials side by side.

    `cluster`: the address of a Ray cluster, whose nodes train them; by default as many at a time as it has cores or
    cards.
    A trial that fails is recorded, and the sweep goes on. `resume` keeps what has ended, goes on with what had begun,
    and may ask for more trials.
    UserError as of `train`; also: nothing to try, no dev rows to compare by, no Optuna. Interrupted: Ctrl-C.
    """
    folder = os.path.abspath(f"{recipe.run_dir}-{KIND}" if output is None else output)
    original, recipe = recipe, replace(recipe, training=replace(recipe.training, output_dir=folder))
    parallel = ParallelConfig(workers, cluster)
    _refuse(recipe, parallel)
    require_optuna()
    if not parallel.divides:
        return _sweep(original, recipe, None, resume, overwrite, command)
    with worker_slots(recipe.runtime, parallel, trials_wanted(recipe.search)) as slots:
        recipe = replace(recipe, runtime=replace(recipe.runtime, devices=()))  # each worker has its own card
        return _sweep(original, recipe, slots, resume, overwrite, command)


def _sweep(
    original: Recipe, recipe: Recipe, slots: WorkerSlots | None, resume: bool, overwrite: bool, command: Sequence[str]
) -> SweepResult:
    """`slots`: where the trials are trained; None: in this process. `original`: the recipe that best.yaml is
    written from."""
    text = own_text(original)
    recipe = resolve_values(recipe, resume)
    refuse_early(recipe, KIND, resume=resume, overwrite=overwrite, grows=True)
    section, metric = recipe.search, watched_metric(recipe)
    better, wanted = greater_is_better(recipe, metric), trials_wanted(section)
    flags: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "own": OWN, "grows": True}
    files = _files(recipe)
    if not resume and not any(use_of(key).role == "rows" for key in recipe.search.space):
        read_training_data(task_rows(recipe.task, recipe.data))  # bad rows would end every trial
    with open_folder(recipe, files, KIND, (), {"metric": metric}, **flags) as folder:
        text = _text_at_the_start(text, folder / GIVEN)
        study = Study(section, folder / JOURNAL, recipe.training.seed, better)
        _refuse_missing(study, folder)
        _refuse_done(study, folder, wanted)
        go_on(folder)
        if section.pruner != "none" and recipe.training.evaluation_strategy == EVALUATES_NEVER:
            console.note("no trial is stopped early: training.evaluation_strategy is no, so nothing is compared")
        _note_few_points(section, wanted)
        clock = Clock(None if section.budget is None else parse_budget(section.budget))
        workers = None if slots is None else len(slots.runtimes)
        trials = Trials(recipe, folder, study, wanted, clock, metric, command, workers)
        if slots is None:
            trials.train_here()
        else:
            own = () if recipe.data.dataset is not None else files  # a named data set is downloaded once per node
            trials.train_side_by_side(slots, *map(str, own))
        result = _result(recipe, folder, study, metric, better)
        best = best_text(original, text, result.best.values, _comments(result), folder / BEST, Path(f"{folder}-best"))
        write_text_atomic(folder / BEST, best)
        write_text_atomic(folder / REPORT, sweep_page(result, best, (folder / RECIPE).read_text(encoding="utf-8")))
        write_json_atomic(folder / SWEEP_RESULT, console.json_ready(result.to_json()))  # the last, see _refuse_done
        finish(folder, runs=[f"{TRIALS}/{each.name}" for each in result.ranking])
    return result


def _refuse(recipe: Recipe, parallel: ParallelConfig) -> None:
    if not recipe.search.space:
        hint = "write search: {space: {training.learning_rate: {log: [1e-5, 1e-4]}}} in the recipe (docs/sweep.md)"
        raise UserError("the recipe says nothing to try", recipe.where("search.space"), hint)
    require_named(recipe)
    if not has_split(recipe.data, "dev"):
        raise UserError("there is no dev data to compare trials by", recipe.where("data.dev"), "set data.dev: FILE")
    if len(recipe.runtime.devices) > 1 and not parallel.divides:
        hint = f"use @[workers={len(recipe.runtime.devices)}]: a trial on each card; or name one card"
        raise UserError("a trial is trained on one card", recipe.where("runtime.devices"), hint)


def _note_few_points(section: SearchSection, wanted: int | None) -> None:
    """Note a space with fewer points than trials: a sampler draws some of them again."""
    if section.sampler == "grid" or any(axis.points is None for axis in section.space.values()):
        return
    points = grid_size(section.space, MOST_TRIALS)
    if points < MOST_TRIALS and (wanted is None or points <= wanted):
        console.note(f"there are {counted(points, 'combinations')} only: search.sampler: grid tries each of them once")


def _text_at_the_start(text: str | None, file: Path) -> str | None:
    """The recipe's text as it was when the sweep began, which `file` keeps: its owner may go on writing it."""
    if file.exists():
        return file.read_bytes().decode(errors="replace")
    if text is not None:
        with writing(file, FREE_SPACE):
            write_text_atomic(file, text)
    return text


def _files(recipe: Recipe) -> tuple[Path, ...]:
    """The data files, also those that are tried; a missing one is told before anything is written."""
    if recipe.data.dataset is not None:  # may import Paddle
        prepare_process(recipe.runtime, recipe.training.seed)
    rows = task_rows(recipe.task, recipe.data)
    files = data_files(recipe, rows, open_split(rows, "train"))
    axis = recipe.search.space.get("data.train")
    for value in () if axis is None else axis.choices or ():
        files += open_split(task_rows(recipe.task, replace(recipe.data, train=value)), "train").files
    return tuple(dict.fromkeys(files))


def _refuse_missing(study: Study, folder: Path) -> None:
    """UserError if a finished trial, with which the others are compared, is not there any more."""
    runs = [f"{TRIALS}/{each.name}" for each in study.trials() if each.state == FINISHED]
    # What is compared are scores; `nlpctl runs clean` may have deleted the model.
    if missing := [run for run in runs if not RunDirectory(folder / run).manifest_file.is_file()]:
        hint = "restore its folder, or begin again with @[overwrite=true]"
        raise UserError("this trial is finished, and its run is not there any more", str(folder / missing[0]), hint)


def _refuse_done(study: Study, folder: Path, wanted: int | None) -> None:
    """UserError if there is nothing left to do."""
    records = study.trials()
    ended = sum(each.state != RUNNING for each in records)
    if wanted is not None and len(records) == ended >= wanted and _reported_trials(folder) == ended:
        hint = f"ask for more: @[trials={2 * ended}]; or use @[overwrite=true] to begin again"
        raise UserError(f"all {counted(ended, 'trials')} are done; there is nothing to resume", str(folder), hint)


@dataclass(frozen=True)
class SweepFile(Document):
    """sweep.json: the result of a sweep (SweepResult.to_json), of which a later call of the command needs these."""

    trials: tuple[Any, ...] = ()
    best: str | None = None
    test: dict[str, Any] | None = None


def _reported_trials(folder: Path) -> int:
    """How many trials sweep.json tells of: fewer where a command was killed before it wrote them."""
    written = SweepFile.load_if_valid(folder / SWEEP_RESULT)  # a damaged one is written anew
    return 0 if written is None else len(written.trials)


def _result(recipe: Recipe, folder: Path, study: Study, metric: str, better: bool) -> SweepResult:
    """What the trials say, once all have ended. RunFailed if none finished."""
    records = study.trials()
    ranked = ranking(records, better)
    if not ranked:
        reasons = [each.reason for each in records if each.reason]
        reason = f", the last one: {reasons[-1]}" if reasons else ""
        raise RunFailed(f"none of {counted(len(records), 'trials')} finished{reason}", str(folder), "try other values")
    second = None
    if len(ranked) > 1:
        first, other = (open_run(folder / TRIALS / each.name) for each in ranked[:2])
        pair = paired(other, first).get("dev")
        if isinstance(pair, str):
            console.note(f"the two best trials are not compared row by row: {pair}")
        elif pair is not None:
            second = pair.scores.get(metric)
    test = _on_test(recipe, folder, ranked[0])
    importance = study.importance()
    return SweepResult(folder, metric, better, recipe.search, tuple(records), tuple(ranked), importance, second, test)


def _on_test(recipe: Recipe, folder: Path, best: TrialRecord) -> dict[str, Any] | None:
    """The report of the best trial on the test split, which is read for no other trial of this call; None without such
    a split, or of a model that was deleted."""
    if not has_split(recipe.data, "test"):
        return None
    known = _known_on_test(folder, best)
    if known is not None:
        return known
    run = RunDirectory(folder / TRIALS / best.name)
    if not run.is_finished:
        what = f"{run.path}: the model of the best trial was deleted, so it is not scored on test"
        console.warn(str(Problem(what, hint=f"train it again: nlpctl train {folder / BEST}")))
        return None
    from nlpctl.inference.evaluate import evaluate

    own = recipe_of(run.path, named_by=recipe)
    data = replace(own.data, test=recipe.data.test, splits=recipe.data.splits)
    console.note(f"scoring the best, trial {best.name}, on test")
    return evaluate(replace(own, data=data, runtime=recipe.runtime), ("test",)).metrics["test"]


def _known_on_test(folder: Path, best: TrialRecord) -> dict[str, Any] | None:
    """The report of `best` on test from before more trials were asked for."""
    before = SweepFile.load_if_valid(folder / SWEEP_RESULT)  # a damaged one is written anew
    return before.test if before is not None and before.best == best.name else None


def _comments(result: SweepResult) -> dict[str, str]:
    """Where each value of the best recipe came from, by key."""
    trials, best = say_counted(len(result.trials), "trials"), result.best
    tried = {key: result.space.space[key].text for key in best.values}
    return {key: say("sweep: best of {}, trial {}; tried {}", trials, best.name, text) for key, text in tried.items()}
