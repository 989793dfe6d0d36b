"""From examples to predictions: features, batches of similar length, an engine, and back in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from nlpctl.data.collate import raise_failure
from nlpctl.data.tokenizers import TextEncoder
from nlpctl.inference.engine import Predictor
from nlpctl.tasks.base import Batch, Task

T = TypeVar("T")


def windows(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut a stream into lists of `size`; the last may be shorter. Memory holds one of them."""
    stream = iter(rows)
    while window := list(islice(stream, size)):
        yield window


Run = Callable[[Batch], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Pipeline:
    """A task with a network that answers: from examples to predictions, in order.

    `collate` may keep labels: then `run` gets them too.
    """

    task: Task
    encoder: TextEncoder
    collate: Callable[[Sequence[Any]], Batch]
    run: Run

    def predictions(self, examples: Sequence[Any], batch_size: int) -> list[list[Any]]:
        """Per example the predictions of its features, computed in batches of similar length."""
        features = [self.task.features(example, self.encoder) for example in examples]
        places = [(owner, part) for owner, parts in enumerate(features) for part in range(len(parts))]
        places.sort(key=lambda place: features[place[0]][place[1]].byte_length)
        found: list[list[Any]] = [[None] * len(parts) for parts in features]
        for start in range(0, len(places), batch_size):
            chosen = places[start : start + batch_size]
            rows = [features[owner][part] for owner, part in chosen]
            batch = self.collate(rows)
            raise_failure(batch)
            predictions = self.task.predictions(self.run(batch), rows)
            for (owner, part), prediction in zip(chosen, predictions, strict=True):
                found[owner][part] = prediction
        return found


def answering(task: Task, encoder: TextEncoder, predictor: Predictor) -> Pipeline:
    """The pipeline of `predict`: examples without labels."""
    return Pipeline(task, encoder, task.collator(encoder, labelled=False), predictor.outputs)


def scoring(task: Task, encoder: TextEncoder, predictor: Predictor) -> Pipeline:
    """The pipeline of `eval`: labelled examples, masked where the task is to guess what is hidden."""

    def run(batch: Batch) -> tuple[np.ndarray, ...]:
        shown = task.hide(batch, None) if task.hides else batch
        return task.scored_outputs(predictor.outputs, shown)

    return Pipeline(task, encoder, task.collator(encoder, labelled=True), run)
