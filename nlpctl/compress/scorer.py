"""Score and time compressed exports in every engine and precision, next to the uncompressed network.

Every combination runs in its own process. The reference, the uncompressed network in fp32, stays open and is timed in
alternating rounds with it. Results are stored, and reused until an input of the measurement changes (`score_key`).
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.checksums import sha256_of, sha256_of_text
from nlpctl.compress.plan import read_made
from nlpctl.compress.scores import (
    USER_SCORE,
    CandidateScore,
    Failure,
    Metric,
    Scored,
    StoredRow,
    StoredTestScore,
    TestScore,
    Timed,
    agreement,
    metric_of,
    score_file,
    stored_under,
)
from nlpctl.compress.timing import (
    Finalists,
    LastRound,
    Timing,
    is_complete,
    read_last_round,
    time_against_reference,
    time_last_round,
)
from nlpctl.compress.user_code import Rows, user_scores
from nlpctl.config.paths import dataset_files, files_beside_rows
from nlpctl.config.recipe_of import answering_like, recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.config.user_code import module_file
from nlpctl.data.open_split import files_of, has_split, open_split
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import groups_of, read_labelled_split
from nlpctl.errors import NlpctlError, UserError
from nlpctl.extras import is_installed
from nlpctl.files import remove_leftovers
from nlpctl.inference.timed_process import Subject, TimedModel, TimedProcess, TimedRows
from nlpctl.models.export_folder import read_checked_manifest
from nlpctl.report.model import MB
from nlpctl.runtime.machine import physical_cores
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.calibration import recalibrated
from nlpctl.tasks.intervals import difference_quantiles, full_report
from nlpctl.tasks.tallies import Tallies

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.engines.choice import Choice
    from nlpctl.models.engine_speeds import Conditions

    Outputs = Sequence[tuple[np.ndarray, ...]]  # one entry per batch

QUANTILES = 200  # steps of CandidateScore.drops
LAST_ROUND = "last-round.json"
REFERENCES = (("paddle", "fp32"), ("onnxruntime", "fp32"))  # the first of these graphs in the uncompressed export
BUSY = 1.0  # load above the number of cores; the previous candidate may still count as 1


class Scorer:
    """Scores export folders one after the other. Use it as a context: it holds the reference's process.

    The recipe gives data, device and threads; each folder reads text and answers as it says itself, since best/ will.
    Results are cached as files in `scores`.
    """

    def __init__(self, recipe: Recipe, setup: ProcessSetup, original: Path, scores: Path, timing: Timing):
        """`original`: the export of the uncompressed network. UserError if it holds no fp32 graph that runs here."""
        self.recipe = recipe
        self.setup = setup
        self.original = original
        self.scores = scores
        self.timing = timing
        self.metric: Metric = metric_of(recipe)
        self._reference_choice = _reference_choice(original, setup)
        remove_leftovers(scores)
        self._stack = ExitStack()
        self._warned = False
        self._reference: _Opened | None = None
        self._recipes: dict[Path, Recipe] = {}  # by export

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.release()

    def score(self, folder: Path) -> Scored:
        """A row per engine and precision that can run the export `folder` here; a failure loses only its own row.

        UserError if the folder is not an export or is damaged, or if no engine here runs it.
        """
        choices = _choices(folder, self.setup)
        if not choices:
            raise _no_engine(folder, self.setup)
        rows, failures = [], []
        for choice in choices:
            try:
                rows.append(self._row(folder, choice))
            except NlpctlError as error:
                console.warn(f"{folder.name}, {choice.name}: {error}")
                failures.append(Failure(folder.name, choice.name, str(error)))
        return Scored(tuple(rows), tuple(failures))

    def reference(self) -> CandidateScore:
        """The row of the uncompressed network in fp32. RunFailed, or the UserError of compression.evaluate, if it
        cannot be scored: then no comparison is possible."""
        return self._row(self.original, self._reference_choice)

    def stored_round(self, finalists: Finalists) -> LastRound | None:
        """The stored last round of these rows; None if there is none, or not of all of them."""
        last = read_last_round(self._round_file, self._round_key(finalists))
        return last if is_complete(finalists, last) else None

    def last_round(self, finalists: Finalists) -> LastRound:
        """Time the rows in turns; an interrupted last round of the same rows is continued. RunFailed if the
        uncompressed network fails."""
        self.release()  # its process takes part like the others
        self._warn_of_load()
        key = self._round_key(finalists)
        stored = read_last_round(self._round_file, key)

        def open_process(row: CandidateScore) -> TimedProcess:
            return self._process(Path(row.folder), self._choice(row))

        return time_last_round(finalists, open_process, self._round_file, key, stored)

    def on_test(self, row: CandidateScore) -> TestScore | None:
        """The scores of `row` and of the reference on test; None if the recipe has no test data.

        RunFailed if an engine fails.
        """
        if not has_split(self.recipe.data, "test"):
            return None
        folder, choice = Path(row.folder), self._choice(row)
        file, key = score_file(self.scores, row.candidate, row.choice_name, "test"), self._key(folder, choice, "test")
        stored = stored_under(key, StoredTestScore, file)
        if stored is None:
            console.note(f"scoring {row.name} on test, next to the uncompressed network")
            console.doing(f"scoring {row.name} on test")
            stored = StoredTestScore(key, self._measure_on_test(folder, choice))
            stored.save(file)
        return stored.found

    def _measure_on_test(self, folder: Path, choice: Choice) -> TestScore:
        reference = self._open_reference().process.ask(split_score, "test")
        chosen = reference
        if not self._is_reference(folder, choice):
            with self._process(folder, choice) as process:
                process.open()
                chosen = process.ask(split_score, "test")
        return TestScore(
            rows=int(reference.report["rows"]),
            reference=self.metric.value(reference.report),
            chosen=self.metric.value(chosen.report),
            agreement=agreement(reference.decisions, chosen.decisions),
        )

    def release(self) -> None:
        """Close the reference's process to free its memory, e.g. before a training; it reopens when needed."""
        self._reference = None
        self._stack.close()

    def _row(self, folder: Path, choice: Choice) -> CandidateScore:
        """The cached row, or a new measurement."""
        file, key = score_file(self.scores, folder.name, choice.name), self._key(folder, choice, "dev")
        stored = stored_under(key, StoredRow, file)
        if stored is None:
            console.note(f"scoring {folder.name}, {choice.name}")
            console.doing(f"scoring {folder.name}, {choice.name}")
            self._warn_of_load()
            try:
                stored = StoredRow(key, self._measure(folder, choice))
            except BaseException:
                if self._reference is None or self._reference.process.failed:
                    self.release()  # the next measurement opens it again
                raise
            stored.save(file)
        return stored.found

    def _measure(self, folder: Path, choice: Choice) -> CandidateScore:
        started, timed = time.monotonic(), Timed.now()
        reference = self._open_reference()
        if self._is_reference(folder, choice):
            own, speeds = reference, time_against_reference(reference.process, reference.process, self.timing)
        else:
            with self._process(folder, choice) as process:
                process.open()
                speeds = time_against_reference(process, reference.process, self.timing)
                own = _measure_outputs(process, self.timing)
        return CandidateScore(
            candidate=folder.name,
            folder=str(folder),
            engine=choice.engine,
            precision=choice.precision,
            method=choice.graph.method,
            score=self.metric.value(own.score.report),
            report=own.score.report,
            difference=largest_difference(reference.outputs, own.outputs),
            agreement=agreement(reference.score.decisions, own.score.decisions),
            size_mb=sum((folder / name).stat().st_size for name in choice.graph.files) / MB,
            peak_mb=own.peak_mb,
            load_seconds=own.load_seconds,
            speeds=speeds,
            seconds=time.monotonic() - started,
            drops=self._drops(reference.score, own.score),
            calibration=own.score.calibration,
            embedding_mb=own.embedding_mb,
            timed=timed,
        )

    def _drops(self, reference: SplitScore, own: SplitScore) -> tuple[float, ...] | None:
        """The quantiles of CandidateScore.drops."""
        if self.metric.own or reference.tallies is None or own.tallies is None:
            return None
        shares = [step / QUANTILES for step in range(QUANTILES + 1)]
        quantiles = difference_quantiles(reference.tallies, own.tallies, self.metric.name, shares)
        return None if quantiles is None else tuple(sorted(self.metric.drop(each, 0.0) for each in quantiles.tolist()))

    def _open_reference(self) -> _Opened:
        if self._reference is None:
            process = self._stack.enter_context(self._process(self.original, self._reference_choice))
            process.open()
            for size in self.timing.batch_sizes:
                process.seconds(size)
            self._reference = _measure_outputs(process, self.timing)
        return self._reference

    def _warn_of_load(self) -> None:
        """Warn once if other load on the machine makes speeds unreliable."""
        load, cores = os.getloadavg()[0], physical_cores()
        if self._warned or load <= cores + BUSY:
            return
        self._warned = True
        console.warn(f"the machine is busy (load {load:.1f} on {cores} cores): speeds are less certain")

    def _process(self, folder: Path, choice: Choice) -> TimedProcess:
        texts = TimedRows(None, self.timing.rows, None)
        if folder not in self._recipes:
            self._recipes[folder] = answering_like(self.recipe, recipe_of(folder, named_by=self.recipe))
        candidate = TimedModel(f"{folder.name}, {choice.name}", str(folder), self._recipes[folder], choice)
        return TimedProcess(candidate, texts, self.timing.batch_sizes)

    def _is_reference(self, folder: Path, choice: Choice) -> bool:
        return folder.resolve() == self.original.resolve() and choice.name == self._reference_choice.name

    @property
    def _round_file(self) -> Path:
        return self.scores / LAST_ROUND

    def _round_key(self, finalists: Finalists) -> str:
        keys = {row.name: self._key(Path(row.folder), self._choice(row), "dev") for row in finalists.rows}
        return sha256_of_text(json.dumps(keys, sort_keys=True))

    def _choice(self, row: CandidateScore) -> Choice:
        """The way that a row was scored in."""
        return next(each for each in _choices(Path(row.folder), self.setup) if each.name == row.choice_name)

    def _key(self, folder: Path, choice: Choice, split: str) -> str:
        graphs = ((folder, choice), (self.original, self._reference_choice))
        # Older versions also timed batches of fewer rows.
        how = [asdict(self.metric), asdict(self.timing), "full batches"]
        return score_key(self.recipe, graphs, split, how, self._conditions)

    @functools.cached_property
    def _conditions(self) -> Conditions:
        from nlpctl.engines.speeds import conditions

        return conditions(self.setup)


@dataclass(frozen=True)
class _Opened:
    """An open candidate after timing, with its outputs for the rows."""

    process: TimedProcess
    load_seconds: float
    peak_mb: float
    outputs: Outputs
    score: SplitScore
    embedding_mb: float | None


def _measure_outputs(process: TimedProcess, timing: Timing) -> _Opened:
    peak_mb = process.peak_mb()  # measured before the dev rows are loaded, which would count as memory of the model
    outputs = process.outputs(max(timing.batch_sizes))
    assert process.opened is not None and process.candidate.choice is not None
    program = Path(process.candidate.source) / process.candidate.choice.graph.files[0]
    score, embedding_mb = process.ask(split_score, "dev"), process.ask(_embedding_mb, program)
    return _Opened(process, process.opened.load_seconds, peak_mb, outputs, score, embedding_mb)


def _embedding_mb(subject: Subject, program: Path) -> float | None:
    """What of a graph are large embedding tables; None without the package that reads ONNX. In the candidate's process,
    whose memory the reading may take."""
    if program.suffix == ".onnx" and not is_installed("onnx"):
        return None
    from nlpctl.graphs.embedding_size import embedding_bytes

    return embedding_bytes(program) / MB


def _choices(folder: Path, setup: ProcessSetup) -> list[Choice]:
    from nlpctl.engines.choice import runnable_here

    return runnable_here(read_made(folder), setup)


def _no_engine(folder: Path, setup: ProcessSetup) -> UserError:
    from nlpctl.engines.choice import all_choices, obstacle, this_machine

    first, machine = all_choices(read_checked_manifest(folder))[0], this_machine(setup)
    problem = obstacle(first.engine, first.precision, machine)
    assert problem is not None
    hint = "install what is missing, or run the same command on a machine that can"
    return UserError(f"no engine here runs it: {problem.message}", str(folder), hint)


def _reference_choice(original: Path, setup: ProcessSetup) -> Choice:
    choices = {(choice.engine, choice.precision): choice for choice in _choices(original, setup)}
    for pair in REFERENCES:
        if pair in choices:
            return choices[pair]
    hint = "export the model again: nlpctl export"
    raise UserError("holds no fp32 graph that runs here, to compare with", str(original), hint)


def largest_difference(expected: Outputs, given: Outputs) -> float | None:
    """The largest absolute difference; None if the shapes differ, e.g. with another tokenizer."""
    from nlpctl.engines.parity import output_difference

    pairs = [pair for one, other in zip(expected, given, strict=False) for pair in zip(one, other, strict=False)]
    if len(expected) != len(given) or any(one.shape != other.shape for one, other in pairs):
        return None
    return max(output_difference(one, other)[0] for one, other in pairs)


# -- the score of a candidate on labelled data, in the process that it runs in ---------------------


@dataclass(frozen=True)
class SplitScore:
    """The task's report on a labelled split, with what compression.evaluate says of it under that name; what was
    decided of each row: equal where two would answer alike; and what each row adds to the scores. `calibration`: one
    of its own, where the probabilities of the candidate are further off than those of the network."""

    report: dict[str, Any]
    decisions: tuple[str, ...]
    tallies: Tallies | None
    calibration: dict[str, Any] | None = None


def split_score(subject: Subject, split: str) -> SplitScore:
    """The score on a labelled split of the recipe's data."""
    recipe, task = subject.recipe, subject.model.task
    examples, _, _ = read_labelled_split(task_rows(recipe.task, recipe.data), split, task.labels)
    predictions = subject.model.predictions(examples, recipe.training.per_device_eval_batch_size)
    # A digest for each decision, since those of long tagged texts take much memory.
    decisions = tuple(sha256_of_text(repr(each))[:16] for each in task.decisions(examples, predictions))
    groups = groups_of(task_rows(recipe.task, recipe.data), split, task.labels, len(examples))
    fitted = recalibrated(task, examples, predictions, split) if split == "dev" else task
    report, tallies = full_report(fitted, examples, predictions, groups)
    if recipe.compression.evaluate is not None:
        report[USER_SCORE] = _user_scores(subject, split)
    own = None if fitted is task or fitted.calibration is None else fitted.calibration.to_json()
    return SplitScore(report, decisions, tallies, own)


def _user_scores(subject: Subject, split: str) -> dict[str, float]:
    """What the user's function makes of the good rows of the split and the answers to them."""
    recipe = subject.recipe
    readers, size = task_rows(recipe.task, recipe.data), recipe.training.per_device_eval_batch_size
    reader = ExampleReader(readers, subject.model.task.labels)
    rows = [row for row in open_split(readers, split) if not isinstance(row, BadRow)]
    good = [row.values for row in rows if not isinstance(reader.read(row), BadRow)]

    from nlpctl.engines.pipeline import CHUNK, chunks

    def predict(rows: Rows) -> list[dict[str, Any]]:
        examples = [readers.read(values, None) for values in rows]
        parts = subject.pipeline.stream(chunks(examples, max(CHUNK, size)), size, subject.answered)
        return [answer for part in parts for answer in part]

    return user_scores(recipe, predict, good)


# --------------------------------------------------------------------------------------------------
# The key of a stored score: all that the score of a compressed export depends on. If it changes, scoring repeats.


def score_key(
    recipe: Recipe, graphs: Iterable[tuple[Path, Choice]], split: str, how: Any, conditions: Conditions
) -> str:
    """A digest of the graphs (an export and how it is run), the rows of the split, the `conditions` of the machine.

    `how`: further settings of scoring, JSON-ready. Data files count by size and modification time.
    """
    files = [*map(Path, files_of(recipe.data, split)), *dataset_files(recipe)]
    files += [path for _, path in files_beside_rows(recipe)]
    size = recipe.training.per_device_eval_batch_size  # int8 rounds by the largest number of a batch
    parts = [
        [_sums(folder, choice) for folder, choice in graphs],
        [recipe.task, asdict(recipe.data), [_stamp(file) for file in files if file.is_file()]],
        *map(_function, (recipe.data.reader, *recipe.data.map, *recipe.data.filter)),
        [how, _function(recipe.compression.evaluate), size, recipe.inference.tensorrt],
        asdict(conditions),
    ]
    return sha256_of_text(json.dumps(parts, default=str))


def _sums(folder: Path, choice: Choice) -> Mapping[str, Any]:
    """Checksums of the graph and of every file that determines its inputs or the reading of its outputs."""
    manifest = read_checked_manifest(folder)
    others = {name for graph in manifest.graphs for name in graph.files} - set(choice.graph.files)
    return {"way": choice.name, **{name: value for name, value in manifest.sha256.items() if name not in others}}


def _function(name: str | None) -> list[str] | None:
    """A function of the user's own, with the checksum of its module's file."""
    file = None if name is None else module_file(name)
    return None if name is None else [name, "" if file is None else sha256_of(file)]


def _stamp(file: Path) -> tuple[str, int, int]:
    stat = file.stat()
    return str(file), stat.st_size, stat.st_mtime_ns
