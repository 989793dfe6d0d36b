"""One process per candidate of a benchmark or a compression, in which it is timed (`timed`).

So memory is measured per candidate, threads are set before Paddle starts, and a crashing engine does not stop others.
modeltools/bench.py and compress/timing.py have the processes take turns, so that other load affects all alike.
"""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import NlpctlError
from nlpctl.inference.open_model import set_up_to_answer
from nlpctl.models.export_folder import read_manifest
from nlpctl.report.language import Later, say, say_each
from nlpctl.report.model import Table, format_moment
from nlpctl.runtime.machine import cpu_info, physical_cores
from nlpctl.runtime.process import ProcessSetup, configure_paddle, set_up_process
from nlpctl.runtime.versions import engine_versions
from nlpctl.runtime.worker import Worker, listen_for_interrupts

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.data.batches.collate import Batch
    from nlpctl.engines.choice import Choice
    from nlpctl.engines.pipeline import Pipeline
    from nlpctl.engines.trained import TrainedModel

T = TypeVar("T")

STOP_SECONDS = 5.0  # seconds that a process gets to stop


@dataclass(frozen=True)
class TimedModel:
    """The model to time: the folder `source` run by dygraph, or an export run by the engine and precision of `choice`.

    The recipe gives device and threads.
    """

    name: str
    source: str
    recipe: Recipe
    choice: Choice | None


@dataclass(frozen=True)
class LoadReport:
    """What a process reports about its candidate. `load_seconds`: from the folder to the first answer, without
    importing Paddle; `origin`: source of the rows."""

    load_seconds: float
    rows: int
    origin: str


@dataclass(frozen=True)
class TimedRows:
    """The rows to time with: of `file`, or of the run, or synthetic; with `length`, all of that many tokens. Some are
    repeated, so that all batches are full: a batch of a few rows would pass for one of many."""

    file: Path | None
    rows: int
    length: int | None


class TimedProcess:
    """A candidate, opened in its own process. Use it as a context; the process idles until it gets a request."""

    def __init__(self, candidate: TimedModel, texts: TimedRows, batch_sizes: tuple[int, ...]):
        self.candidate = candidate
        self._worker = Worker(_open_subject, candidate, texts, batch_sizes, grace=STOP_SECONDS, daemon=True)
        self._worker.start()
        self.opened: LoadReport | None = None
        self.failed = False  # the process has died

    def __enter__(self) -> TimedProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is not None:  # such as Ctrl-C: it may be in a pass of a minute, and has written nothing
            self._worker.send_signal(signal.SIGKILL)
        self._worker.end()

    def open(self) -> LoadReport:
        """Wait until the engine is ready. RunFailed, or the UserError of the other process, if it fails."""
        self.opened = self.ask(Subject.load_report)
        return self.opened

    def seconds(self, batch_size: int, at_least: float = 0.0) -> list[float]:
        """Seconds for each batch of engine inputs, in one pass over all of them; its mean over as many passes as take
        `at_least` seconds together."""
        return self.ask(Subject.seconds, batch_size, at_least)

    def text_seconds(self, batch_size: int) -> float:
        """Seconds for all rows, repeated up to one batch, from text to answers."""
        return self.ask(Subject.text_seconds, batch_size)

    def peak_mb(self) -> float:
        """Peak memory of the process so far, in MB of 1024 x 1024 bytes."""
        return self.ask(Subject.peak_mb)

    def outputs(self, batch_size: int) -> list[tuple[np.ndarray, ...]]:
        """The network's outputs for the rows, in their order, computed in batches of the given size."""
        return self.ask(Subject.outputs, batch_size)

    def ask(self, what: Callable[..., T], *arguments: Any) -> T:
        """The result of the module-level function `what`, called in the process with the Subject and the arguments."""
        name, hint = self.candidate.name, "out of memory? try it alone: nlpctl predict"
        try:
            return self._worker.ask((what, arguments), name, hint)
        except NlpctlError:
            self.failed = True
            self._worker.end()
            raise


def _open_subject(
    candidate: TimedModel, texts: TimedRows, batch_sizes: tuple[int, ...]
) -> Callable[[tuple[Callable[..., Any], Any]], Any]:
    """Runs in the process: open the engine; returns a function that calls functions with the Subject."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # output of libraries must not mix with the benchmark's
    listen_for_interrupts()
    subject = _open(candidate, texts, batch_sizes)
    return lambda asked: asked[0](subject, *asked[1])


@dataclass(frozen=True)
class Subject:
    """The opened model with its inputs for timing."""

    recipe: Recipe
    model: TrainedModel
    pipeline: Pipeline
    examples: tuple[Any, ...]
    batches: Mapping[int, list[Batch]]
    report: LoadReport

    def load_report(self) -> LoadReport:
        return self.report

    def seconds(self, batch_size: int, at_least: float) -> list[float]:
        return timed(self.pipeline.run, self.batches[batch_size], at_least)

    def text_seconds(self, batch_size: int) -> float:
        examples = list(islice(cycle(self.examples), max(batch_size, len(self.examples))))
        started = time.perf_counter()
        for _ in self.pipeline.stream([examples], batch_size, self.answered):
            pass
        return time.perf_counter() - started

    def peak_mb(self) -> float:
        return peak_mb()

    def outputs(self, batch_size: int) -> list[tuple[np.ndarray, ...]]:
        from nlpctl.engines.parity import batches_of

        batches = batches_of(self.model.task, self.model.encoder, self.examples, batch_size)
        return [self.model.predictor.outputs(batch) for batch in batches]

    def answered(self, rows: list[Any], predictions: list[list[Any]]) -> list[Any]:
        """The answers as `nlpctl predict` would write them."""
        return self.pipeline.task.answers(rows, predictions)


def timed(run: Callable[[T], object], batches: Sequence[T], at_least: float = 0.0) -> list[float]:
    """Seconds that each batch takes, in order: the means of as many passes as take `at_least` seconds together."""
    passes: list[list[float]] = []
    while not passes or sum(map(sum, passes)) < at_least:
        seconds = []
        for batch in batches:
            started = time.perf_counter()
            run(batch)
            seconds.append(time.perf_counter() - started)
        passes.append(seconds)
    return [fmean(each) for each in zip(*passes, strict=True)]


def timing_conditions() -> dict[str, Any]:
    """The current conditions that speeds depend on: processor, load, package versions."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": cpu_info().model or platform.processor(),
        "cores": physical_cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **engine_versions(),
    }


def conditions_table(conditions: Mapping[str, Any]) -> Table:
    """Such conditions for a page."""
    rows = []
    for name, value in conditions.items():
        title = say("conditions|rows" if name == "rows" else name)
        told = format_moment(value) if name == "date" else say(value) if isinstance(value, Later) else str(value)
        rows.append([title, told])
    return Table(say_each("what", "value"), rows)


def peak_mb() -> float:
    """Peak memory of this process, in MB of 1024 x 1024 bytes.

    Not getrusage's ru_maxrss, which starts from the parent's memory at the time of the fork.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _open(candidate: TimedModel, texts: TimedRows, batch_sizes: tuple[int, ...]) -> Subject:
    recipe = candidate.recipe
    # Imports must not count as loading time, nor what answering does without as memory: PaddleNLP in an export, and
    # Paddle in one that ONNX Runtime answers.
    if candidate.choice is None:
        setup = set_up_process(recipe)
    else:
        setup = set_up_to_answer(recipe, candidate.source)
        if candidate.choice.engine != "onnxruntime":
            configure_paddle(setup, recipe.training.seed)

    from nlpctl.data.sample_rows import rows_to_compare
    from nlpctl.engines.parity import resized
    from nlpctl.engines.pipeline import prediction_pipeline

    started = time.perf_counter()
    model = _model(candidate, setup, max(batch_sizes))
    loaded = time.perf_counter() - started
    task, encoder = model.task, model.encoder
    readers = task_rows(recipe.task, recipe.data)
    sample = rows_to_compare(readers, texts.file, encoder.tokenizer, texts.rows, masked=task.masks_inputs)
    pipeline = prediction_pipeline(task, encoder, model.predictor)
    batches = {size: [full(batch, size) for batch in pipeline.batches(sample.examples, size)] for size in batch_sizes}
    if texts.length is not None:
        batches = {size: [resized(batch, texts.length, encoder) for batch in batches[size]] for size in batch_sizes}
    started = time.perf_counter()
    # A first batch, of the shortest rows, belongs to loading: engines prepare their kernels with it.
    pipeline.run(batches[batch_sizes[0]][-1])
    loaded += time.perf_counter() - started
    opened = LoadReport(loaded, len(sample.examples), sample.origin)
    return Subject(recipe, model, pipeline, sample.examples, batches, opened)


def full(batch: Batch, size: int) -> Batch:
    """The batch with its rows repeated in turn until there are `size`."""
    import numpy as np

    return {name: np.resize(array, (size, *array.shape[1:])) for name, array in batch.items()}


def _model(candidate: TimedModel, setup: ProcessSetup, batch_size: int) -> TrainedModel:
    from nlpctl.engines.choice import open_choice
    from nlpctl.engines.trained import TrainedModel, open_network, refuse_precision
    from nlpctl.tasks.base import task_and_encoder

    if candidate.choice is None:
        refuse_precision(candidate.recipe, setup)
        return open_network(candidate.recipe, setup, candidate.source)
    recipe, folder = candidate.recipe, Path(candidate.source)
    task, encoder = task_and_encoder(folder, recipe)
    tensorrt = recipe_of(folder) if recipe.inference.tensorrt else None
    predictor = open_choice(folder, read_manifest(folder), candidate.choice, setup, batch_size, tensorrt=tensorrt)
    if task.calibration is not None:
        task = task.calibrated(task.calibration.for_engine(candidate.choice.name))
    return TrainedModel(task, encoder, predictor)
