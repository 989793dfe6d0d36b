"""`nlpctl compress`: compressed candidates of a trained model, each scored in its engine, and the best of them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nlpctl import console
from nlpctl.compress.interleaved_timing import Field, field_of
from nlpctl.compress.plan import (
    CompressionPlan,
    carried_over,
    has_learned,
    make_plan,
    parse_strategy,
    plan_steps,
    strategies_of,
    trains,
    write_plan,
)
from nlpctl.compress.refusals import (
    check_engines,
    check_strategies,
    default_output,
    refuse_early,
    refuse_missing,
    refuse_output,
    warn_unread,
)
from nlpctl.compress.relative_speed import LastRound, paces_of
from nlpctl.compress.report import write_reports
from nlpctl.compress.schedule import (
    SAFETY,
    TIMES,
    Clock,
    Costs,
    Explorer,
    Option,
    StepSchedule,
    read_times,
    row_counter,
    told,
    trained_rows,
    write_times,
)
from nlpctl.compress.scorer import Scorer, Timing, check_scorable
from nlpctl.compress.scores import Failure, Row, TestScore
from nlpctl.compress.selection import Aim, select, within, write_best
from nlpctl.compress.source import static_model
from nlpctl.compress.step_pool import Made, StepPool, log_of
from nlpctl.compress.step_worker import FREE_SPACE, TimeIsUp
from nlpctl.compress.tables import CompressResult, line
from nlpctl.config.checks import refuse_half_precision_on_cpu
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.recipe_of import with_settings, with_student
from nlpctl.config.schema import Recipe, parse_budget
from nlpctl.errors import Interrupted, NlpctlError, RunFailed, UserError
from nlpctl.export.export import ELSEWHERE
from nlpctl.export.strategies import CANDIDATES, EXPORTS, NETWORKS, Step
from nlpctl.files import remove_dir, remove_leftovers, writing
from nlpctl.models.source import read_config, resolve_source
from nlpctl.names import counted
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import ProcessSetup, one_process, process_kept, set_up_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker_slots import ParallelConfig, WorkerSlots, worker_slots
from nlpctl.tasks.useless import useless_reason, warn_of_useless

SCORES, BEST = "scores", "best"
UNMADE = "not made yet: run the same command again, and it goes on"
AT_THE_END = 2  # scorings reserved in the budget: the best and the uncompressed network on test


def compress(
    recipe: Recipe,
    source: str,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    division: ParallelConfig | None = None,
) -> CompressResult:
    """Make and score every candidate that recipe.compression names, from the model folder or export `source`.

    `division`: how many are made at a time, and where; by default one. Scored they are here, one by one.
    Folders and scores of an earlier call are reused. A failing candidate does not stop the others; the result tells
    when all of them failed. Device and random states of this process do not change. UserError, before anything is made,
    if a strategy cannot work with this model, task or machine; Interrupted after Ctrl-C: the same call continues.
    """
    with process_kept():
        return _compress(recipe, source, output, overwrite, division or ParallelConfig(1, None))


def _compress(
    recipe: Recipe, source: str, output: Path | None, overwrite: bool, division: ParallelConfig
) -> CompressResult:
    recipe = with_student(recipe)
    budget = recipe.compression.budget
    clock = Clock(None if budget is None else parse_budget(budget))
    chains = parse_strategy(recipe.compression.strategy)
    strategies = strategies_of(chains, recipe.compression)
    refuse_early(recipe, source, strategies)
    folder = output if output is not None else default_output(source)
    steps = {step.folder: step for step in plan_steps(chains, recipe.compression)}
    training = any(step.trains and (overwrite or not is_made(folder, step)) for step in steps.values())
    refuse_missing(recipe, source, strategies, training)
    plan = make_plan(recipe, source, static_model(recipe))
    refuse_output(folder, source, plan, recipe, overwrite=overwrite, training=trains(chains))
    plan = plan if overwrite or trains(chains) else carried_over(folder, plan)
    warn_unread(recipe, strategies)
    # First: the threads of this process are variables that others inherit.
    with worker_slots(recipe.runtime, division, len(steps)) as places:
        setup = set_up_process(recipe)
        check_scorable(recipe)
        check_strategies(recipe, source, chains)
        check_engines(setup, chains)
        if training and setup.device == "cpu":
            refuse_half_precision_on_cpu(recipe, cpu_info().trains_in_bfloat16)
        recipe = dataclasses.replace(recipe, runtime=one_process(recipe.runtime))
        with _taken(folder, overwrite, plan), sigterm_interrupts():
            try:
                return _Compression(recipe, setup, source, folder, steps, clock, places).run()
            except KeyboardInterrupt:
                hint = "run the same command again to continue"
                raise Interrupted("interrupted", where=str(folder), hint=hint) from None


@dataclass
class _Compression:
    """The state of one call: existing folders, their scores, failures."""

    recipe: Recipe
    setup: ProcessSetup
    source: str
    folder: Path
    steps: dict[str, Step]
    clock: Clock
    posts: WorkerSlots  # of the processes that make steps
    rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)  # key: the folder of a candidate
    failures: dict[str, tuple[Failure, ...]] = field(default_factory=dict)
    lost: dict[str, NlpctlError] = field(default_factory=dict)  # folders that could not be made
    kept: str | None = None  # the row that best/ was made from
    last: LastRound | None = None
    smaller: dict[str, str] = field(default_factory=dict)  # by folder: what was made in its place within the budget

    def __post_init__(self) -> None:
        self.count = row_counter(self.recipe)
        folder = resolve_source(self.source).folder
        self.config = {} if folder is None else read_config(folder)

    def run(self) -> CompressResult:
        """Score existing folders, then make the missing ones, the most promising first, within the budget."""
        section = self.recipe.compression
        aim = Aim(section.max_drop, section.target, section.batch_sizes, section.sure)
        first = next(iter(self.steps.values()))  # the uncompressed network: everything is compared with it
        with (
            self.posts.seeing(self.folder) as make,
            StepPool(self.recipe, self.source, self.folder, self.posts, make) as makers,
        ):
            if makers.size > 1 or self.posts.elsewhere:
                several = counted(makers.size, "steps")
                console.note(f"{several} at a time; they write to {log_of(self.folder, 0)} and so on")
            if not is_made(self.folder, first):
                self._begin(makers, first)
                self._take(makers.wait())
            if self.lost:
                raise self.lost[first.folder]
            timing = Timing(batch_sizes=section.batch_sizes)
            scorer = Scorer(self.recipe, self.setup, self.folder / first.folder, self.folder / SCORES, timing)
            with scorer, _stop_told():
                self.metric, self.aim = scorer.metric, aim
                self.reference = dataclasses.replace(scorer.reference(), folder=str(self.folder / first.folder))
                warn_of_useless(self.recipe.task, {"dev": self.reference.report}, self.reference.name)
                if aim.sure is not None and self.reference.drops is None:
                    message = f"{self.metric.name} cannot be resampled, so nothing says how sure its loss is"
                    raise UserError(message, self.recipe.where("compression.sure"), "leave it out")
                if self.metric.own and abs(self.reference.score) > 1:
                    console.warn("compression.evaluate gives more than 1: --max-drop counts in points of 0.01")
                for folder in sorted(self._finished()):
                    self._score(scorer, folder)
                self.last = scorer.stored_round(self._field())
                self._settle(None)
                self._explore(makers, scorer)
                self._play_last_round(scorer)
                result = self._settle(scorer)
        asked = [self.lost.get(folder) for folder, step in self.steps.items() if step.scored and step != first]
        if asked and all(error is not None and not isinstance(error, TimeIsUp) for error in asked):
            return dataclasses.replace(result, failed=next(iter(self.lost.values())))
        return result

    def _explore(self, makers: StepPool, scorer: Scorer) -> None:
        """Make what is missing, as many steps at a time as there are processes, and score it while none is made.

        A process goes through the steps of an option one after the other.
        """
        costs = self._costs(scorer.timing.rows)
        explorer = Explorer(self.steps, self.reference, self.metric, self.aim, costs)
        course = StepSchedule(makers.size, costs)
        while True:
            if not makers.running:
                for step in course.taken_to_score():
                    self._score(scorer, step.folder)
                    self._settle(None)
            reserve = AT_THE_END * costs.scoring + self._field().seconds(scorer.timing.rows)
            options = self._begin_steps(makers, scorer, explorer, course, reserve)
            if not makers.running:
                left = self.clock.left()
                if left is not None and self._shrink(explorer, options, left - reserve):
                    continue
                self._tell_untried(options, left)
                return
            made = makers.wait()
            self._take(made)
            if made.step.folder in self.lost:
                course.drop(made.step)
                continue
            course.done(made.step)
            if not made.goes_on:  # the remaining part of a resumed training is no estimate of a full one
                costs.learn(made.step, made.seconds)
                with writing(self.folder, FREE_SPACE):
                    write_times(self.folder, costs.measured)

    def _begin_steps(
        self, makers: StepPool, scorer: Scorer, explorer: Explorer, course: StepSchedule, reserve: float
    ) -> list[Option]:
        """Begin as many steps as there are idle processes, those of begun options first. The options that are left."""
        while True:
            made = {step.folder for step in self.steps.values() if is_made(self.folder, step)}
            options = explorer.options(made, set(self.lost), self._table())
            step = course.next_step(options, self.clock.left(), reserve)
            if step is None:
                return options
            left = self.clock.left()
            limit = None if left is None else left - reserve - course.others_to_score(step)
            if limit is not None and limit <= 0:  # an earlier step took longer than expected
                course.drop(step)
                continue
            if step.trains:
                scorer.release()
            self._begin(makers, step, limit)

    def _shrink(self, explorer: Explorer, options: Sequence[Option], seconds: float) -> bool:
        """Add a smaller form of a step, which fits into `seconds`, to the steps, and tell so; False if none does."""
        costs = explorer.costs

        def forms(step: Step) -> list[Step]:
            found = list(step.made_by.smaller(step, self.recipe, self.config))
            for form in found if step.trains else ():
                settings = with_settings(self.recipe, dict(form.settings))
                costs.rows[form.work] = form.made_by.rows_trained(settings, self.count)
            begun = [form for form in found if form.trains and has_learned(self.folder / form.folder)]
            return [*(form for form in begun if not is_made(self.folder, form)), *found]

        found = explorer.shrink(options, forms, lambda form: is_made(self.folder, form), seconds)
        if found is None:
            return False
        step, form = found
        took = f"{step.name} would take about {told(SAFETY * costs.of(step))}, and {told(seconds)} are left for it"
        console.note(f"{took}: {form.name} in its place{changes(self.recipe, form)}")
        self.smaller[step.folder] = f"{form.name} was made in its place{changes(self.recipe, form)}"
        return True

    def _costs(self, samples: int) -> Costs:
        """Expected seconds of the steps. Without a budget the training rows are not counted. `samples`: timed rows."""
        speed = self.reference.speed(max(self.aim.batch_sizes)).samples_per_second
        strategies = {step.made_by for step in self.steps.values()}
        rows = {} if self.clock.left() is None else trained_rows(self.recipe, strategies, self.count)
        turns = Field((self.reference,), ()).seconds(samples)
        measured = read_times(self.folder)
        return Costs(speed, rows, self.reference.seconds, turns, measured, slowdown=self.posts.slowdown)

    def _finished(self) -> list[str]:
        """The complete folders of the table, of earlier calls too; the uncompressed network comes first."""
        found = [path for kind in (EXPORTS, CANDIDATES) for path in (self.folder / kind).glob("*") if path.is_dir()]
        return [f"{path.parent.name}/{path.name}" for path in found if not path.name.startswith(".")]

    def _begin(self, makers: StepPool, step: Step, seconds: float | None = None) -> None:
        console.note(f"making {step.folder}: {step.made_by.help}")
        makers.begin(step, seconds)

    def _take(self, made: Made) -> None:
        """A step has ended; a failure is shown and noted, also for every step that needs the folder."""
        step, error = made.step, made.error
        if error is None and not is_made(self.folder, step):
            error = RunFailed("nothing was made", step.folder, "this is a bug in nlpctl")
        if error is not None:
            console.warn(f"{step.name}: {error}")
            self._lose(step, error)
        else:
            console.note(f"{step.folder} made in {made.seconds:.0f} s")

    def _lose(self, step: Step, error: NlpctlError) -> None:
        """Note that a folder, and every step that needs it, cannot be made or not in time."""
        self.lost[step.folder] = error
        self.failures[step.folder] = (Failure(step.name, "", str(error)),)
        late = isinstance(error, TimeIsUp)
        kind, reason = (TimeIsUp, "was not finished in time") if late else (RunFailed, "could not be made")
        for each in self.steps.values():
            if step.folder in each.needs and each.folder not in self.lost:
                self._lose(each, kind(f"needs {step.folder}, which {reason}"))
                if each.name == step.name:  # the export of a network
                    del self.failures[each.folder]

    def _score(self, scorer: Scorer, folder: str) -> None:
        here = self.folder / folder
        try:
            scored = scorer.score(here)
        except NlpctlError as error:  # the folder was damaged after it was made
            console.warn(f"{here.name}: {error}")
            self.failures[folder] = (Failure(here.name, "", str(error)),)
            return
        # stored scores name the old path if the folder was moved since
        self.rows[folder] = tuple(dataclasses.replace(row, folder=str(here)) for row in scored.rows)
        for row in self.rows[folder]:
            console.note(line(row, self.reference, self.metric))
            if useless_reason(self.recipe.task, self.reference.report) is None:  # else no candidate can be of use
                warn_of_useless(self.recipe.task, {"dev": row.report}, row.name)
        self.failures[folder] = scored.failures

    def _field(self) -> Field:
        """The rows of the last round."""
        rows = self._table()
        allowed = [row for row in rows if within(row, self.reference, self.metric, self.aim)]
        return field_of(rows, self.reference, allowed)

    def _table(self) -> tuple[Row, ...]:
        return tuple(row for rows in self.rows.values() for row in rows)

    def _play_last_round(self, scorer: Scorer) -> None:
        """Time the best rows in turns, unless that was done or there is no time for it."""
        field, left = self._field(), self.clock.left()
        stored = scorer.stored_round(field)
        if stored is not None or len(field.rows) < 2:
            self.last = stored
            return
        seconds = field.seconds(scorer.timing.rows)
        if left is not None and left - AT_THE_END * self.reference.seconds < seconds:
            console.note(
                f"no time for the last round, which would take about {told(seconds)}: speeds are of single comparisons "
                "with the uncompressed network; run the same command with a longer --budget"
            )
            self.last = None  # an earlier one, of other rows, would be mixed with single comparisons
            return
        try:
            self.last = scorer.last_round(field)
        except NlpctlError as error:
            console.warn(f"the last round: {error}")

    def _tell_untried(self, options: Sequence[Option], left: float | None) -> None:
        for option in options:
            reason = f"not tried: it would take about {told(option.seconds)}, and {told(max(0.0, left))} were left"
            made = [self.smaller[step.folder] for step in option.missing if step.folder in self.smaller]
            reason = "; ".join([reason, *made])
            self.failures[option.step.folder] = (Failure(option.step.name, "", reason),)
        if options:
            names = ", ".join(option.step.name for option in options)
            need = f"{options[0].step.name} would take about {told(options[0].seconds)}"
            console.note(f"no time for {names}: {need}; run the same command with a longer --budget to continue")

    def _unmade(self) -> Iterator[Failure]:
        """The candidates of which nothing is known yet, for the reports of a command that may be interrupted."""
        for folder, step in self.steps.items():
            known = folder in self.rows or folder in self.failures or folder in self.lost
            if step.scored and not known:
                yield Failure(step.name, "", UNMADE)

    def _on_test(self, scorer: Scorer, best: Row) -> TestScore | None:
        """Score the best on test. A failure on test keeps the table."""
        try:
            return scorer.on_test(best)
        except NlpctlError as error:
            console.warn(f"{best.name} on test: {error}")
            self.failures["test"] = (Failure(best.candidate, f"{best.way} on test", str(error)),)
            return None

    def _settle(self, scorer: Scorer | None) -> CompressResult:
        """Write best/ and the reports from the results so far; with `scorer`, score the best on test too."""
        rows = self._table()
        paces = paces_of(rows, self.reference, self.recipe.inference.min_agreement, self.last)
        best = select(rows, self.reference, self.metric, self.aim, paces)
        if best.name != self.kept:
            with writing(self.folder, FREE_SPACE):
                write_best(best, self.folder / BEST)
            self.kept = best.name
        test = None if scorer is None else self._on_test(scorer, best)
        result = CompressResult(
            folder=self.folder,
            rows=rows,
            failures=(*(each for failures in self.failures.values() for each in failures), *self._unmade()),
            metric=self.metric,
            aim=self.aim,
            reference=self.reference,
            best=best,
            test=test,
            paces=paces,
        )
        with writing(self.folder, FREE_SPACE):
            write_reports(result, self.source, self.recipe.task)
        return result


def changes(recipe: Recipe, form: Step) -> str:
    """The keys that a smaller form changes, and where their values were set; "" if its name tells all."""
    before = flat(recipe_values(recipe, everything=True))
    told = []
    for key, value in form.settings:
        old = before.get(key)
        told.append(f"{recipe.where(key)}: {value:g}" + ("" if old is None else f" in place of {old:g}"))
    return f", with {'; '.join(told)}" if told else ""


def is_made(folder: Path, step: Step) -> bool:
    """Whether the folder of `step` is complete."""
    if not step.is_network:
        return (folder / step.folder).is_dir()
    return RunDirectory(folder / step.folder).is_finished


@contextlib.contextmanager
def _stop_told() -> Iterator[None]:
    """Confirm Ctrl-C at once, since processes need some time to end."""
    try:
        yield
    except KeyboardInterrupt:
        console.note("stopping")
        raise


@contextlib.contextmanager
def _taken(folder: Path, overwrite: bool, plan: CompressionPlan) -> Iterator[None]:
    """Lock `folder` for this command and remove leftovers of a killed one."""
    with writing(folder, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
    lock = take_lock(folder)
    if lock is None:
        raise UserError("another command is writing to this folder", where=str(folder), hint="wait for it, or stop it")
    try:
        with writing(folder, ELSEWHERE):
            if overwrite:
                for name in (BEST, SCORES, CANDIDATES, EXPORTS, NETWORKS):  # complete networks need no more training
                    remove_dir(folder / name)
                for file in (folder / TIMES, *folder.glob("worker-*.log")):  # a log is only added to
                    file.unlink(missing_ok=True)
            for path in (folder / NETWORKS).glob("*/manifest.json"):
                if not has_learned(path.parent):  # checkpoints may come from other settings
                    remove_dir(path.parent)
            write_plan(folder, plan)
            for name in (".", NETWORKS, EXPORTS, CANDIDATES, SCORES):
                remove_leftovers(folder / name)
        yield
    finally:
        lock.release()
