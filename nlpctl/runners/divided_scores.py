"""`nlpctl eval --workers`: a model whose predictions for a labelled split are computed by several workers.

The command reads the split and makes the report, as for one process. The workers get runs of rows, as large as the
windows in which one process sorts by length. Each computes a share of the batches that one process would make of them,
so that batches and predictions are the same, bit by bit.
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
from nlpctl.names import counted
from nlpctl.runners.desks import desks
from nlpctl.runners.shard_worker import Desk, Order
from nlpctl.runners.side_by_side import Division
from nlpctl.runtime.crew import Crew, Share

if TYPE_CHECKING:
    from nlpctl.tasks.base import Task

PIECES = 2  # per worker at least: when one is lost, or slower than the others, less is left to do


@dataclass(frozen=True)
class DividedModel:
    """A trained model in several workers: what scoring needs of a `TrainedModel`."""

    task: Task
    engine: str
    _precision: str
    _crew: Crew

    @property
    def shares(self) -> tuple[Share, ...]:
        """What each worker has done."""
        return tuple(self._crew.shares)

    def predictions(self, examples: Sequence[Any], batch_size: int) -> list[list[Any]]:
        """As of `TrainedModel`."""
        from nlpctl.inference.pipeline import window_of

        size, workers, engine = window_of(batch_size), len(self._crew.shares), (self.engine, self._precision)
        starts = range(0, len(examples), size)
        count = min(-(-PIECES * workers // len(starts)), -(-min(size, len(examples)) // batch_size))
        pieces = [(start, slice(number, None, count)) for start in starts for number in range(count)]
        jobs = ((Desk.score, examples[start : start + size], share, engine) for start, share in pieces)
        found: list[list[Any]] = [[] for _ in examples]
        with console.progress(len(examples), "score") as bar:
            for job, predictions, worker in self._crew.results(jobs):
                first = pieces[job][0]
                rows = 0
                for place, parts in enumerate(predictions, first):
                    rows += bool(parts) and parts[0] is not None
                    found[place] = merged(found[place], parts)
                self._crew.shares[worker].rows += rows
                bar.advance(rows)
        return found


def merged(one: list[Any], two: list[Any]) -> list[Any]:
    """The predictions for the features of an example, each of which is in one of both lists, and None in the other."""
    return [b if a is None else a for a, b in zip(one, two, strict=True)] if one else two


@contextlib.contextmanager
def divided_model(
    recipe: Recipe, source: str, batch_size: int, division: Division, rows: Callable[[], int]
) -> Iterator[DividedModel]:
    """The model that `find_model` found, opened by all workers, in the engine that one of them chooses.

    `rows`: counts what is to be scored.
    """
    from nlpctl.tasks.base import make_task

    order = Order(recipe, source, (), None, batch_size, Path())
    with desks(order, division, lambda _: Path(os.devnull)) as crew:
        ((_, model, _),) = crew.results([(Desk.described, rows() // len(crew.shares))])
        for warning in model.warnings:
            console.warn(warning)
        console.note(f"model {source}: {counted(len(crew.shares), 'workers')}, {' '.join(model.engine)}")
        task = make_task(recipe, model.labels, model.thresholds, model.calibration)
        yield DividedModel(task, *model.engine, crew)
