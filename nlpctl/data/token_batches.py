"""Batches limited by their tokens, padding included, in place of their rows (data.batch_tokens)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from nlpctl.data.batching import LengthGroupedBatchSampler
from nlpctl.data.collate import Collator
from nlpctl.errors import UserError

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
    found = []
    for start in range(0, len(features), _CHUNK):
        chunk = features[start : start + _CHUNK]
        for feature, encoding in zip(chunk, collate.encodings(chunk, tell_cut=False), strict=True):
            batch = collate.arrays([feature], [encoding])
            found.append(max(array.shape[1] for name, array in batch.items() if name not in labels and array.ndim > 1))
    return np.array(found, np.int64)


def rounded(rows: float) -> int:
    """A number near `rows` that can be halved: three significant binary digits."""
    step = 2 ** max(0, int(np.log2(max(rows, 1))) - 2)
    return max(1, round(rows / step) * step)
