"""Streaming training data: an endless stream in constant memory, shuffled in a buffer, exactly resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, repeat
from random import Random
from typing import Any, Literal

import paddle

from nlpctl.data.batches.collate import LoaderFailure
from nlpctl.data.readers.row import BadRow, RowSource
from nlpctl.data.rows.examples import ExampleReader, Placed, PlacingReader
from nlpctl.data.rows.task_rows import Example
from nlpctl.errors import Problem, RunFailed, UserError


class StreamingExamples(paddle.io.IterableDataset):
    """Repeats the epochs of the source endlessly. The order is a pure function of (seed, epoch).

    The global stream is cut into global batches of batch_size x world_size, and every rank takes its
    slice of each, as in LengthGroupedBatchSampler; batches run on over the end of an epoch. Each
    process reads the whole source. With W loader workers, worker w makes the batches w, w + W, ... of its
    rank: Paddle asks the workers in turn, so the batches come in the same order as without workers.

    An exception while reading would hang Paddle's loader; it becomes a whole batch of LoaderFailures in the
    stream, which the Collator hands on: one alone would go with the last, smaller batch, which the loader drops.

    Bad rows: run scan_examples first, it lists or counts them before the training starts. Here "skip" leaves
    them out. What tells that the source has changed ends the run with RunFailed: it cannot be read, a row is bad
    under "error", none is usable, or there are more or fewer rows.
    """

    def __init__(
        self,
        source: RowSource,
        reader: ExampleReader,
        features: Callable[[Example], Sequence[Any]],
        *,
        batch_size: int,
        shuffle_buffer: int,
        seed: int,
        on_bad_row: Literal["error", "skip"],
        world_size: int = 1,
        rank: int = 0,
        rows: int | None = None,
        fix: str = "",
    ) -> None:
        """`features`: an example's parts that fit the window. `batch_size`: per process, as the loader uses it.
        `shuffle_buffer`: features held; 0 or 1: file order. `rows`: how many the source has, bad ones too; None:
        unknown. `fix`: the next step where it has changed."""
        super().__init__()
        self.source = source
        self.reader = reader
        self.features = features
        self.batch_size = batch_size
        self.shuffle_buffer = shuffle_buffer
        self.seed = seed
        self.on_bad_row = on_bad_row
        self.world_size = world_size
        self.rank = rank
        self.rows = rows
        self.fix = fix
        self._start = 0

    def placed(self, batch: int, count: int) -> list[list[Placed]]:
        """`count` batches of this rank from `batch` on, read anew, with the places of their rows."""

        def placed_features(row: Any) -> list[Any]:
            return [Placed(row.where, feature) for feature in self.features(row.item)]

        again = StreamingExamples(
            self.source,
            PlacingReader(self.reader.rows, self.reader.labels),
            features=placed_features,
            batch_size=self.batch_size,
            shuffle_buffer=self.shuffle_buffer,
            seed=self.seed,
            on_bad_row=self.on_bad_row,
            world_size=self.world_size,
            rank=self.rank,
            rows=self.rows,
            fix=self.fix,
        )
        again.start_at(batch)
        rows: Iterator[Any] = again._share(0, 1)
        return [list(islice(rows, self.batch_size)) for _ in range(count)]

    def start_at(self, batch: int) -> None:
        """Iterations begin with this batch. Earlier ones are read and skipped, but not collated."""
        self._start = batch

    def __iter__(self) -> Iterator[Example | LoaderFailure]:
        info = paddle.io.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        try:
            yield from self._share(worker, workers)
        except Exception as error:
            # A full batch, because the loader drops an incomplete last one.
            yield from repeat(LoaderFailure.from_exception(error), self.batch_size)

    def _share(self, worker: int, workers: int) -> Iterator[Example]:
        """The examples of this rank that this worker has to deliver."""
        global_batch_size = self.batch_size * self.world_size
        for i, example in enumerate(self.global_stream()):
            batch, position = divmod(i, global_batch_size)
            # Paddle's loader asks worker 0 first after a resume too, so workers count from the first batch to be made.
            if batch < self._start or (batch - self._start) % workers != worker:
                continue
            if position // self.batch_size == self.rank:
                yield example

    def global_stream(self) -> Iterator[Example]:
        """All examples of all ranks, for ever."""
        epoch = 0
        while True:
            yield from self._epoch(epoch)
            epoch += 1

    def _epoch(self, epoch: int) -> Iterator[Example]:
        """One pass: each example read takes the place of a random one in the full buffer, which is given out."""
        # A text as seed: Random hashes it, so neighbouring seeds and epochs give unrelated orders.
        random = Random(f"{self.seed} {epoch}")
        buffer: list[Example] = []
        empty = True
        for example in self._examples():
            empty = False
            if len(buffer) < self.shuffle_buffer:
                buffer.append(example)
            elif buffer:
                # randrange draws a varying number of bits; one random() per row is faster and counts the same.
                place = int(random.random() * len(buffer))
                buffer[place], example = example, buffer[place]
                yield example
            else:
                yield example
        if empty:
            raise self._changed(Problem("no row is usable", self.source.description))
        random.shuffle(buffer)
        yield from buffer

    def _examples(self) -> Iterator[Example]:
        for example in self._usable():
            yield from self.features(example)

    def _usable(self) -> Iterator[Any]:
        """The examples of one pass over the source. RunFailed: it is not as it was when the run began."""
        count = 0
        try:
            for row in self.source:
                count += 1
                example = self.reader.read(row)
                if not isinstance(example, BadRow):
                    yield example
                elif self.on_bad_row == "error":
                    raise UserError(example.reason, where=example.where)
        except UserError as error:
            raise self._changed(*error.problems) from None
        if self.rows not in (None, count):
            message = f"{count:,} rows, but {self.rows:,} when the run began"
            raise self._changed(Problem(message, self.source.description))

    def _changed(self, *problems: Problem) -> RunFailed:
        """The RunFailed for a changed source. The hints of `problems` are dropped: they apply before a run only."""
        plain = [replace(problem, hint="") for problem in problems]
        return RunFailed(problems=[*plain[:-1], replace(plain[-1], hint=self.fix)])
