"""`nlpctl bench`: how fast models and exports answer here, in every engine, precision, thread count and batch size."""

from __future__ import annotations

import dataclasses
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError, UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.inference.open_model import find_model, set_up_to_answer
from nlpctl.inference.timed_process import (
    LoadReport,
    TimedModel,
    TimedProcess,
    TimedRows,
    conditions_table,
    timing_conditions,
)
from nlpctl.models.export_folder import read_checked_manifest
from nlpctl.models.source import ModelSource, resolve_source, weights_file
from nlpctl.report.language import later, say, say_each
from nlpctl.report.model import MB, Figure, Number, Report, Section, Table, format_ms, format_times
from nlpctl.report.page import html_page
from nlpctl.report.plots import bars, short_number
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.machine import physical_cores
from nlpctl.runtime.process import ProcessSetup
from nlpctl.spelling import spelled

if TYPE_CHECKING:
    from nlpctl.engines.choice import Choice

UNSTEADY = 1.25  # a larger ratio of the fastest to the slowest round is said


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
    1024 x 1024 bytes. `doubt`: why "auto" would not take it, as a predicate (engines/choice.py); None: it may.
    """

    model: str
    engine: str
    threads: int
    load_seconds: float
    peak_mb: float
    size_mb: float
    speeds: tuple[Speed, ...]
    doubt: str | None = None

    def samples_per_second(self, size: int) -> float:
        """Of the engine alone, in batches of `size`."""
        return next(speed.engine.samples_per_second for speed in self.speeds if speed.batch_size == size)


@dataclass(frozen=True)
class BenchResult:
    """The timed candidates, the failed ones (candidate, reason), and the conditions."""

    timed: tuple[Timed, ...]
    failed: tuple[tuple[str, str], ...]
    conditions: dict[str, Any]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The timed sizes, in the order of the command."""
        return tuple(speed.batch_size for speed in self.timed[0].speeds)

    @property
    def models(self) -> tuple[BenchResult, ...]:
        """The part of each model, in the order of the command."""
        by_model: defaultdict[str, list[Timed]] = defaultdict(list)
        for each in self.timed:
            by_model[each.model].append(each)
        return tuple(dataclasses.replace(self, timed=tuple(timed)) for timed in by_model.values())

    def fastest(self, size: int) -> Timed:
        """The fastest candidate in batches of `size`, of those without doubt where there are any."""
        sound = [each for each in self.timed if each.doubt is None] or self.timed
        return max(sound, key=lambda each: each.samples_per_second(size))

    def to_json(self) -> dict[str, Any]:
        """All fields, and `fastest` by batch size."""
        fastest = {str(size): self.fastest(size) for size in self.batch_sizes}
        named = {
            size: {"model": each.model, "engine": each.engine, "threads": each.threads}
            for size, each in fastest.items()
        }
        return {**dataclasses.asdict(self), "fastest": named}


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
        _take_turns(running, plan)
        timed = tuple(each.result(plan) for each in running if each.attempt(each.ask_memory))
        origin = next((each.opened.origin for each in running if each.failure is None), "")
    failed = [(each.subject.candidate.name, each.failure) for each in running if each.failure is not None]
    if not timed:
        raise failed[0][1]
    return BenchResult(timed, tuple((name, str(error)) for name, error in failed), _conditions(plan, origin))


def _take_turns(running: Sequence[_Running], plan: Plan) -> None:
    """Time all candidates in alternating rounds, the first of which warms up and does not count."""
    turns = [(each, size) for size in plan.batch_sizes for each in running]
    took = [0.0] * len(turns)  # seconds in the last round

    def left(done: int) -> float | None:
        rounds, turn = divmod(done, len(turns))
        if rounds < 2:  # the warm-up says nothing: a pass of Paddle's takes ten times as long in it, others do not
            return None
        return (plan.rounds - rounds) * sum(took) + sum(took[turn:])

    with console.progress((plan.rounds + 1) * len(turns), "bench", "timings", left=left) as bar:
        for round in range(plan.rounds + 1):
            for turn, (each, size) in enumerate(turns):
                begun = bar.now()
                each.attempt(partial(each.time, size, plan.texts.length is None, round > 0))
                took[turn] = bar.now() - begun
                bar.advance(about=f"round {round} of {plan.rounds}" if round else "warming up")


def _conditions(plan: Plan, origin: str) -> dict[str, Any]:
    texts = plan.texts
    return {
        **timing_conditions(),
        "rows": origin,
        "length": later("as the rows are") if texts.length is None else texts.length,
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
            text = max(size, opened.rows) / median(self.text[size]) if size in self.text else None
            speeds.append(Speed(size, figures(self.engine[size], size), text))
        return Timed(
            self.subject.model,
            "dygraph fp32" if choice is None else choice.name,
            self.subject.threads,
            opened.load_seconds,
            self.peak_mb,
            self.subject.size_mb,
            tuple(speeds),
            self.subject.doubt,
        )


def figures(rounds: Sequence[Sequence[float]], size: int) -> Figures:
    """`rounds`: seconds of every batch, round by round; `size`: rows of each batch."""
    speeds = [size / fmean(seconds) for seconds in rounds]
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
    doubt: str | None


def _subjects(recipe: Recipe, plan: Plan) -> Iterator[_Subject]:
    """Every way to run the model of a recipe, with every number of threads."""
    source = resolve_source(find_model(recipe))
    place = source.name if source.folder is None else str(source.folder)
    model = place
    if source.folder is not None and source.folder.is_relative_to(Path.cwd()):
        model = str(source.folder.relative_to(Path.cwd()))
    ways = list(_ways(source, recipe))
    for threads in plan.threads or (recipe.runtime.threads or physical_cores(),):
        own = dataclasses.replace(recipe, runtime=dataclasses.replace(recipe.runtime, threads=threads))
        for choice, files, doubt in ways:
            name = f"{model}, {'dygraph' if choice is None else choice.name}, {threads} thread{'s' * (threads > 1)}"
            size = sum(file.stat().st_size for file in files) / MB
            yield _Subject(TimedModel(name, place, own, choice), model, threads, size, doubt)


def _ways(source: ModelSource, recipe: Recipe) -> Iterator[tuple[Choice | None, list[Path], str | None]]:
    """The engines and precisions that recipe.inference allows for a model, with the files that each reads, and why
    "auto" would not take it."""
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
        assert file is not None  # find_model refuses a folder without weights
        yield None, [file], None
        return
    manifest = read_checked_manifest(folder)  # find_model has compared the files and the recipe
    setup = _set_up(recipe, str(folder))
    from nlpctl.engines.choice import doubt, is_chosen, runnable_here

    allowed = [
        choice
        for choice in runnable_here(manifest, setup)
        if inference.engine in ("auto", choice.engine) and inference.precision in ("auto", choice.precision)
    ]
    if not allowed:
        hint = "leave out @[engine] and @[precision] to time whatever runs here"
        raise UserError("this machine cannot run the export that way", str(folder), hint)
    for choice in allowed:
        reason = None if is_chosen(choice, manifest) else doubt(choice, manifest, inference)
        yield choice, [folder / name for name in choice.graph.files], reason


def _set_up(recipe: Recipe, source: str) -> ProcessSetup:
    """Of this process, which times nothing. Thread counts differ between candidates, and a process has only one."""
    recipe = dataclasses.replace(recipe, runtime=dataclasses.replace(recipe.runtime, threads=None))
    return set_up_to_answer(recipe, source)


def _fetched(name: str, recipe: Recipe) -> Path:
    """The weights file of a model of PaddleNLP's hub, downloaded if it is not on this machine."""
    _set_up(recipe, name)
    from nlpctl.models.paddlenlp_hub import fetch

    return fetch(name).weights_file


# -- what is told first -----------------------------------------------------------------------------------------------


def answer(result: BenchResult) -> str:
    """Which way to take of each model, and how fast it is. Of several models the fastest is told, not advised: another
    one may answer better."""
    models = result.models
    if len(models) == 1:
        return say("Take {}.", _fastest_told(result))
    told = [say("Of {} take {}.", each.timed[0].model, _fastest_told(each)) for each in models]
    return "\n".join([*told, say("The fastest: {}.", _fastest_told(result))])


def _fastest_told(result: BenchResult) -> str:
    """The fastest candidate at each batch size, its speed, and that against the one that was named first."""
    sizes = sorted(result.batch_sizes, reverse=True)
    size_by_way: dict[str, list[int]] = {}
    for size in sizes:
        size_by_way.setdefault(_short_name(result.fastest(size), result), []).append(size)
    return say("; ").join(_gain(result, way, of_way) for way, of_way in size_by_way.items())


def _gain(result: BenchResult, way: str, sizes: Sequence[int]) -> str:
    """The speeds of a candidate, and how many times as fast it is as the first one."""
    best, first = result.fastest(sizes[0]), result.timed[0]
    speeds = say(" and ").join(f"{format_speed(best, size)} {speed_unit(size)}" for size in sizes)
    if best == first:
        return say("{}: {}", way, speeds)
    ratios = [best.samples_per_second(size) / first.samples_per_second(size) for size in sizes]
    times = say("times| and ").join(map(format_times, ratios))
    return say("{}: {}, {} times as fast as {}", way, speeds, times, _short_name(first, result))


def format_speed(each: Timed, size: int) -> str:
    """The speed of a row in the unit of `speed_unit`: both are of the median round, so that they agree."""
    speed = each.samples_per_second(size)
    return format_ms(1000 / speed) if size == 1 else f"{speed:,.0f}"


def speed_unit(size: int) -> str:
    """A single sample is waited for, batches are counted. A sample is a row, or a window of a long one."""
    return say("ms for a single sample") if size == 1 else say("samples/s in batches of {}", size)


def remarks(result: BenchResult) -> list[str]:
    """What is faster but doubted, how to ask for what is taken, and what makes the figures less certain."""
    size = max(result.batch_sizes)
    told = []
    exported = any(not each.engine.startswith("dygraph") for each in result.timed)
    for of_model in result.models:
        best = of_model.fastest(size)
        name, speed = _short_name(best, result), best.samples_per_second(size)
        for each in of_model.timed:
            times = each.samples_per_second(size) / speed
            if times > 1:
                faster = _short_name(each, result)
                told.append(say("{} is {:.2f} times as fast as {}, but {}.", faster, times, name, each.doubt))
        engine, _, rest = best.engine.partition(" ")
        if not exported:
            model = shlex.quote(best.model)
            told.append(say("An export is usually faster: nlpctl export {}, and time that folder.", model))
        elif engine != "dygraph":
            asked = spelled(f"@[engine={engine}] @[precision={rest.partition(' ')[0]}]")
            text = "auto takes what was the fastest when the export was timed; {} asks for {}."
            told.append(say(text, asked, name))
        ratio = max(each.engine.fastest / each.engine.slowest for each in best.speeds)
        if ratio > UNSTEADY:
            told.append(
                say(
                    "The rounds of {} differ by {:.1f} times, as on a busy machine: repeat this once it is idle, or "
                    "with more {}.",
                    name,
                    ratio,
                    spelled("@[rounds=N]"),
                )
            )
    told += [say("{} was not timed: {}", name, reason) for name, reason in result.failed]
    return told


def short_table(result: BenchResult) -> Table:
    """A row per candidate, the fastest first; one speed per batch size."""
    rows = [
        [
            ("! " if each.doubt else "") + each.model,
            each.engine,
            each.threads,
            *(Number(format_speed(each, size)) for size in result.batch_sizes),
            Number(f"{each.peak_mb:,.0f}"),
            Number(f"{each.size_mb:,.1f}"),
        ]
        for each in sorted(result.timed, key=lambda each: -each.samples_per_second(max(result.batch_sizes)))
    ]
    speeds = map(speed_unit, result.batch_sizes)
    return Table([*say_each("model", "engine", "threads"), *speeds, *say_each("memory MB", "disk MB")], rows)


OF_SPEEDS = later(
    "Speeds are of the engine alone, of the median round. A sample is a row, or a window of a row that is cut into "
    "several. !: auto would not take it. Nothing is scored here: nlpctl eval and nlpctl compress do."
)


def details_table(result: BenchResult) -> Table:
    """A row per candidate and batch size with everything that was measured."""
    rows = []
    for each in result.timed:
        for speed in each.speeds:
            found, text = speed.engine, speed.text_samples_per_second
            rows.append(
                [
                    each.model,
                    each.engine,
                    each.threads,
                    speed.batch_size,
                    Number(f"{found.samples_per_second:,.1f}"),
                    Number(say("{:,.1f} to {:,.1f}", found.slowest, found.fastest)),
                    *map(Number, _latencies(speed)),
                    None if text is None else Number(f"{text:,.1f}"),
                    Number(f"{each.load_seconds:.2f}"),
                ]
            )
    heads = say_each("model", "engine", "threads", "batch", "samples/s", "range")
    heads += say_each("mean ms", "p50 ms", "p90 ms", "p99 ms", "from text (own rounds)", "load s")
    return Table(heads, rows)


OF_DETAILS = later(
    "Samples/s and mean: the median round; range: the slowest and the fastest. p50, p90, p99: of the batches of all "
    "rounds; a mean well above p50 is of a few slow batches. From text: rows/s with reading, tokenising and "
    "answering, in rounds of its own, which on a busy machine may be the quieter ones."
)


def _latencies(speed: Speed) -> list[str]:
    """Of a batch, in ms: the mean of the median round, and p50, p90, p99."""
    found = speed.engine
    mean = 1000 * speed.batch_size / found.samples_per_second
    return [format_ms(value) for value in (mean, found.p50_ms, found.p90_ms, found.p99_ms)]


# -- the page ---------------------------------------------------------------------------------------------------------


def write_page(result: BenchResult, file: Path) -> None:
    """The result as one HTML page that works offline. UserError if it cannot be written."""
    with writing(file, "name another file: @[html=FILE]"):
        write_text_atomic(file, bench_page(result))


def bench_page(result: BenchResult) -> str:
    """The text of the page: speed at each batch size as bars, latency, memory and size as tables."""
    sections = [
        Section(say("What to take"), [answer(result), short_table(result), say(OF_SPEEDS), *remarks(result)]),
        *[Section(say("Batch size {}", size), [_bars(result, size)]) for size in result.batch_sizes],
        Section(say("Everything that was measured"), [details_table(result), say(OF_DETAILS)]),
        Section(say("Conditions"), [conditions_table(result.conditions)]),
    ]
    lead = say("Candidates were timed in alternating rounds, each in its own process.")
    return html_page(Report(say("How fast models answer"), lead, sections))


def _bars(result: BenchResult, size: int) -> Figure:
    """The speeds in batches of `size`, the fastest first. Labels begin with the engine: a long one is cut."""
    timed = sorted(result.timed, key=lambda each: -each.samples_per_second(size))
    names = [say(", ").join(filter(None, reversed(_name_parts(each, result)))) for each in timed]
    speeds = [each.samples_per_second(size) for each in timed]
    title, unit = say("samples per second, batch size {}", size), say("samples/s")
    series = {say("engine alone"): speeds}
    return Figure(bars(names, series, title, value_format=lambda speed: f"{short_number(speed)} {unit}"))


def _short_name(each: Timed, result: BenchResult) -> str:
    """"MODEL in ENGINE, N threads"."""
    model, way = _name_parts(each, result)
    return say("engine|{} in {}", model, way) if model else way


def _name_parts(each: Timed, result: BenchResult) -> tuple[str, str]:
    """The model of a candidate and how it is run; model and threads only if they differ between candidates, else ""."""
    models, threads = {other.model for other in result.timed}, {other.threads for other in result.timed}
    way = say("{}, {} threads", each.engine, each.threads) if len(threads) > 1 else each.engine
    return (each.model if len(models) > 1 else ""), way
