"""`nlpctl eval --workers`: a model whose predictions for a labelled split are computed by several workers.

The command reads the split and makes the report, as for one process. The workers get runs of rows, as large as the
chunks in which one process sorts by length. If there are fewer chunks than workers need, they first tell how long the
rows are; then each computes a share of the batches that one process would make of a chunk. So batches and predictions
are the same, bit by bit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.inference.shard_worker import ShardWorker, ShardWorkerConfig, open_pool
from nlpctl.names import counted
from nlpctl.runtime.worker_pool import WorkerPool, WorkerStats
from nlpctl.runtime.worker_slots import ParallelConfig

if TYPE_CHECKING:
    from nlpctl.data.text.encoder import TextEncoder
    from nlpctl.engines.pipeline import FeatureIndex
    from nlpctl.tasks.base import Predictions, Task

PIECES = 2  # per worker at least: when one is lost, or slower than the others, less is left to do


@dataclass(frozen=True)
class DividedModel:
    """A trained model in several workers: what scoring needs of a `TrainedModel`."""

    task: Task
    encoder: TextEncoder
    engine: str
    _precision: str
    _pool: WorkerPool

    @property
    def shares(self) -> tuple[WorkerStats, ...]:
        """What each worker has done."""
        return tuple(self._pool.stats)

    def predictions(
        self, examples: Sequence[Any], batch_size: int, done: Callable[[int], object] | None = None
    ) -> Predictions:
        """As of `TrainedModel`, but that `done` hears of pieces."""
        from nlpctl.engines.pipeline import chunk_of
        from nlpctl.tasks.base import Predictions

        size, workers = chunk_of(batch_size), len(self._pool.stats)
        starts = range(0, len(examples), size)
        count = min(-(-PIECES * workers // len(starts)), -(-min(size, len(examples)) // batch_size))
        chunks = [range(start, min(start + size, len(examples))) for start in starts]
        if count == 1:
            pieces = [_Piece(chunk, None) for chunk in chunks]
        else:
            pieces = self._cut(examples, chunks, batch_size, count)
        jobs = ((ShardWorker.score, [examples[i] for i in piece.rows], piece.chosen, self._engine) for piece in pieces)
        collected = Predictions([] for _ in examples)
        for job, predictions, worker in self._pool.results(jobs):
            rows = 0
            for place, parts in zip(pieces[job].rows, predictions, strict=True):
                rows += bool(parts) and parts[0] is not None
                collected[place] = merged(collected[place], parts)
            collected.truncated.update(pieces[job].rows[place] for place in predictions.truncated)
            self._pool.stats[worker].rows += rows
            if done is not None:
                done(rows)
        return collected

    @property
    def _engine(self) -> tuple[str, str]:
        return self.engine, self._precision

    def _cut(self, examples: Sequence[Any], chunks: Sequence[range], batch_size: int, count: int) -> list[_Piece]:
        """Pieces of each chunk, at most `count`, with batches of all lengths in each."""
        from nlpctl.engines.pipeline import by_length

        parts = [part for chunk in chunks for part in _parts(chunk, count)]
        jobs = ((ShardWorker.lengths, examples[part.start : part.stop], self._engine) for part in parts)
        lengths_by_job = {job: lengths for job, lengths, _ in self._pool.results(jobs)}
        lengths = [each for number in range(len(parts)) for each in lengths_by_job[number]]
        pieces = []
        for chunk in chunks:
            places = by_length(lengths[chunk.start : chunk.stop])
            batches = [places[start : start + batch_size] for start in range(0, len(places), batch_size)]
            for number in range(min(count, len(batches))):
                chosen = [place for batch in batches[number::count] for place in batch]
                owners = sorted({owner for owner, _ in chosen})
                local = {owner: i for i, owner in enumerate(owners)}
                rows = [chunk[owner] for owner in owners]
                pieces.append(_Piece(rows, [(local[owner], part) for owner, part in chosen]))
        return pieces


@dataclass(frozen=True)
class _Piece:
    """What a worker computes at a time: examples by their numbers; `chosen`: of one chunk, these of their features."""

    rows: Sequence[int]
    chosen: list[FeatureIndex] | None


def _parts(rows: range, count: int) -> list[range]:
    """`rows` in at most `count` runs of about equal length."""
    step = -(-len(rows) // count)
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def merged(one: list[Any], two: list[Any]) -> list[Any]:
    """The predictions for the features of an example, each of which is in one of both lists, and None in the other."""
    return [b if a is None else a for a, b in zip(one, two, strict=True)] if one else two


@contextlib.contextmanager
def divided_model(
    recipe: Recipe, source: str, batch_size: int, parallel: ParallelConfig, rows: Callable[[], int]
) -> Iterator[DividedModel]:
    """The model that `find_model` found, opened by all workers, in the engine that one of them chooses.

    `rows`: counts what is to be scored.
    """
    from nlpctl.tasks.base import trained_task

    order = ShardWorkerConfig(recipe, source, (), None, batch_size, Path())
    with open_pool(order, parallel, lambda _: Path(os.devnull)) as pool:
        ((_, model, _),) = pool.results([(ShardWorker.described, rows() // len(pool.stats))])
        for warning in model.warnings:
            console.warn(warning)
        engine, precision = model.engine
        console.note(f"model {source}: {counted(len(pool.stats), 'workers')}, {engine} {precision}")
        task = trained_task(recipe, model.labels, model.thresholds, model.calibration)
        yield DividedModel(task, model.encoder, engine, precision, pool)
