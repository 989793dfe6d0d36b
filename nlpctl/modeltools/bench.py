"""`nlpctl bench`: how fast models and exports answer here, in every engine, precision, thread count and batch size."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError, UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.inference.open_model import set_up_to_answer
from nlpctl.inference.timed_process import LoadReport, TimedModel, TimedProcess, TimedRows, timing_conditions
from nlpctl.models.export_folder import read_checked_manifest
from nlpctl.models.find import check_export, find_trained_model
from nlpctl.models.source import ModelSource, resolve_source, weights_file
from nlpctl.report.model import BulletList, Figure, KeyFigures, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import bars
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.machine import physical_cores
from nlpctl.runtime.process import ProcessSetup

if TYPE_CHECKING:
    from nlpctl.engines.choice import Choice

MB = 1024 * 1024


@dataclass(frozen=True)
class Figures:
    """Speed of one candidate at one batch size.

    `samples_per_second` is the median over the rounds, `slowest` and `fastest` are the extremes; latencies are of
    batches, over all rounds, in milliseconds.
    """

    samples_per_second: float
    slowest: float
    fastest: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    rounds: int


@dataclass(frozen=True)
class Speed:
    """One candidate at one batch size. `text_samples_per_second`: from raw text to answers; None with fixed lengths."""

    batch_size: int
    engine: Figures
    text_samples_per_second: float | None


@dataclass(frozen=True)
class Timed:
    """One candidate; `engine` with its precision.

    `peak_mb`: of its process, with Paddle where its engine needs it. `size_mb`: its weights and graphs on disk. MB of
    1024 x 1024 bytes.
    """

    model: str
    engine: str
    threads: int
    load_seconds: float
    peak_mb: float
    size_mb: float
    speeds: tuple[Speed, ...]


@dataclass(frozen=True)
class BenchResult:
    """The timed candidates, the failed ones (candidate, reason), and the conditions."""

    timed: tuple[Timed, ...]
    failed: tuple[tuple[str, str], ...]
    conditions: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to time. `threads`: counts to try, () for the recipe's own. `rounds`: timed rounds after one warm-up."""

    texts: TimedRows
    batch_sizes: tuple[int, ...] = (1, 32)
    threads: tuple[int, ...] = ()
    rounds: int = 5


def bench(recipes: Sequence[Recipe], plan: Plan) -> BenchResult:
    """Time the trained models of the recipes, each in every engine and precision that its recipe.inference allows.

    All candidates are loaded first and timed in alternating rounds. A failing candidate gives a warning and does not
    stop the others; if all fail, the first error is raised. UserError if a model is missing or no engine can run it.
    """
    for recipe in recipes:
        if plan.texts.length is not None and plan.texts.length > recipe.data.max_seq_length:
            message = f"{plan.texts.length} tokens exceed data.max_seq_length ({recipe.data.max_seq_length})"
            hint = "use a lower @[length], or raise the limit: @[data.max_seq_length=N]"
            raise UserError(message, "@[length]", hint)
    subjects = [subject for recipe in recipes for subject in _subjects(recipe, plan)]
    with sigterm_interrupts(), ExitStack() as stack:
        running = []
        for subject in subjects:
            console.note(f"loading {subject.candidate.name}")
            process = stack.enter_context(TimedProcess(subject.candidate, plan.texts, plan.batch_sizes))
            running.append(_Running(subject, process))
            running[-1].attempt(process.open)
        progress = console.Progress("bench", plan.rounds + 1, "rounds")
        for round in range(plan.rounds + 1):  # round 0 warms up
            for size in plan.batch_sizes:
                for each in running:
                    each.attempt(partial(each.time, size, plan.texts.length is None, round > 0))
            progress.report(round + 1, _round_line(round, plan.rounds, progress.left(round + 1)))
        progress.finish()
        timed = tuple(each.result(plan) for each in running if each.attempt(each.ask_memory))
        origin = next((each.opened.origin for each in running if each.failure is None), "")
    failed = [(each.subject.candidate.name, each.failure) for each in running if each.failure is not None]
    if not timed:
        raise failed[0][1]
    return BenchResult(timed, tuple((name, str(error)) for name, error in failed), _conditions(plan, origin))


def _round_line(round: int, rounds: int, seconds: float | None) -> str:
    """What is done, the warm-up being round 0, and the `seconds` left."""
    done = f"round {round} of {rounds}" if round else "warmed up"
    left = math.ceil(seconds or 0)
    minutes, rest = divmod(left, 60)
    return f"{done}, about {minutes}:{rest:02d} left" if left else done


def _conditions(plan: Plan, origin: str) -> dict[str, Any]:
    texts = plan.texts
    return {
        **timing_conditions(),
        "rows": origin,
        "length": "as the rows are" if texts.length is None else texts.length,
        "rounds": plan.rounds,
    }


@dataclass
class _Running:
    """A candidate, its process and its times so far. `failure`: why it was dropped."""

    subject: _Subject
    process: TimedProcess
    engine: dict[int, list[list[float]]] = field(default_factory=lambda: defaultdict(list))  # batch size: rounds
    text: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    peak_mb: float = 0.0
    failure: NlpctlError | None = None

    def attempt(self, action: Callable[[], object]) -> bool:
        """Whether `action` succeeded; a candidate that failed before is skipped."""
        if self.failure is None:
            try:
                action()
            except NlpctlError as error:
                self.failure = error
                console.warn(f"{self.subject.candidate.name}: {error}")
        return self.failure is None

    @property
    def opened(self) -> LoadReport:
        """What the process told when it had loaded the model."""
        assert self.process.opened is not None  # it has not failed
        return self.process.opened

    def ask_memory(self) -> None:
        self.peak_mb = self.process.peak_mb()

    def time(self, batch_size: int, texts: bool, counted: bool) -> None:
        seconds = self.process.seconds(batch_size)
        text_seconds = self.process.text_seconds(batch_size) if texts else None
        if counted:
            self.engine[batch_size].append(seconds)
            if text_seconds is not None:
                self.text[batch_size].append(text_seconds)

    def result(self, plan: Plan) -> Timed:
        opened, choice = self.opened, self.subject.candidate.choice
        speeds = []
        for size in plan.batch_sizes:
            text = opened.rows / median(self.text[size]) if size in self.text else None
            speeds.append(Speed(size, figures(self.engine[size], opened.features), text))
        return Timed(
            self.subject.model,
            "dygraph fp32" if choice is None else choice.name,
            self.subject.threads,
            opened.load_seconds,
            self.peak_mb,
            self.subject.size_mb,
            tuple(speeds),
        )


def figures(rounds: Sequence[Sequence[float]], rows: int) -> Figures:
    """`rounds`: seconds of every batch, round by round; `rows`: total rows of a round's batches."""
    speeds = [rows / sum(seconds) for seconds in rounds]
    latencies = sorted(1000 * second for seconds in rounds for second in seconds)
    return Figures(
        median(speeds),
        min(speeds),
        max(speeds),
        percentile(latencies, 0.5),
        percentile(latencies, 0.9),
        percentile(latencies, 0.99),
        rounds=len(rounds),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the rising values that at least `share` of them do not exceed (nearest rank)."""
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


# -- what is timed ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subject:
    candidate: TimedModel
    model: str
    threads: int
    size_mb: float


def _subjects(recipe: Recipe, plan: Plan) -> Iterator[_Subject]:
    """Every way to run the model of a recipe, with every number of threads."""
    source = resolve_source(find_trained_model(recipe))
    place = source.name if source.folder is None else str(source.folder)
    model = place
    if source.folder is not None and source.folder.is_relative_to(Path.cwd()):
        model = str(source.folder.relative_to(Path.cwd()))
    ways = list(_ways(source, recipe))
    for threads in plan.threads or (recipe.runtime.threads or physical_cores(),):
        own = dataclasses.replace(recipe, runtime=dataclasses.replace(recipe.runtime, threads=threads))
        for choice, files in ways:
            name = f"{model}, {'dygraph' if choice is None else choice.name}, {threads} thread{'s' * (threads > 1)}"
            size = sum(file.stat().st_size for file in files) / MB
            yield _Subject(TimedModel(name, place, own, choice), model, threads, size)


def _ways(source: ModelSource, recipe: Recipe) -> Iterator[tuple[Choice | None, list[Path]]]:
    """The engines and precisions that recipe.inference allows for a model, with the files that each reads."""
    inference, folder = recipe.inference, source.folder
    if folder is None or source.kind != "export":
        if inference.engine not in ("auto", "dygraph"):
            hint = "export it first: nlpctl export; then time the export"
            where = source.name if folder is None else str(folder)
            raise UserError(f"a network is run by dygraph, not by {inference.engine}", where, hint)
        if folder is None:
            file: Path | None = _fetched(source.name, recipe)
        else:
            file = weights_file(folder)
        assert file is not None  # find_trained_model refuses a folder without weights
        yield None, [file]
        return
    manifest = read_checked_manifest(folder)  # _subjects has compared the files
    check_export(recipe, manifest)
    setup = _set_up(recipe, str(folder))
    from nlpctl.engines.choice import runnable_here

    allowed = [
        choice
        for choice in runnable_here(manifest, setup)
        if inference.engine in ("auto", choice.engine) and inference.precision in ("auto", choice.precision)
    ]
    if not allowed:
        hint = "leave out @[engine] and @[precision] to time whatever runs here"
        raise UserError("this machine cannot run the export that way", str(folder), hint)
    for choice in allowed:
        yield choice, [folder / name for name in choice.graph.files]


def _set_up(recipe: Recipe, source: str) -> ProcessSetup:
    """Of this process, which times nothing. Thread counts differ between candidates, and a process has only one."""
    recipe = dataclasses.replace(recipe, runtime=dataclasses.replace(recipe.runtime, threads=None))
    return set_up_to_answer(recipe, source)


def _fetched(name: str, recipe: Recipe) -> Path:
    """The weights file of a model of PaddleNLP's hub, downloaded if it is not on this machine."""
    _set_up(recipe, name)
    from nlpctl.models.paddlenlp_hub import fetch

    return fetch(name).weights_file


# -- the page ---------------------------------------------------------------------------------------------------------


def write_page(result: BenchResult, file: Path) -> None:
    """The result as one HTML page that works offline. UserError if it cannot be written."""
    with writing(file, "name another file: @[html=FILE]"):
        write_text_atomic(file, bench_page(result))


def bench_page(result: BenchResult) -> str:
    """The text of the page: speed at each batch size as bars, latency, memory and size as tables."""
    sizes = dict.fromkeys(speed.batch_size for each in result.timed for speed in each.speeds)
    failed = [f"{name} was not timed: {reason}" for name, reason in result.failed]
    sections = [
        Section("Summary", [KeyFigures(_fastest(result)), BulletList(failed)]),
        *[Section(f"Batch size {size}", list(_speeds(result, size))) for size in sizes],
        Section("Loading, memory and size", [_costs(result)]),
        Section("Conditions", [Table(["what", "value"], [[name, str(v)] for name, v in result.conditions.items()])]),
    ]
    lead = "Candidates were timed in alternating rounds, each in its own process."
    return html_page(Report("How fast models answer", lead, sections))


def _fastest(result: BenchResult) -> dict[str, str]:
    """The fastest candidate at each batch size."""
    fastest: dict[int, tuple[float, str]] = {}
    for each in result.timed:
        for speed in each.speeds:
            best = fastest.get(speed.batch_size)
            if best is None or speed.engine.samples_per_second > best[0]:
                fastest[speed.batch_size] = (speed.engine.samples_per_second, _short_name(each, result))
    return {f"samples/s, batch {size}: {name}": f"{speed:,.0f}" for size, (speed, name) in fastest.items()}


def _speeds(result: BenchResult, size: int) -> Iterator[Part]:
    timed = [(each, speed) for each in result.timed for speed in each.speeds if speed.batch_size == size]
    timed.sort(key=lambda pair: -pair[1].engine.samples_per_second)
    names = [_short_name(each, result) for each, _ in timed]
    series = {"engine": [speed.engine.samples_per_second for _, speed in timed]}
    from_text = [speed.text_samples_per_second for _, speed in timed if speed.text_samples_per_second is not None]
    if len(from_text) == len(timed):
        series["from text"] = from_text
    yield Figure(bars(names, series, f"samples per second, batch size {size}"))
    rows = [
        [name, round(s.samples_per_second, 1), f"{s.slowest:,.1f} to {s.fastest:,.1f}", s.p50_ms, s.p90_ms, s.p99_ms]
        for name, s in ((name, speed.engine) for name, (_, speed) in zip(names, timed, strict=True))
    ]
    yield Table(["candidate", "samples/s", "range", "p50 ms", "p90 ms", "p99 ms"], rows)


def _costs(result: BenchResult) -> Table:
    rows = [
        [_short_name(each, result), round(each.load_seconds, 2), round(each.peak_mb), round(each.size_mb, 1)]
        for each in result.timed
    ]
    return Table(["candidate", "load s", "peak MB", "disk MB"], rows)


def _short_name(each: Timed, result: BenchResult) -> str:
    """A short name of a candidate: model and threads appear only if they differ between candidates."""
    parts = [each.engine]
    if len({other.model for other in result.timed}) > 1:
        parts.insert(0, each.model)
    if len({other.threads for other in result.timed}) > 1:
        parts.append(f"{each.threads} threads")
    return ", ".join(parts)
