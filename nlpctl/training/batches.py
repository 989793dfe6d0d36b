"""The training batches of every epoch, resumable at any batch of any epoch, and the seed of every step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from nlpctl.config.schema import Recipe
from nlpctl.data.batches.batching import LengthGroupedBatchSampler, TokenBatchSampler
from nlpctl.data.batches.streaming import StreamingExamples
from nlpctl.data.rows.examples import FeatureList, Placed, places
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import RunFailed
from nlpctl.tasks.base import Task
from nlpctl.training.oom import MicroBatching

SKIPPED: dict[str, Any] = {}
Cut = Callable[[Any], Sequence[Any]]
Read = Callable[[Iterable[Any]], Iterator[Any]]


def training_cut(task: Task, data: TrainingData, encoder: TextEncoder) -> Cut:
    """From an example to what batches of training with the task's own loss are made of."""
    if data.train is None:
        return functools.partial(task.features, encoder=encoder)
    return task.training_cut(data.train, encoder)


def batch_sampler(
    recipe: Recipe, lengths: np.ndarray, division: MicroBatching | None = None, *, processes: int = 1, rank: int = 0
) -> LengthGroupedBatchSampler:
    """What draws the batches of a training by `recipe`.

    `lengths`: of the features, in tokens where data.batch_tokens limits them, otherwise in bytes. `division`: how
    updates are cut after a lack of memory; None: as the recipe says. UserError if drop_last leaves nothing.
    """
    data, training = recipe.data, recipe.training
    planned = MicroBatching(training.per_device_train_batch_size, training.gradient_accumulation_steps)
    cut = planned if division is None else division
    shared: dict[str, Any] = {
        "accumulation_steps": cut.parts,
        "num_replicas": processes,
        "rank": rank,
        "seed": training.seed,
        "drop_last": training.dataloader_drop_last,
    }
    if data.batch_tokens is None:
        grouped = data.length_grouped and not data.streaming
        return LengthGroupedBatchSampler(lengths, cut.batch_size, grouped=grouped, **shared)
    return TokenBatchSampler(lengths, data.batch_tokens, planned_steps=planned.parts, **shared)


class ResumableBatches:
    """The data loader of the Trainer, iterated once per epoch.

    The Trainer resumes by reading and dropping the batches that were already trained. Here these are empty
    placeholders, which cost nothing and keep the Trainer's count of steps and epochs exact.
    """

    def __init__(self, loader: paddle.io.DataLoader, sampler: LengthGroupedBatchSampler, read: Read = iter):
        """`read`: iterates over the loader; it may take the time."""
        self.loader = loader
        self.sampler = sampler
        self.read = read
        self._epoch = 0
        self._skip = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def start_at(self, epoch: int, batch: int) -> None:
        """Set the next iteration to epoch `epoch` and skip its first `batch` batches."""
        self._epoch, self._skip = epoch, batch

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        skip, self._skip = self._skip, 0
        self.sampler.set_epoch(self._epoch)
        self.sampler.start_at(skip)
        # The Trainer iterates once per epoch and does not say which one it is; so it is counted here.
        self._epoch += 1
        # The Trainer counts and drops these, so its steps and epochs stay right although no data is read.
        for _ in range(skip):
            yield SKIPPED
        yield from self.read(self.loader)

    def placed(self, step: int, parts: int, data: TrainingData) -> list[list[Placed]]:
        """The micro-batches of this process in the step after `step` completed ones, with the places of their rows."""
        features: FeatureList = self.loader.dataset
        indices = self.sampler.parts_of(step)
        owners = [features.owner(i) for part in indices for i in part]
        where = iter(places(data.source, data.reader, owners))
        return [[Placed(next(where) or data.source.description, features[i]) for i in part] for part in indices]

    def loss_weight(self, step: int, part: int) -> float:
        """The factor from the mean loss of a micro-batch of this process to its share of the update's mean."""
        return self.sampler.loss_weight(step, part)


class ResumableStream:
    """The same for an endless stream, which skips batches itself."""

    def __init__(self, loader: paddle.io.DataLoader, examples: StreamingExamples, read: Read = iter):
        self.loader = loader
        self.examples = examples
        self.read = read
        self._skip = 0

    def start_at(self, epoch: int, batch: int) -> None:
        """Skip the first `batch` batches; a stream is one epoch, so `epoch` is 0."""
        self._skip = batch

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        skip, self._skip = self._skip, 0
        self.examples.start_at(skip)
        for _ in range(skip):
            yield SKIPPED
        yield from self.read(self.loader)
        # The Trainer would restart an ended stream, and loop forever if it is empty.
        raise RunFailed("the stream of training rows ended", where=self.examples.source.description)

    def placed(self, step: int, parts: int, data: TrainingData) -> list[list[Placed]]:
        """See ResumableBatches."""
        return self.examples.placed(step * parts, parts)

    def loss_weight(self, step: int, part: int) -> float:
        """Batches of a stream are always full."""
        return 1.0


def step_seed(seed: int, step: int, rank: int) -> int:
    """A seed below 2**31 that differs between steps and ranks: a multiplicative hash (Knuth, vol. 3, 6.4)."""
    mixed = (seed * 0x9E3779B1 + step * 0x85EBCA77 + rank * 0xC2B2AE3D) & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ (mixed >> 29)) % (2**31 - 1)
