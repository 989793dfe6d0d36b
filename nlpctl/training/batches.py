"""The training batches of every epoch, from any batch of any epoch on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import paddle

from nlpctl.data.batching import LengthGroupedBatchSampler
from nlpctl.data.places import FeatureList, Placed, places
from nlpctl.data.splits import TrainingData
from nlpctl.data.streaming import StreamingExamples
from nlpctl.errors import RunFailed

SKIPPED: dict[str, Any] = {}


class ResumableBatches:
    """What the Trainer iterates over, once per epoch.

    The Trainer resumes by taking and dropping the batches that were already trained. Here those are
    empty stand-ins: they cost nothing, while the Trainer's own counting of steps and epochs stays exact.
    """

    def __init__(self, loader: paddle.io.DataLoader, sampler: LengthGroupedBatchSampler):
        self.loader = loader
        self.sampler = sampler
        self._epoch = 0
        self._skip = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def start_at(self, epoch: int, batch: int) -> None:
        """Make the next iteration epoch `epoch`, of which the first `batch` batches are skipped."""
        self._epoch, self._skip = epoch, batch

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        skip, self._skip = self._skip, 0
        self.sampler.set_epoch(self._epoch)
        self.sampler.start_at(skip)
        self._epoch += 1
        for _ in range(skip):
            yield SKIPPED
        yield from self.loader

    def placed(self, step: int, parts: int, data: TrainingData) -> list[list[Placed]]:
        """The parts of this process in the step after `step` completed ones, with the places of their rows."""
        features: FeatureList = self.loader.dataset
        indices = self.sampler.parts_of(step)
        owners = [features.owner(i) for part in indices for i in part]
        found = iter(places(data.source, data.reader, owners))
        return [[Placed(next(found) or data.source.description, features[i]) for i in part] for part in indices]

    def loss_weight(self, step: int, rows: int) -> float:
        """Factor that turns the mean loss of `rows` examples into their share of the update's mean."""
        return self.sampler.loss_weight(step, rows)


class ResumableStream:
    """The same for an endless stream: skipped batches are passed over in the stream itself."""

    def __init__(self, loader: paddle.io.DataLoader, examples: StreamingExamples):
        self.loader = loader
        self.examples = examples
        self._skip = 0

    def start_at(self, epoch: int, batch: int) -> None:
        """Skip the first `batch` batches; a stream is one epoch, so `epoch` is 0."""
        self._skip = batch

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        skip, self._skip = self._skip, 0
        self.examples.start_at(skip)
        for _ in range(skip):
            yield SKIPPED
        yield from self.loader
        # The Trainer would begin the stream anew, for ever where it gives nothing.
        raise RunFailed("the stream of training rows ended", where=self.examples.source.description)

    def placed(self, step: int, parts: int, data: TrainingData) -> list[list[Placed]]:
        """See ResumableBatches."""
        return self.examples.placed(step * parts, parts)

    def loss_weight(self, step: int, rows: int) -> float:
        """Batches of a stream are always full."""
        return 1.0
