"""Training the trials of a sweep: one after the other in this process, or side by side in others, here or elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

from nlpctl import console
from nlpctl.compress.costs import Clock
from nlpctl.config.checks import check
from nlpctl.config.recipe_of import with_settings
from nlpctl.config.recipe_text import value_text
from nlpctl.config.schema import Origin, Recipe, RuntimeSection, SearchSection
from nlpctl.config.tasks import greater_is_better, scores
from nlpctl.errors import OF_THE_MACHINE, Interrupted, NlpctlError, Problem, Pruned, RunFailed, remedy
from nlpctl.experiments.series import AGAIN
from nlpctl.experiments.study import FAILED, FINISHED, PRUNED, Study, Trial, TrialRecord
from nlpctl.experiments.time_left import TrainingsProgress
from nlpctl.experiments.training_pool import training_pool
from nlpctl.layout import TRIALS
from nlpctl.report.score_tables import single_scores
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import LET_GO, wait_until_free
from nlpctl.runtime.run_directory import RunDirectory, seconds_of
from nlpctl.runtime.worker import ProcessEnded, WorkerLost, call_parent
from nlpctl.runtime.worker_pool import Job, WorkerPool
from nlpctl.runtime.worker_slots import WorkerSlots
from nlpctl.training.early_stopping import TrialPruner
from nlpctl.training.oom import OutOfMemory, is_of_tensors
from nlpctl.training.train import train

MOST_FAILURES = 5  # in a row: then the recipe is wrong rather than the values


def watched_metric(recipe: Recipe) -> str:
    """The score on dev that trials are compared by."""
    if recipe.search.metric is not None:
        return recipe.search.metric.removeprefix("eval_")
    watched = (recipe.training.metric_for_best_model or "loss").removeprefix("eval_")
    return scores(recipe.task)[0] if watched == "loss" else watched  # reports hold no loss


def trial_recipe(recipe: Recipe, folder: Path, trial: Trial) -> Recipe:
    """The recipe of an ordinary run, without the test split. Not checked: its values may not go together."""
    changed = with_settings(recipe, trial.values)
    run = folder / TRIALS / trial.name
    logs = recipe.training.logging_dir
    logging_dir = None if logs is None else str(Path(logs) / trial.name)
    return replace(
        changed,
        data=replace(changed.data, test=(), splits=replace(changed.data.splits, test=None)),
        training=replace(changed.training, output_dir=str(run), logging_dir=logging_dir),
        search=SearchSection(),
        origins={**recipe.origins, **{key: Origin.of_trial(trial.name) for key in trial.values}},
    )


@dataclass
class Trials:
    """The trials of one call: drawn, trained, recorded. `wanted`: how many in all; None: as the clock allows.
    `workers`: how many processes train at a time; None: this one."""

    recipe: Recipe
    folder: Path
    study: Study
    wanted: int | None
    clock: Clock
    metric: str
    command: Sequence[str]
    workers: int | None = None
    _failures: int = 0  # in a row
    _begun: bool = False  # whether a trial has begun in this call
    _end_noted: bool = False
    # Threads of workers take trials, and record how they ended.
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._left = self.study.unfinished()
        self._better = greater_is_better(self.recipe, self.metric)
        ended = len(self.study.trials()) - len(self._left)
        waiting = [1.0] * (len(self._left) if self.wanted is None else max(0, self.wanted - ended))
        self._progress = TrainingsProgress("sweep", "trials", self.wanted, waiting, self.workers, self.clock.left)

    def take(self) -> tuple[Trial, Recipe] | None:
        """The next trial, an unfinished one first, with its recipe; None: there are enough, or the time is up."""
        with self._lock:
            while self._more_begin():
                trial = self._left.pop(0) if self._left else self.study.draw()
                recipe = trial_recipe(self.recipe, self.folder, trial)
                problems = check(recipe, "train")
                if not problems:
                    self._progress.begin(recipe.run_dir)
                    self._begun = True
                    return trial, recipe
                self.done(trial, FAILED, str(problems[0]))
        return None

    def _more_begin(self, promised: int = 0) -> bool:
        """Whether a further trial may begin now: there are not enough, and it would probably end in time.

        `promised`: the number of trials that will begin before it, once a worker is ready.
        """
        left = self.clock.left()
        if promised < len(self._left):  # one that an earlier call has drawn; each call goes on with one at least
            return left is None or left > 0 or not self._begun
        records = self.study.trials()
        if self.wanted is not None and len(records) + promised - len(self._left) >= self.wanted:
            return False
        timed = [each for each in records if each.seconds and left is not None]
        whole = [each for each in timed if each.state == FINISHED]  # others ended early
        usual = [each.seconds for each in whole or timed if each.seconds]
        needed = median(usual) if usual else 0.0
        if left is not None and records and left < needed:
            if not self._end_noted:
                console.note(f"no further trial begins: one takes {needed:.0f} s, and {max(left, 0):.0f} s are left")
            self._end_noted = True
            return False
        return True

    def done(self, trial: Trial, state: str, reason: str) -> None:
        """Record how a trial ended. RunFailed after too many failures in a row."""
        with self._lock:
            self._record(trial, state, reason)

    def _record(self, trial: Trial, state: str, reason: str) -> None:
        run, score = RunDirectory(self.folder / TRIALS / trial.name), None
        if state == FINISHED:
            score = single_scores(run.read_metrics().get("dev", {})).get(self.metric)
        self.study.tell(trial.number, state, score, _seconds(run), reason)
        self._progress.end(run.path)
        records = self.study.trials()
        self._note_end(records, records[trial.number])
        self._failures = self._failures + 1 if records[trial.number].state == FAILED else 0
        if self._failures == MOST_FAILURES:
            hint = "mend the recipe, or leave out what cannot work; @[resume=true] goes on with other values"
            raise RunFailed(f"{MOST_FAILURES} trials in a row failed, the last one: {reason}", str(run.path), hint)

    def _note_end(self, records: Sequence[TrialRecord], trial: TrialRecord) -> None:
        """One line: how the trial ended, the best so far, the values that it tried."""
        best = best_of(records, self._better)
        what = f"{self.metric} {trial.score:.4f}" if trial.score is not None else trial.reason.split("\n")[0]
        so_far = f" (best {best.score:.4f}, trial {best.name})" if best is not None else ""
        values = ", ".join(f"{key.rpartition('.')[2]} {value_text(value)}" for key, value in trial.values.items())
        ended = sum(each.state in (FINISHED, PRUNED, FAILED) for each in records)
        of_all = f"{ended} of {self.wanted}" if self.wanted is not None else f"{ended}"
        left = self._progress.left_in_words()
        console.note(f"trial {trial.name} {trial.state}, {of_all}{left}: {what}{so_far}; {values}")

    # -- who trains -----------------------------------------------------------------------------

    def train_here(self) -> None:
        """All of them, one after the other. Interrupted: Ctrl-C."""
        try:
            with sigterm_interrupts(), self._progress:
                while (taken := self.take()) is not None:
                    trial, recipe = taken
                    worth = partial(self.study.worth_continuing, trial.number)
                    self.done(trial, *train_trial(recipe, self.metric, worth, self.command))
        except (KeyboardInterrupt, Interrupted):
            raise Interrupted("interrupted", str(self.folder), AGAIN) from None

    def train_side_by_side(self, slots: WorkerSlots, *files: str) -> None:
        """One at a time in a process at each of `slots`, which sees the sweep's folder and `files`.

        Interrupted: Ctrl-C. RunFailed: too many failures in a row, or the machines failed rather than a trial.
        """
        trials: dict[Job, Trial] = {}

        def begin(job: Job) -> bool:
            """Draw the trial of a job, now that a worker is ready to train it: on a cluster without room that may be
            long after the job was submitted, when more trials have ended, or the time is up."""
            with self._lock:
                taken = self.take()
                if taken is None:
                    return False
                trials[job], recipe = taken
            job.name = f"trial {trials[job].name}"
            job.arguments = (recipe, self.metric, self.command)
            job.answer = partial(self._judge, trials[job])
            return True

        def end(job: Job) -> None:
            """Record how the trial of a job ended, before its worker draws another."""
            with self._lock:
                if (trial := trials.pop(job, None)) is not None:
                    outcome, job.error = _outcome(trial, job), None
                    self.done(trial, *outcome)

        def is_wanted(pool: WorkerPool) -> bool:
            """Whether a job is to be submitted: a worker has none, and there will be a trial for it."""
            with self._lock:
                promised = len(pool.open_jobs) - len(trials)  # jobs that are yet to draw theirs
                return len(pool.open_jobs) < pool.size and self._more_begin(promised)

        again = "another process goes on"
        with training_pool(slots, self.folder, files, TrialWorker, again=again) as pool, self._progress:
            while True:
                while is_wanted(pool):
                    pool.submit(Job(TrialWorker.train, begin=begin, end=end))
                if not pool.open_jobs:
                    return
                job = pool.next_ended(self._progress.tick)
                if job.error is not None:  # the machines failed, or too many trials in a row
                    raise job.error

    def _judge(self, trial: Trial, evaluated: tuple[int, float]) -> bool:
        """Answer a trial that asks, after an evaluation, whether it is worth going on with."""
        return self.study.worth_continuing(trial.number, *evaluated)


def _outcome(trial: Trial, job: Job) -> tuple[str, str]:
    """The state of a trial whose job has ended, and the reason. What says nothing of its values is raised."""
    if job.error is None:
        return job.value
    if not isinstance(job.error, ProcessEnded):
        raise job.error
    lost = job.error.problems[0]
    message = f"{job.losses} processes were lost over it, the last one: "
    # Its node may be gone. A crash is the trial's own, and so is a kill where the node still answers: the kernel ends
    # what needs too much memory, and would do so at every --resume.
    if isinstance(job.error, WorkerLost):
        hint = _then_again(lost.hint)
        raise RunFailed(f"trial {trial.name}: {message}{lost.message}", lost.where, hint) from None
    return FAILED, f"{message}{lost}"


@dataclass(frozen=True)
class TrialWorker:
    """What the process of a worker holds: what it may use of its machine. Its method is the job."""

    runtime: RuntimeSection

    def train(self, recipe: Recipe, metric: str, command: Sequence[str]) -> tuple[str, str]:
        """As `train_trial`, which asks the parent whether the trial is worth going on with."""
        recipe = replace(recipe, runtime=self.runtime)
        if not wait_until_free(recipe.run_dir, LET_GO):  # says nothing of the trial's values
            message = "a process on a node that was lost still trains this"
            raise RunFailed(message, str(recipe.run_dir), _then_again("wait until it has ended"))

        def worth(evaluation: int, score: float) -> bool:
            # Where the parent ends this process, it says nothing: the training goes on until the signal stops it.
            return call_parent((evaluation, score)) is not False

        return train_trial(recipe, metric, worth, command)


def train_trial(
    recipe: Recipe, metric: str, worth: Callable[[int, float], bool], command: Sequence[str]
) -> tuple[str, str]:
    """Train a trial, or go on with it: its state, FINISHED, PRUNED or FAILED, and the reason. Interrupted: Ctrl-C.

    RunFailed: the machine failed (a full disk), which says nothing of the trial's values. The same lack of memory a
    second time does: FAILED.
    """
    run, before = RunDirectory(recipe.run_dir), None
    if run.manifest_file.exists():  # killed after the training had ended, and before that was recorded
        manifest = run.read_manifest()
        if run.is_finished or manifest.state == PRUNED:  # one that failed may have lacked a disk
            return manifest.state, manifest.error or ""
        before = manifest.error
    console.note(f"trial {run.path.name}: {run.path}")
    try:
        train(recipe, resume=run.manifest_file.exists(), command=command, pruner=TrialPruner(metric, worth))
    except Interrupted:
        raise
    except Pruned as pruned:
        return PRUNED, pruned.problems[0].message
    except Exception as error:  # also a library's, at values that nobody tried before; the others may work
        problem = error.problems[0] if isinstance(error, NlpctlError) else Problem(f"{type(error).__name__}: {error}")
        cause = _of_the_machine(error)
        again = isinstance(cause, MemoryError) and f"{type(cause).__name__}: {cause}" == before
        if cause is not None and not again:
            raise RunFailed(problem.message, problem.where or str(run.path), _then_again(remedy(cause))) from error
        return FAILED, str(problem)
    return FINISHED, ""


def _then_again(first: str) -> str:
    return f"{first}; {AGAIN}" if first else AGAIN


def _of_the_machine(error: BaseException | None) -> OSError | MemoryError | None:
    """The error of the machine that `error` came from; None: the values of the trial may have caused it."""
    while error is not None and not isinstance(error, OutOfMemory):  # smaller batches were tried already
        if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
            return error
        if isinstance(error, MemoryError) and not is_of_tensors(error):
            return error
        error = error.__cause__ or error.__context__
    return None


def _seconds(run: RunDirectory) -> float | None:
    """That a run took, without pauses; None: it has not ended."""
    manifest = run.read_manifest() if run.manifest_file.exists() else None
    if manifest is None or manifest.ended is None:
        return None
    return seconds_of(manifest.content, datetime.fromisoformat(manifest.ended))


def best_of(records: Sequence[TrialRecord], greater_is_better: bool) -> TrialRecord | None:
    """The finished trial with the best score, the first of several; None: none is finished."""
    ranked = ranking(records, greater_is_better)
    return ranked[0] if ranked else None


def ranking(records: Sequence[TrialRecord], greater_is_better: bool) -> list[TrialRecord]:
    """The finished trials, the best first."""
    finished = [(each.score, each) for each in records if each.state == FINISHED and each.score is not None]
    sign = -1.0 if greater_is_better else 1.0
    return [each for _, each in sorted(finished, key=lambda pair: sign * pair[0])]
