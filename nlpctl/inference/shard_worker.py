"""What one worker of a divided prediction does: it reads parts of the input, and answers shards with a loaded model."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.data.passthrough_columns import PassthroughColumns
from nlpctl.data.predict_input import InputFile, PredictInput
from nlpctl.data.predict_shards import Counted, Range, Scanned, Shard, ShardRows, count_lines, scan
from nlpctl.data.readers.row import is_bad
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.inference.open_model import (
    answers_without_paddle,
    open_trained_model,
    runtime_to_answer,
    set_up_to_answer,
)
from nlpctl.inference.predict import PredictionRun
from nlpctl.inference.shard_folder import VECTORS, PartNote, ShardFolder
from nlpctl.models.calibration import Calibration
from nlpctl.runtime.worker import RemoteProcess, child_main, log_to
from nlpctl.runtime.worker_pool import WorkerPool, answering
from nlpctl.runtime.worker_slots import ParallelConfig, shares, worker_slots

if TYPE_CHECKING:
    from nlpctl.engines.pipeline import FeatureIndex
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import Predictions


_GRACE = 5.0  # seconds for a worker to end


@dataclass(frozen=True)
class ShardWorkerConfig:
    """What all workers are told. `model`: from `find_trained_model`."""

    recipe: Recipe
    model: str
    files: tuple[InputFile, ...]
    keep: PassthroughColumns | None
    batch_size: int
    output: Path
    truncated: bool = False  # whether answers say that their text was cut

    def on(self, runtime: RuntimeSection) -> ShardWorkerConfig:
        """The same for a worker with these cores or this card."""
        return dataclasses.replace(self, recipe=dataclasses.replace(self.recipe, runtime=runtime))


@dataclass(frozen=True)
class Described:
    """What reading rows and scoring their predictions needs of a trained model; `engine`: and its precision."""

    labels: LabelSet
    thresholds: tuple[float, ...] | None
    calibration: Calibration | None
    encoder: TextEncoder
    engine: tuple[str, str]
    warnings: list[str]


class ShardWorker:
    """A worker's state: the input, and the model once it is needed. Its methods are the jobs."""

    def __init__(self, order: ShardWorkerConfig, log: Path | None):
        """`log`: where standard error goes from the opening of the model on; None: where it goes now."""
        self._order, self._log = order, log
        self._source = PredictInput(task_rows(order.recipe.task, order.recipe.data), order.files)
        self._model: TrainedModel | None = None

    def count(self, part: Range) -> Counted:
        return count_lines(self._order.files[part.file], part)

    def unpack(self, number: int) -> None:
        """Write the unpacked copy of a file of the input."""
        ShardFolder(self._order.output).keep_copy(number, self._order.files[number].unpack())

    def scan(self, part: Range) -> Scanned:
        return scan(self._source, part, self._order.keep)

    def engine(self, rows: int) -> tuple[str, str, list[str]]:
        """The engine and precision that the recipe gives for `rows` rows here, and what is to be warned of."""
        with console.for_a_program() as warnings:
            model = self._opened(None, rows)
        return model.predictor.engine, model.predictor.precision, warnings

    def described(self, rows: int) -> Described:
        """The model, opened as `engine` does; and what is to be warned of."""
        engine, precision, warnings = self.engine(rows)
        model = self._opened(None, rows)
        task = model.task
        return Described(
            task.labels, task.thresholds, task.calibration, model.encoder, (engine, precision), warnings
        )

    def lengths(self, examples: Sequence[Any], engine: tuple[str, str]) -> list[list[int]]:
        """As of `TrainedModel`."""
        return self._opened(engine, None).lengths(examples)

    def score(
        self, examples: Sequence[Any], chosen: Sequence[FeatureIndex] | None, engine: tuple[str, str]
    ) -> Predictions:
        """The predictions for labelled examples of one chunk; `chosen`: as of `TrainedModel`."""
        return self._opened(engine, None).predictions(examples, self._order.batch_size, chosen)

    def answer(self, shard: Shard, engine: tuple[str, str]) -> PartNote:
        """Answer a shard and write its part. UserError for a bad row where data.on_bad_row is "error"."""
        order = self._order
        model = self._opened(engine, None)
        rows = ShardRows(self._source, shard)
        work = PredictionRun(order.recipe, model, rows, order.keep, order.batch_size, False, order.truncated)
        return ShardFolder(order.output).write(shard, _texts(work))

    def embed(self, shard: Shard, engine: tuple[str, str]) -> PartNote:
        """As `answer`, for the vectors of texts: float32, row after row."""
        from nlpctl.inference.embed import embedded

        order, rows = self._order, ShardRows(self._source, shard)
        chunks = embedded(order.recipe, self._opened(engine, None), rows, order.batch_size)
        pieces = ((vectors.tobytes(), sum(map(is_bad, rows)), truncated) for rows, vectors, truncated in chunks)
        return ShardFolder(order.output).write(shard, pieces, VECTORS)

    def schema(self, number: int) -> str:
        """The schema of a finished part (inference/parquet_parts.py)."""
        from nlpctl.inference.parquet_parts import schema_of

        return schema_of(ShardFolder(self._order.output).answers(number))

    def to_parquet(self, number: int, schema: str) -> PartNote:
        """A finished part, written as Parquet."""
        from nlpctl.inference.parquet_parts import write_part

        folder = ShardFolder(self._order.output)
        answers = folder.answers(number)
        return folder.rewritten(number, ".parquet", lambda stream: write_part(stream, answers, schema))

    def _opened(self, engine: tuple[str, str] | None, rows: int | None) -> TrainedModel:
        """The model, opened the first time; `engine`: and its precision, for all workers the same."""
        if self._model is None:
            if self._log is not None:
                log_to(self._log)
            recipe, source = self._order.recipe, self._order.model
            if engine is not None:
                chosen: dict[str, Any] = {"engine": engine[0], "precision": engine[1]}  # values that the recipe allows
                recipe = dataclasses.replace(recipe, inference=dataclasses.replace(recipe.inference, **chosen))
            setup = set_up_to_answer(recipe, source)
            self._model = open_trained_model(recipe, setup, source, self._order.batch_size, rows)
        return self._model


def _texts(work: PredictionRun) -> Iterator[tuple[bytes, int, int]]:
    for chunk in work.answered_chunks(0):
        if chunk.error is not None:
            raise chunk.error
        yield chunk.lines.encode(), chunk.bad, chunk.truncated


def open_shard_worker(config: ShardWorkerConfig, log: Path | None) -> Callable[[Any], Any]:
    """Runs in the process of a worker: how it does its jobs. `log`: as for `ShardWorker`."""
    child_main()
    return answering(ShardWorker(config, log))


@contextlib.contextmanager
def open_pool(config: ShardWorkerConfig, parallel: ParallelConfig, log: Callable[[int], Path]) -> Iterator[WorkerPool]:
    """Workers with a ShardWorker each, on this machine or the nodes of a cluster, where the same folders are mounted.

    `log`: the file that worker i of this machine writes to once it opens the model.
    """
    runtime = config.recipe.runtime  # on a cluster each node finds out what it can do
    if parallel.cluster is None:
        runtime = runtime_to_answer(config.recipe, config.model)
    by_paddle = not answers_without_paddle(config.recipe, config.model)
    with (
        worker_slots(runtime, parallel, None, needs_paddle=by_paddle) as slots,
        slots.process_factory() as new_process,
    ):
        count = len(slots.runtimes)
        # Also of a single one: what keeps this command from using the device is an error before anything begins.
        runtimes = slots.runtimes if slots.elsewhere else shares(runtime, count, needs_paddle=by_paddle)

        def make(number: int) -> RemoteProcess:
            own_log = None if slots.elsewhere else log(number)
            return new_process(open_shard_worker, config.on(runtimes[number]), own_log, grace=_GRACE)

        with WorkerPool(make, count) as pool:
            yield pool
