"""`nlpctl compress`: compressed candidates of a trained model, each scored in its engine, and the best of them.

The story: `compress` works out which candidates are asked for, refuses what cannot work, and takes the output folder.
`_make_and_choose` has the uncompressed network exported and scored, since everything is compared with it. Then
`_Compression.run` scores what is there, makes and scores what is missing, times the best in turns, and chooses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import fmean

from nlpctl import console
from nlpctl.compress.costs import (
    FINALISTS_PER_FOLDER,
    SAFETY,
    SCORED_PER_FOLDER,
    TIMES,
    Clock,
    Costs,
    format_seconds,
    read_times,
    row_counter,
    trained_rows,
    write_times,
)
from nlpctl.compress.plan import (
    CompressionPlan,
    CompressRequest,
    carried_over,
    has_learned,
    is_made,
    parse_strategy,
    write_plan,
)
from nlpctl.compress.refusals import (
    refuse_before_paddle,
    refuse_graphs,
    refuse_with_paddle,
    takes_fewer_words,
    warn_unread,
)
from nlpctl.compress.report import write_reports
from nlpctl.compress.result import SCORES, CompressResult, format_row
from nlpctl.compress.schedule import CandidateOrder, MissingCandidate, StepSchedule
from nlpctl.compress.scorer import Scorer
from nlpctl.compress.scores import CandidateScore, Failure, TestScore
from nlpctl.compress.selection import Objective, holds, is_given_by, select, within, write_best
from nlpctl.compress.steps import FREE_SPACE, StepPool, StepResult, TimeIsUp, worker_log
from nlpctl.compress.timing import (
    Finalists,
    LastRound,
    Timing,
    choose_finalists,
    relative_speeds,
    turns_of_a_row,
    usual_seconds,
)
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.recipe_of import with_settings, with_student
from nlpctl.config.schema import Recipe, parse_budget
from nlpctl.data.open_split import has_split
from nlpctl.errors import Interrupted, NlpctlError, RunFailed, UserError
from nlpctl.export.request import ELSEWHERE
from nlpctl.export.strategies import Step
from nlpctl.files import remove_dir, writing
from nlpctl.layout import BEST_EXPORT, CANDIDATES, EXPORTS, NETWORKS, UNMADE
from nlpctl.models.source import read_config, resolve_source
from nlpctl.names import counted
from nlpctl.runs.live_runs import ToldByEvents
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.process import ProcessSetup, one_process, set_up_process
from nlpctl.runtime.process_state import process_kept
from nlpctl.runtime.work_folder import WorkFolder
from nlpctl.runtime.worker_slots import ParallelConfig, WorkerSlots, worker_slots
from nlpctl.tasks.degenerate import degenerate_reason, warn_of_degenerate

KEPT = "best-before"  # the name, with a number, under which an earlier best/ is kept
AT_THE_END = 2  # scorings reserved in the budget: at the end the best and the uncompressed network are scored on test


def compress(
    recipe: Recipe,
    source: str,
    *,
    output: Path | None = None,
    overwrite: bool = False,
    parallel: ParallelConfig | None = None,
) -> CompressResult:
    """Make and score every candidate that recipe.compression names, from the model folder or export `source`.

    `parallel`: how many are made at a time, and where; by default one. Scored they are here, one by one.
    Folders and scores of an earlier call are reused. A failing candidate does not stop the others; the result tells
    when all of them failed. Device and random states of this process do not change. UserError, before anything is made,
    if a strategy cannot work with this model, task or machine; Interrupted after Ctrl-C: the same call continues.
    """
    with process_kept():
        recipe = _by_epochs(with_student(recipe))
        budget = recipe.compression.budget
        clock = Clock(None if budget is None else parse_budget(budget))
        chains = parse_strategy(recipe.compression.strategy)
        request = CompressRequest(recipe, source, chains, output, overwrite)
        refuse_before_paddle(request)
        # A command that trains nothing leaves existing networks as they are, and what plan.json says of them.
        plan = request.plan if overwrite or request.trains else carried_over(request.folder, request.plan)
        warn_unread(request)
        # The slots come before the process is set up: its threads are set by environment variables, which the processes
        # of the slots would inherit.
        with worker_slots(recipe.runtime, parallel or ParallelConfig(1, None), len(request.steps)) as slots:
            setup = set_up_process(recipe)
            refuse_with_paddle(request, setup)
            recipe = dataclasses.replace(recipe, runtime=one_process(recipe.runtime))
            request = dataclasses.replace(request, recipe=recipe)
            with _locked_folder(request.folder, overwrite, plan), sigterm_interrupts():
                try:
                    return _make_and_choose(request, setup, clock, slots)
                except KeyboardInterrupt:
                    hint = "run the same command again to continue"
                    raise Interrupted("interrupted", where=str(request.folder), hint=hint) from None


def _by_epochs(recipe: Recipe) -> Recipe:
    """`recipe` without a training.max_steps that would go before the epochs of a flag of this command."""
    epochs, steps = (recipe.set_by_flag(f"training.{name}") for name in ("num_train_epochs", "max_steps"))
    return with_settings(recipe, {"training.max_steps": -1}) if epochs and not steps else recipe


@contextlib.contextmanager
def _locked_folder(folder: Path, overwrite: bool, plan: CompressionPlan) -> Iterator[None]:
    """Lock `folder` for this command, remove leftovers of a killed one, and write plan.json."""
    with writing(folder, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
    work = WorkFolder(folder, (NETWORKS, EXPORTS, CANDIDATES, SCORES))
    with work.held(UserError("another command is writing to this folder", str(folder), "wait for it, or stop it")):
        with writing(folder, ELSEWHERE):
            if overwrite:
                # Networks last: as long as they are there, what else is left is known to be of a training.
                made = (folder / name for name in (BEST_EXPORT, SCORES, CANDIDATES, EXPORTS, NETWORKS, TIMES))
                work.remove((*made, *folder.glob("worker-*.log")))  # a log is only added to
            for path in (folder / NETWORKS).glob("*/manifest.json"):
                if not has_learned(path.parent):  # its start may come from other settings
                    remove_dir(path.parent)
            write_plan(folder, plan)
            work.remove_leftovers()
        yield


def _make_and_choose(request: CompressRequest, setup: ProcessSetup, clock: Clock, slots: WorkerSlots) -> CompressResult:
    """Open what makes steps and what scores them, for the uncompressed network first; `_Compression.run` goes on."""
    recipe, folder, steps = request.recipe, request.folder, request.steps
    section, original, begun = recipe.compression, next(iter(steps.values())), _count_made(folder, steps)
    with (
        slots.process_factory(folder) as make,
        StepPool(recipe, request.source, folder, slots, make) as pool,
        # Until the uncompressed network is scored nobody knows how long anything takes.
        console.progress(_pieces(steps.values()), "compress", "steps", begun=begun, left=lambda done: None) as bar,
    ):
        if pool.logs:
            several = counted(pool.size, "steps")
            console.note(f"{several} at a time; they write to {worker_log(folder, 0)} and so on")
        if not is_made(folder, original):
            _begin(pool, original)
        count_rows = row_counter(recipe)
        missing = {step.made_by for step in steps.values() if not is_made(folder, step)}
        rows_read = trained_rows(recipe, missing, count_rows)  # reads all of train, while the export is made
        exported = pool.wait(lambda: bar.advance(0)) if pool.running else None
        if exported is not None and (error := _report_end(folder, exported)) is not None:
            raise error
        refused = refuse_graphs(request)
        timing = Timing(batch_sizes=section.batch_sizes)
        bar.advance(_count_made(folder, steps) - bar.done)
        with Scorer(recipe, setup, folder / original.folder, folder / SCORES, timing) as scorer, _stop_noted():
            reference = dataclasses.replace(scorer.reference(), folder=str(folder / original.folder))
            warn_of_degenerate(recipe.task, {"dev": reference.report}, reference.name)
            if section.sure is not None and reference.drops is None:
                message = f"{scorer.metric.name} cannot be resampled, so nothing says how sure its loss is"
                raise UserError(message, recipe.where("compression.sure"), "leave it out")
            if scorer.metric.own and abs(reference.score) > 1:
                console.warn("compression.evaluate gives more than 1: @[max-drop] counts in points of 0.01")
            costs = Costs(
                speed=reference.speed(max(section.batch_sizes)).samples_per_second,
                rows_read=rows_read,
                scoring=reference.seconds,
                turns=turns_of_a_row(reference, timing.rows),
                measured=read_times(folder),
                slowdown=slots.slowdown,
            )
            if exported is not None:
                costs.learn(original, exported.seconds)
            compression = _Compression(request, clock, pool, scorer, reference, costs, count_rows, bar)
            for name, error in refused.items():
                console.warn(f"{steps[name].name}: {error}")
                compression.lose(steps[name], error)
            return compression.run()


@contextlib.contextmanager
def _stop_noted() -> Iterator[None]:
    """Confirm Ctrl-C at once, since processes need some time to end."""
    try:
        yield
    except KeyboardInterrupt:
        console.note("stopping")
        raise


class _Compression:
    """The table of one command, and what it is made by.

    `reference`: the row of the uncompressed network in fp32. `costs`: the expected seconds of the steps. `count_rows`:
    returns the number of training rows. `bar`: shows how far it is.
    """

    def __init__(
        self,
        request: CompressRequest,
        clock: Clock,
        pool: StepPool,
        scorer: Scorer,
        reference: CandidateScore,
        costs: Costs,
        count_rows: Callable[[], int],
        bar: console.Progress,
    ):
        recipe, source, self.folder = request.recipe, request.source, request.folder
        self.recipe, self.source, self.chains, self.clock = recipe, source, request.chains, clock
        self.pool, self.scorer, self.metric = pool, scorer, scorer.metric
        self.reference, self.costs, self.count_rows = reference, costs, count_rows
        section = recipe.compression
        self.objective = Objective(section.max_drop, section.target, section.batch_sizes, section.sure)
        self.steps = dict(request.steps)  # smaller forms are added, if the budget is too short
        self.prunable = takes_fewer_words(recipe, source)
        # By folder of a step:
        self.rows: dict[str, tuple[CandidateScore, ...]] = {}  # of every candidate that is scored
        self.failures: dict[str, tuple[Failure, ...]] = {}  # for the report; "test" has that of the score on test
        self.lost: dict[str, NlpctlError] = {}  # what gave no row, or not in time, and needs no further try
        self.smaller: dict[str, str] = {}  # a sentence on what was made in its place within the budget
        self.last_round: LastRound | None = None
        self.best_written: str | None = None  # the row that this command has made best/ from
        self.told = ToldByEvents()
        self.phase: tuple[float, float] | None = None  # of a scoring or the last round: when it began, its seconds
        self.bar = bar
        bar.tell_left(lambda done: self.seconds_left())

    def run(self) -> CompressResult:
        """Score existing folders, then make the missing ones, the most promising first, within the budget."""
        for name in self.existing_folders():
            self.score(name)
        self.last_round = self.scorer.stored_round(self.finalists())
        self.choose_and_report()  # an interrupted command leaves the best so far, too
        self.make_missing()
        self.time_in_turns()
        return dataclasses.replace(self.choose_and_report(on_test=True), failed=self.failed())

    def failed(self) -> NlpctlError | None:
        """The first error, if nothing that was asked for could be made and scored; None: something was, or there was no
        time."""
        _, *others = self.steps.values()  # the first is the uncompressed network
        errors = [self.lost.get(step.folder) for step in others if step.scored]
        if not errors or any(error is None or isinstance(error, TimeIsUp) for error in errors):
            return None
        if any(chain.makes_nothing for chain in self.chains):
            return None  # bf16 is a way to run the uncompressed network, which is scored
        return next(error for folder, error in self.lost.items() if folder in self.steps)

    def existing_folders(self) -> list[str]:
        """The complete folders of the table, of earlier commands too; hidden ones are incomplete."""
        paths = [path for kind in (CANDIDATES, EXPORTS) for path in (self.folder / kind).glob("[!.]*") if path.is_dir()]
        return sorted(f"{path.parent.name}/{path.name}" for path in paths)

    def score(self, name: str) -> None:
        """Score the candidate in a folder in every engine, and add its rows to the table."""
        folder = self.folder / name
        try:
            with self.spending(self.to_score(self.steps[name]) if name in self.steps else 0.0):
                scored = self.scorer.score(folder)
        except NlpctlError as error:  # it was damaged after it was made, or no engine here runs it
            console.warn(f"{folder.name}: {error}")
            self.failures[name] = (Failure(folder.name, "", str(error)),)
            self.lost[name] = error
            return
        # stored scores name the old path if the folder was moved since
        self.rows[name] = tuple(dataclasses.replace(row, folder=str(folder)) for row in scored.rows)
        for row in self.rows[name]:
            console.note(format_row(row, self.reference, self.metric))
            if degenerate_reason(self.recipe.task, self.reference.report) is None:  # else no candidate can be of use
                warn_of_degenerate(self.recipe.task, {"dev": row.report}, row.name)
        self.failures[name] = scored.failures
        if not scored.rows:
            self.lost[name] = RunFailed("every engine failed with it", str(folder), "the messages above say why")
        self.tick()

    # -- how far it is -----------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed. A training that shows its progress itself has the log for itself."""
        if console.json_lines() or not self.pool.tells:
            wanted = {folder: step for folder, step in self.steps.items() if folder not in self.lost}
            done = _count_made(self.folder, wanted) + (self.last_round is not None)
            done += sum(step.scored and self.is_scored(step) for step in wanted.values())
            self.bar.total = _pieces(wanted.values())
            making = ", ".join(step.folder for step in self.pool.so_far())
            self.bar.advance(done - self.bar.done, f"making {making}" if making else None)

    def seconds_left(self) -> float:
        """Seconds until the end: of what is to be made, scored, timed in turns and scored on test."""
        wanted = [step for step in self.steps.values() if step.folder not in self.lost]
        so_far = self.pool.so_far()
        told = {step: self.told(self.folder / step.folder, time.time() - so_far[step]) for step in so_far}
        known = {step: left for step, left in told.items() if left is not None}
        missing = [step for step in wanted if not is_made(self.folder, step)]
        seconds = self.costs.left_to_make(missing, self.pool.size, so_far, known)
        scored = [step for step in wanted if step.scored]
        unscored = [step for step in scored if not self.is_scored(step)]
        seconds += sum(map(self.to_score, unscored))
        if self.last_round is None:
            timed = [step for step in scored if step in unscored or step.folder in self.rows]
            seconds += usual_seconds(lambda rounds: sum(self.turns(step, rounds) for step in timed))
        if has_split(self.recipe.data, "test"):
            seconds += AT_THE_END * self.seconds_of_a_row()
        if self.phase is not None:
            begun, expected = self.phase
            seconds -= min(expected, time.monotonic() - begun)
        limit = self.clock.left()
        return max(0.0, seconds if limit is None else min(limit, seconds))

    def is_scored(self, step: Step) -> bool:
        """Whether a folder has been scored, or could not be."""
        return step.folder in self.rows or step.folder in self.failures

    def seconds_of_a_row(self) -> float:
        """Seconds to score a folder in an engine and precision, in the mean of those that were."""
        return fmean(row.seconds for row in self.table() or (self.reference,))

    def to_score(self, step: Step) -> float:
        """Seconds to score a folder, an export in as many engines and precisions as the first one."""
        first = self.rows.get(next(iter(self.steps)))
        ways = len(first) if first and step.kind == EXPORTS else SCORED_PER_FOLDER[step.kind]
        return ways * self.seconds_of_a_row()

    def turns(self, step: Step, rounds: int) -> float:
        """Seconds of a folder in a last round of so many rounds; one that is not scored is taken to be as slow as those
        that are."""
        rows, samples = self.rows.get(step.folder) or self.table() or (self.reference,), self.scorer.timing.rows
        return FINALISTS_PER_FOLDER[step.kind] * fmean(turns_of_a_row(row, samples, rounds) for row in rows)

    @contextlib.contextmanager
    def spending(self, seconds: float) -> Iterator[None]:
        """Inside the context something is going on that is expected to take so many seconds."""
        self.phase = time.monotonic(), seconds
        self.tick()
        try:
            yield
        finally:
            self.phase = None

    def table(self) -> tuple[CandidateScore, ...]:
        return tuple(row for rows in self.rows.values() for row in rows)

    def finalists(self) -> Finalists:
        """The rows that take part in the last round."""
        rows = self.table()
        allowed = [row for row in rows if within(row, self.reference, self.metric, self.objective)]
        return choose_finalists(rows, self.reference, allowed)

    # -- make what is missing ----------------------------------------------------------------

    def make_missing(self) -> None:
        """Make what is missing, as many steps at a time as there are processes.

        A candidate may miss several steps, such as training, export, quantising; a process goes through them one after
        the other. What is made is scored while nothing is being made, since scoring times.
        """
        costs = self.costs
        order = CandidateOrder(self.steps, self.reference, self.metric, self.objective, costs)
        schedule = StepSchedule(self.pool.size, costs)
        while True:
            if not self.pool.running:
                for step in schedule.take_unscored():
                    self.score(step.folder)
                    self.choose_and_report()
            # Seconds that the end of the command needs, of which the last round depends on the table.
            reserve = AT_THE_END * costs.scoring + self.finalists().seconds(self.scorer.timing.rows)
            candidates = self.begin_steps(order, schedule, reserve)
            if not self.pool.running:
                left = self.clock.left()
                if left is not None:  # without a budget no candidate is left
                    if self.add_smaller_form(order, candidates, left - reserve):
                        continue
                    self.note_untried(candidates, left)
                return
            result = self.pool.wait(self.tick)
            self.tick()
            error = _report_end(self.folder, result)
            if error is not None:
                self.lose(result.step, error)
                schedule.drop(result.step)
                continue
            schedule.done(result.step)
            if not result.resumed:  # the remaining part of a resumed training is no estimate of a full one
                costs.learn(result.step, result.seconds)
                with writing(self.folder, FREE_SPACE):
                    write_times(self.folder, costs.measured)

    def begin_steps(self, order: CandidateOrder, schedule: StepSchedule, reserve: float) -> list[MissingCandidate]:
        """Begin as many steps as there are idle processes, those of begun candidates first; returns the candidates that
        are left."""
        while True:
            made = {step.folder for step in self.steps.values() if is_made(self.folder, step)}
            candidates = order.missing(made, set(self.lost), self.table())
            step = schedule.next_step(candidates, self.clock.left(), reserve)
            if step is None:
                return candidates
            left = self.clock.left()
            limit = None if left is None else left - reserve - schedule.others_to_score(step)
            if limit is not None and limit <= 0:  # an earlier step took longer than expected
                schedule.drop(step)
                continue
            if step.trains:
                self.scorer.release()  # the memory of the uncompressed network's process
            after = max(0.0, self.seconds_left() - self.costs.making(step))
            _begin(self.pool, step, limit, after)
            self.tick()

    def lose(self, step: Step, error: NlpctlError) -> None:
        """Note that a folder, and every step that needs it, cannot be made or not in time."""
        self.lost[step.folder] = error
        self.failures[step.folder] = (Failure(step.name, "", str(error)),)
        late = isinstance(error, TimeIsUp)
        kind, reason = (TimeIsUp, "was not finished in time") if late else (RunFailed, "could not be made")
        for other in self.steps.values():
            if step.folder in other.needs and other.folder not in self.lost:
                self.lose(other, kind(f"needs {step.folder}, which {reason}"))
                if other.name == step.name:  # the export of a network, which has the network's name: one failure
                    del self.failures[other.folder]

    def add_smaller_form(self, order: CandidateOrder, candidates: Sequence[MissingCandidate], seconds: float) -> bool:
        """Add a smaller form of a step, which fits into `seconds`, to the steps, and say so; False if none does."""
        costs = order.costs
        source = resolve_source(self.source).folder
        config = {} if source is None else read_config(source)

        def smaller_forms(step: Step) -> list[Step]:
            """The largest first; before them the one that an earlier command began."""
            forms = list(step.made_by.smaller(step, self.recipe, config))
            for form in forms if step.trains else ():
                settings = with_settings(self.recipe, dict(form.settings))
                costs.rows_read[form.work] = form.made_by.rows_trained(settings, self.count_rows)
            begun = [form for form in forms if form.trains and has_learned(self.folder / form.folder)]
            return [*(form for form in begun if not is_made(self.folder, form)), *forms]

        chosen = order.add_smaller_form(candidates, smaller_forms, lambda form: is_made(self.folder, form), seconds)
        if chosen is None:
            return False
        step, form = chosen
        expected = format_seconds(SAFETY * costs.total(step))
        changes = describe_changes(self.recipe, form)
        left = f"{format_seconds(seconds)} are left for it"
        console.note(f"{step.name} would take about {expected}, and {left}: {form.name} in its place{changes}")
        self.smaller[step.folder] = f"{form.name} was made in its place{changes}"
        return True

    def note_untried(self, candidates: Sequence[MissingCandidate], left: float) -> None:
        """Say of the `candidates` that there is no time for them, but `left` seconds."""
        for candidate in candidates:
            expected, rest = format_seconds(candidate.seconds), format_seconds(max(0.0, left))
            reasons = [f"not tried: it would take about {expected}, and {rest} were left"]
            reasons += [self.smaller[step.folder] for step in candidate.missing if step.folder in self.smaller]
            self.failures[candidate.step.folder] = (Failure(candidate.step.name, "", "; ".join(reasons)),)
        if candidates:
            names = ", ".join(candidate.step.name for candidate in candidates)
            need = f"{candidates[0].step.name} would take about {format_seconds(candidates[0].seconds)}"
            console.note(f"no time for {names}: {need}; run the same command with a longer @[budget] to continue")

    # -- time, choose, report ----------------------------------------------------------------

    def time_in_turns(self) -> None:
        """Time the best rows in turns, unless that was done or there is no time for it."""
        finalists, left = self.finalists(), self.clock.left()
        stored = self.scorer.stored_round(finalists)
        # Of the uncompressed network alone no speed-up is told, so that its engines need no finer comparison.
        if stored is not None or len(finalists.rows) < 2 or (not finalists.others and self.failed() is not None):
            self.last_round = stored
            return
        samples = self.scorer.timing.rows
        seconds = finalists.seconds(samples)
        if left is not None and left - AT_THE_END * self.reference.seconds < seconds:
            console.note(
                f"no time for the last round, which would take about {format_seconds(seconds)}: speeds are of single "
                "comparisons with the uncompressed network; run the same command with a longer @[budget]"
            )
            self.last_round = None  # an earlier one, of other rows, would be mixed with single comparisons
            return
        try:
            with self.spending(usual_seconds(lambda rounds: finalists.seconds(samples, rounds))):
                self.last_round = self.scorer.last_round(finalists)
        except NlpctlError as error:
            console.warn(f"the last round: {error}")

    def choose_and_report(self, on_test: bool = False) -> CompressResult:
        """Write best/ and the reports from the results so far; `on_test`: score the best on test too."""
        rows = self.table()
        speeds = relative_speeds(rows, self.reference, self.recipe.inference.min_agreement, self.last_round)
        best = select(rows, self.reference, self.metric, self.objective, speeds)
        if best.name != self.best_written:
            self.write_best(best)
        test = self.score_on_test(best) if on_test else None
        failures = [failure for failures in self.failures.values() for failure in failures]
        # A command that is interrupted now leaves this report, which names what is not made yet.
        for folder, step in self.steps.items():
            if step.scored and not any(folder in known for known in (self.rows, self.failures, self.lost)):
                failures.append(Failure(step.name, "", UNMADE))
        result = CompressResult(
            folder=self.folder,
            rows=rows,
            failures=tuple(failures),
            metric=self.metric,
            objective=self.objective,
            reference=self.reference,
            best=best,
            test=test,
            speeds=speeds,
            task=self.recipe.task,
            prunable=self.prunable,
        )
        with writing(self.folder, FREE_SPACE):
            write_reports(result, self.source)
        return result

    def write_best(self, best: CandidateScore) -> None:
        """Write best/, unless it holds this row already.

        What an earlier command left there may be better than all of the table, if it is not in it: its candidate was
        deleted, or has no engine here. Or it was calibrated since. It stays beside best/, where the reports send.
        """
        folder = self.folder / BEST_EXPORT
        if self.best_written is None and folder.is_dir():
            if holds(folder, best):
                return
            if not is_given_by(folder, self.table()):
                kept = next(path for number in count(1) if not (path := self.folder / f"{KEPT}-{number}").exists())
                folder.rename(kept)
                console.warn(f"{folder} held what this table cannot give again: it is {kept} now")
        with writing(self.folder, FREE_SPACE):
            write_best(best, folder)
        self.best_written = best.name

    def score_on_test(self, best: CandidateScore) -> TestScore | None:
        """The score of the best on test, None without test data. A failure there keeps the table."""
        try:
            return self.scorer.on_test(best)
        except NlpctlError as error:
            console.warn(f"{best.name} on test: {error}")
            self.failures["test"] = (Failure(best.candidate, f"{best.choice_name} on test", str(error)),)
            return None


def _pieces(steps: Collection[Step]) -> int:
    """What is counted: the steps that are made, the folders that are scored, and the last round."""
    return len(steps) + sum(step.scored for step in steps) + 1


def _count_made(folder: Path, steps: Mapping[str, Step]) -> int:
    return sum(is_made(folder, step) for step in steps.values())


def _begin(pool: StepPool, step: Step, seconds: float | None = None, after: float | None = None) -> None:
    console.note(f"making {step.folder}: {step.made_by.help}")
    pool.begin(step, seconds, after)
    console.doing(f"making {step.folder}")


def _report_end(output: Path, result: StepResult) -> NlpctlError | None:
    """Say how a step has ended. Returns its error, also where it made nothing; None if its folder is there."""
    step, error = result.step, result.error
    if error is None and not is_made(output, step):
        error = RunFailed("nothing was made", step.folder, "this is a bug in nlpctl")
    if error is None:
        console.note(f"{step.folder} made in {result.seconds:.0f} s")
    else:
        console.warn(f"{step.name}: {error}")
    return error


def describe_changes(recipe: Recipe, form: Step) -> str:
    """The keys that a smaller form changes, in words, and where they were set; "" if its name tells all."""
    before = flat(recipe_values(recipe, everything=True))
    changes = []
    for key, value in form.settings:
        old = before.get(key)
        changes.append(f"{recipe.where(key)}: {value:g}" + ("" if old is None else f" in place of {old:g}"))
    return f", with {'; '.join(changes)}" if changes else ""
