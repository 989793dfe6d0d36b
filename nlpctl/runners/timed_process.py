"""A process of its own per candidate of a benchmark or a compression: timed, and scored on labelled data.

So its memory is its own, its threads are set before Paddle starts, and an engine that dies costs nobody else.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.compression.plan.hooks import Rows, own_scores
from nlpctl.compression.plan.scores import OWN
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.data.examples import ExampleReader
from nlpctl.data.kinds import task_rows
from nlpctl.data.row import BadRow
from nlpctl.data.sources import open_split
from nlpctl.data.splits import read_labelled_split
from nlpctl.errors import NlpctlError, RunFailed
from nlpctl.models.export_folder import read_manifest
from nlpctl.runners.timing import timed
from nlpctl.runtime.child import listen_for_interrupts, undisturbed
from nlpctl.runtime.orphans import die_with_parent
from nlpctl.runtime.process import ProcessSetup, set_up_process

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.data.collate import Batch
    from nlpctl.inference.choice import Choice
    from nlpctl.inference.pipeline import Pipeline
    from nlpctl.inference.trained import TrainedModel

STOP_SECONDS = 5.0  # for a process that is told to end


@dataclass(frozen=True)
class Candidate:
    """What is timed: the model folder `source` run by dygraph, or an export in the way that `choice` says.

    The recipe names device and threads.
    """

    name: str
    source: str
    recipe: Recipe
    choice: Choice | None


@dataclass(frozen=True)
class Opened:
    """What a process found. `load_seconds`: from the folder to the first answer, without importing Paddle;
    `features`: what the rows become, more of them where a row is read in windows; `origin`: where they are from."""

    load_seconds: float
    rows: int
    features: int
    origin: str


@dataclass(frozen=True)
class Texts:
    """The rows to time with: of `file` (or of the run, or made up), or, where `length` is given, all so many tokens."""

    file: Path | None
    rows: int
    length: int | None


@dataclass(frozen=True)
class SplitScore:
    """The task's report on a labelled split, with what compression.evaluate says of it under that name; and what was
    decided of each row: equal where two would answer alike."""

    report: dict[str, Any]
    decisions: tuple[str, ...]


class TimedProcess:
    """A candidate, opened in a process of its own. Use it as a context; it idles until it is asked."""

    def __init__(self, candidate: Candidate, texts: Texts, batch_sizes: tuple[int, ...]):
        self.candidate = candidate
        context = multiprocessing.get_context("spawn")  # a fork would share what the parent has imported
        self._connection, child = context.Pipe()
        arguments = (child, candidate, texts, batch_sizes)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with undisturbed():
            self._process.start()
        child.close()
        self.opened: Opened | None = None
        self.failed = False  # it answers no more

    def __enter__(self) -> TimedProcess:
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()

    def open(self) -> Opened:
        """Wait until the engine is ready. RunFailed, or the UserError of the other process, where it is not."""
        self.opened = self._answer()
        return self.opened

    def seconds(self, batch_size: int) -> list[float]:
        """What each batch of the engine's input takes, once through all of them."""
        return self._asked("seconds", batch_size)

    def text_seconds(self, batch_size: int) -> float:
        """What all rows take from text to answers."""
        return self._asked("text_seconds", batch_size)

    def peak_mb(self) -> float:
        """The most memory that the process has had so far, in MB of 1024 x 1024 bytes."""
        return self._asked("peak_mb")

    def outputs(self, batch_size: int) -> list[tuple[np.ndarray, ...]]:
        """The network's outputs for the rows, in their order, so many at a time."""
        return self._asked("outputs", batch_size)

    def score(self, split: str) -> SplitScore:
        """The score on a labelled split of the recipe's data."""
        return self._asked("score", split)

    def _asked(self, what: str, *arguments: Any) -> Any:
        with contextlib.suppress(OSError):  # told below
            self._connection.send((what, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self.failed = True
            self._process.join(STOP_SECONDS)
            message = f"its process ended (exit {self._process.exitcode})"
            raise RunFailed(message, self.candidate.name, "out of memory? try it alone: nlpctl predict") from None
        if isinstance(answer, NlpctlError):
            self.failed = True
            raise answer
        return answer


def _serve(connection: Connection, candidate: Candidate, texts: Texts, batch_sizes: tuple[int, ...]) -> None:
    """The process: opens the engine, says so, and answers until None comes."""
    die_with_parent(multiprocessing.parent_process().pid)
    os.dup2(2, 1)  # what the user's own function prints is no result
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a library says belongs to no line of the benchmark
    try:
        listen_for_interrupts()
        opened, subject = _open(candidate, texts, batch_sizes)
        connection.send(opened)
        while (asked := connection.recv()) is not None:
            what, arguments = asked
            connection.send(getattr(subject, what)(*arguments))
    except NlpctlError as error:
        connection.send(error)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the parent is gone, or was interrupted with us
        return
    except Exception as error:  # an engine's own: the parent tells it beside the figures of the others
        connection.send(RunFailed(f"{type(error).__name__}: {error}", candidate.name))


@dataclass(frozen=True)
class _Subject:
    """The opened model with what it is timed on. Its methods are what can be asked for."""

    recipe: Recipe
    model: TrainedModel
    pipeline: Pipeline
    examples: tuple[Any, ...]
    batches: Mapping[int, list[Batch]]

    def seconds(self, batch_size: int) -> list[float]:
        return timed(self.pipeline.run, self.batches[batch_size])

    def text_seconds(self, batch_size: int) -> float:
        started = time.perf_counter()
        for _ in self.pipeline.stream([list(self.examples)], batch_size, self._answered):
            pass
        return time.perf_counter() - started

    def peak_mb(self) -> float:
        return peak_mb()

    def outputs(self, batch_size: int) -> list[tuple[np.ndarray, ...]]:
        from nlpctl.inference.parity import batches_of

        batches = batches_of(self.model.task, self.model.encoder, self.examples, batch_size)
        return [self.model.predictor.outputs(batch) for batch in batches]

    def score(self, split: str) -> SplitScore:
        recipe, task = self.recipe, self.model.task
        examples, _, _ = read_labelled_split(task_rows(recipe.task, recipe.data), split, task.labels)
        predictions = self.model.predictions(examples, recipe.training.per_device_eval_batch_size)
        decisions = tuple(_told(decision) for decision in task.decisions(examples, predictions))
        report = task.report(examples, predictions)
        if recipe.compression.evaluate is not None:
            report[OWN] = self._own_scores(split)
        return SplitScore(report, decisions)

    def _own_scores(self, split: str) -> dict[str, float]:
        """What the user's function makes of the good rows of the split and the answers to them."""
        recipe = self.recipe
        readers, size = task_rows(recipe.task, recipe.data), recipe.training.per_device_eval_batch_size
        reader = ExampleReader(readers, self.model.task.labels)
        good = [row for row in open_split(readers, split) if not isinstance(reader.read(row), BadRow)]

        from nlpctl.inference.pipeline import WINDOW, windows

        def predict(rows: Rows) -> list[dict[str, Any]]:
            examples = [readers.read(values, None) for values in rows]
            parts = self.pipeline.stream(windows(examples, max(WINDOW, size)), size, self._answered)
            return [answer for part in parts for answer in part]

        return own_scores(recipe, predict, [row.values for row in good])

    def _answered(self, rows: list[Any], predictions: list[list[Any]]) -> list[Any]:
        return self.pipeline.task.answers(rows, predictions)


def _told(decision: Any) -> str:
    """A decision as a text of some bytes: those of a long tagged text take many."""
    return hashlib.sha256(repr(decision).encode()).hexdigest()[:16]


def peak_mb() -> float:
    """The most memory that this process has had, in MB of 1024 x 1024 bytes.

    Not getrusage's ru_maxrss: that begins with what the parent had when it started us.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _open(candidate: Candidate, texts: Texts, batch_sizes: tuple[int, ...]) -> tuple[Opened, _Subject]:
    recipe = candidate.recipe
    setup = set_up_process(recipe)  # imports are no part of what loading takes

    from nlpctl.data.sample_rows import rows_to_compare
    from nlpctl.inference.parity import resized
    from nlpctl.inference.pipeline import answering

    started = time.perf_counter()
    model = _model(candidate, setup, max(batch_sizes))
    loaded = time.perf_counter() - started
    task, encoder = model.task, model.encoder
    readers = task_rows(recipe.task, recipe.data)
    found = rows_to_compare(readers, texts.file, encoder.tokenizer, texts.rows, masked=task.hides)
    pipeline = answering(task, encoder, model.predictor)
    batches = {size: list(pipeline.batches(found.examples, size)) for size in batch_sizes}
    if texts.length is not None:
        batches = {size: [resized(batch, texts.length, encoder) for batch in batches[size]] for size in batch_sizes}
    started = time.perf_counter()
    pipeline.run(batches[batch_sizes[0]][0])
    loaded += time.perf_counter() - started
    features = sum(len(batch["input_ids"]) for batch in batches[batch_sizes[0]])
    subject = _Subject(recipe, model, pipeline, found.examples, batches)
    return Opened(loaded, len(found.examples), features, found.origin), subject


def _model(candidate: Candidate, setup: ProcessSetup, batch_size: int) -> TrainedModel:
    from nlpctl.inference.auto import open_choice
    from nlpctl.inference.samples import read_description
    from nlpctl.inference.trained import TrainedModel, open_network

    if candidate.choice is None:
        return open_network(candidate.recipe, setup, candidate.source)
    recipe, folder = candidate.recipe, Path(candidate.source)
    task, encoder = read_description(folder, recipe)
    tensorrt = recipe_of(folder) if recipe.inference.tensorrt else None
    predictor = open_choice(folder, read_manifest(folder), candidate.choice, setup, batch_size, tensorrt=tensorrt)
    return TrainedModel(task, encoder, predictor)
