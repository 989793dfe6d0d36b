"""Length-grouped batches that are identical on every process, and a loader that re-raises failures of its workers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from nlpctl.data.batches.collate import Collator, raise_failure
from nlpctl.data.rows.examples import require_full_batch
from nlpctl.errors import RunFailed, UserError
from nlpctl.upstream.loader_workers import ended_with_parent

MEGABATCH = 50  # global batches sorted by length together
LOST_WORKER = ("Blocking queue is killed", "DataLoader process")  # in Paddle's messages: from the queue, from SIGCHLD


class LengthGroupedBatchSampler(paddle.io.DistributedBatchSampler):
    """Shuffled batches of similar lengths; the order is a pure function of (seed, epoch).

    Shuffle, cut into megabatches, sort each by length, cut into global batches, shuffle those. The batch with the
    longest example comes first, so that out-of-memory shows at once.

    A global batch is what one optimizer update sees: batch_size x accumulation_steps x num_replicas
    examples. It is divided into one part per accumulation step and rank, so N processes with batch b, or N
    accumulation steps, see the global batches of one process with batch N x b. The last, smaller global
    batch of an epoch is divided as evenly as can be, so no example is left out; `loss_weight` makes up for parts
    of unequal size. In a batch with fewer examples than parts, the parts without one repeat an example, and weigh 0.

    It is a DistributedBatchSampler because PaddleNLP's Trainer calls set_epoch on that class only.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        *,
        accumulation_steps: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
        seed: int = 0,
        drop_last: bool = False,
        grouped: bool = True,
    ) -> None:
        """`lengths`: [examples], anything that grows with the number of tokens. `batch_size`: per process.

        UserError if drop_last leaves nothing.
        """
        super().__init__(lengths, batch_size, num_replicas=num_replicas, rank=rank, shuffle=True, drop_last=drop_last)
        self.lengths = lengths
        self.seed = seed
        self.grouped = grouped
        self.accumulation_steps = accumulation_steps
        self.parts = accumulation_steps * num_replicas
        self.global_batch_size = batch_size * self.parts
        self._start = 0
        # An epoch without a batch is a mistake in the recipe; Paddle's sampler would silently yield nothing.
        if len(self) == 0:
            require_full_batch(len(lengths), self.global_batch_size)

    @property
    def updates(self) -> int:
        """Optimizer updates, that is global batches, of an epoch."""
        whole, rest = divmod(len(self.lengths), self.global_batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank, whatever `start_at` says."""
        return self.updates * self.accumulation_steps

    def loss_weight(self, update: int, part: int) -> float:
        """Factor that turns the mean loss over a part, the `part`-th of this rank, into its share of the update's mean.

        The mean over all parts of (factor x mean of the part) is the mean over the examples of the update;
        `update` counts from the start of training. 1.0 but for the last update of an epoch.
        """
        size = self.rows_of(update)
        rows, rest = divmod(size, self.parts)
        place = part * self.nranks + self.local_rank  # as _shares deals them out: the first ones are larger
        return (rows + (place < rest)) * self.parts / size

    def rows_of(self, update: int) -> int:
        """Examples of an update, over all ranks; it is counted from the start of training."""
        if update % self.updates == self.updates - 1 and not self.drop_last:  # only the last of an epoch is smaller
            return len(self.lengths) - (self.updates - 1) * self.global_batch_size
        return self.global_batch_size

    def parts_of(self, update: int) -> list[list[int]]:
        """This rank's parts of an update, which is counted from the start of training."""
        # A diagnosis may ask for parts of an earlier epoch; the loader's own epoch must not move.
        current = self.epoch
        epoch, place = divmod(update, self.updates)
        self.set_epoch(epoch)
        batch = self.global_batches()[place]
        self.set_epoch(current)
        return self._shares(batch)

    def start_at(self, batch: int) -> None:
        """Only the next iteration skips the first `batch` batches, so that a resume need not collate them."""
        if not 0 <= batch <= len(self):
            raise ValueError(f"an epoch has {len(self)} batches, cannot start at {batch}")
        self._start = batch

    def __iter__(self) -> Iterator[list[int]]:
        """Indices of this rank's examples, batch by batch. Planned here and not while iterating:
        an exception in the loader's thread would hang it."""
        start, self._start = self._start, 0
        shares = [share for batch in self.global_batches() for share in self._shares(batch)]
        return iter(shares[start:])

    def global_batches(self) -> list[np.ndarray]:
        """The batches of the current epoch over all ranks: int64 arrays of indices."""
        # No other state goes in: a resumed run and every rank must draw the same order.
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(len(self.lengths))
        if self.drop_last:
            order = order[: self.updates * self.global_batch_size]
        if not self.grouped:
            return _cut(order, self.global_batch_size)
        batches = []
        for megabatch in _cut(order, MEGABATCH * self.global_batch_size):
            # Stable: ties keep their random order, and every rank sorts them alike.
            by_length = megabatch[np.argsort(self.lengths[megabatch], kind="stable")]
            batches.extend(_cut(by_length, self.global_batch_size))
        # The last batch of the last megabatch may be small; it stays last, where loss_weight expects it.
        small = batches.pop() if len(batches[-1]) < self.global_batch_size else None
        batches = [batches[i] for i in random.permutation(len(batches))]
        # The longest batch goes first, so that out-of-memory shows in the first step and not after hours.
        if batches:
            longest = max(range(len(batches)), key=lambda i: self.lengths[batches[i][-1]])
            batches[0], batches[longest] = batches[longest], batches[0]
        return batches if small is None else [*batches, small]

    def _shares(self, batch: np.ndarray) -> list[list[int]]:
        """This rank's parts of a global batch, one per accumulation step, none of them empty."""
        if len(batch) < self.parts:
            # An empty part would hang the other ranks. These rows come last, where loss_weight is 0.
            batch = np.resize(batch, self.parts)
        mine = np.array_split(batch, self.parts)[self.local_rank :: self.nranks]
        return [part.tolist() for part in mine]


def _cut(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[i : i + size] for i in range(0, len(order), size)]


class CheckedDataLoader(paddle.io.DataLoader):
    """Paddle's loader; a failure inside a collator, a stream or a worker is raised in the thread that iterates. Its
    workers end with this process."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, worker_init_fn=ended_with_parent(), **options)

    def __iter__(self) -> Iterator[Any]:
        return checked_batches(super().__iter__())


def checked_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Pass on batches; UserError or RunFailed instead of one that carries a failure."""
    for batch in batches:
        raise_failure(batch)
        yield batch


@contextmanager
def lost_worker_as_error() -> Iterator[None]:
    """RunFailed when a loader's worker process dies inside the block.

    Paddle notices it in a handler of SIGCHLD, so its SystemError can come out of any line that runs then,
    a training step as well as the loader's queue: the block has to hold the whole loop.
    """
    try:
        yield
    except SystemError as error:
        if not any(sign in str(error) for sign in LOST_WORKER):
            raise
        hint = "it may have been killed for using too much memory; try a smaller training.dataloader_num_workers"
        raise RunFailed("a data worker process ended unexpectedly", hint=hint) from None


# -- batches limited by their tokens, padding included (data.batch_tokens) --------------------------------------------


BUCKET = 8  # rows whose lengths differ by less than this are drawn into batches at random
_CHUNK = 1024  # rows tokenised at once


class TokenBatchSampler(LengthGroupedBatchSampler):
    """Shuffled batches of similar lengths with at most `batch_tokens` tokens each, padding included.

    Rows are sorted by length, the longest first, in buckets of BUCKET tokens, and cut: a global batch of rows of up to
    L tokens has `parts` times batch_tokens / L rows. Random are the order within a bucket and the order of batches. So
    every epoch has the same number of batches of the same sizes, on every rank, and the order is a pure function of
    (seed, epoch), as in LengthGroupedBatchSampler.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_tokens: int,
        *,
        planned_steps: int = 1,
        accumulation_steps: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        """`lengths`: [examples], in tokens. `batch_tokens`: of a batch of one process.

        `planned_steps`: the accumulation steps that batches are planned for. `accumulation_steps` is larger after a
        lack of memory, and then cuts the same global batches into more parts. UserError if drop_last leaves nothing.
        """
        longest = int(lengths.max())
        if longest > batch_tokens:
            message = f"a row has {longest} tokens, more than a batch may have ({batch_tokens})"
            raise UserError(message, "data.batch_tokens", f"set it to {longest} or more, or lower data.max_seq_length")
        self._bounds = np.minimum(-(-lengths // BUCKET) * BUCKET, longest)
        self._sizes = _sizes(np.sort(self._bounds)[::-1], batch_tokens, planned_steps * num_replicas, drop_last)
        self.batch_tokens = batch_tokens
        self._planned: tuple[int, list[np.ndarray]] | None = None
        if not self._sizes:
            message = f"{len(lengths)} training rows do not fill one batch of {batch_tokens} tokens"
            raise UserError(message, "training.dataloader_drop_last", "set it to false, or lower data.batch_tokens")
        super().__init__(
            lengths,
            1,
            accumulation_steps=accumulation_steps,
            num_replicas=num_replicas,
            rank=rank,
            seed=seed,
            drop_last=drop_last,
        )

    @property
    def updates(self) -> int:
        return len(self._sizes)

    @property
    def dropped(self) -> int:
        """Rows that drop_last leaves out of an epoch."""
        return len(self.lengths) - sum(self._sizes)

    @property
    def mean_rows(self) -> float:
        """Rows of a batch of one process, in the mean."""
        return sum(self._sizes) / (len(self._sizes) * self.parts)

    def rows_of(self, update: int) -> int:
        epoch, place = divmod(update, self.updates)
        return len(self._plan(epoch)[place])

    def global_batches(self) -> list[np.ndarray]:
        return self._plan(self.epoch)

    def _plan(self, epoch: int) -> list[np.ndarray]:
        """The global batches of an epoch; those of the epoch asked for last are kept."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = epoch, self._batches(np.random.default_rng([self.seed, epoch]))
        return self._planned[1]

    def _batches(self, random: np.random.Generator) -> list[np.ndarray]:
        # Without the rows that drop_last drops, others in every epoch. The rest are no longer than those that the sizes
        # were planned for.
        order = random.permutation(len(self.lengths))[: sum(self._sizes)]
        order = order[np.argsort(-self._bounds[order], kind="stable")]
        batches = np.split(order, np.cumsum(self._sizes)[:-1])
        batches = [batches[i] for i in random.permutation(len(batches))]
        # The longest batch goes first, so that out-of-memory shows in the first step and not after hours.
        longest = max(range(len(batches)), key=lambda i: self.lengths[batches[i]].max() * len(batches[i]))
        batches[0], batches[longest] = batches[longest], batches[0]
        return batches


def _sizes(bounds: np.ndarray, batch_tokens: int, parts: int, drop_last: bool) -> list[int]:
    """Rows per global batch of rows whose lengths are at most `bounds`, sorted from the longest."""
    sizes, start = [], 0
    while start < len(bounds):
        wanted = parts * (batch_tokens // int(bounds[start]))
        if drop_last and start + wanted > len(bounds):
            break
        sizes.append(min(wanted, len(bounds) - start))
        start += wanted
    return sizes


def token_lengths(features: Sequence[Any], collate: Collator, labels: Collection[str]) -> np.ndarray:
    """[features] int64: the tokens of each, special tokens included; of several texts apart, those of the longest.

    `labels`: the entries of a batch that are no input.
    """
    lengths = []
    for start in range(0, len(features), _CHUNK):
        chunk = features[start : start + _CHUNK]
        for feature, encoding in zip(chunk, collate.encodings(chunk, tell_cut=False), strict=True):
            batch = collate.arrays([feature], [encoding])
            lengths.append(
                max(array.shape[1] for name, array in batch.items() if name not in labels and array.ndim > 1)
            )
    return np.array(lengths, np.int64)


def rounded(rows: float) -> int:
    """A number near `rows` that can be halved: three significant binary digits."""
    step = 2 ** max(0, int(np.log2(max(rows, 1))) - 2)
    return max(1, round(rows / step) * step)
